"""Posting to endpoints that mean no good: real servers on loopback, which a setting lets be reached here."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from aiohttp import web
from yarl import URL

from pamspec_subscription.webhooks.attempts import Attempt
from pamspec_subscription.webhooks.posting import Limits, Lookup, Poster
from pamspec_subscription.webhooks.targets import Network, Targets
from services.subscription.tests.endpoint import WAIT_S, Delivery, certificate, endpoint

ANY_PORT = ((1, 65535),)
CLOSED = b'{"closed":{"last_delivered_sequence":1,"reason":"unsubscribed"},"ledger_epoch":1}'
BODY = b'{"frames":[%b],"subscription_id":"sub:1"}' % CLOSED
HEADERS = {"webhook-id": "msg_1", "webhook-timestamp": "0", "webhook-signature": ""}


def reaching(*networks: str) -> Targets:
    found: list[Network] = [ipaddress.ip_network(one) for one in networks]
    return Targets(found, ANY_PORT, http=True)


@contextlib.asynccontextmanager
async def poster(
    targets: Targets | None = None,
    lookup: Lookup | None = None,
    ca_file: Path | None = None,
    limits: Limits | None = None,
) -> AsyncIterator[Poster]:
    found = Poster(targets or reaching("127.0.0.0/8"), limits or Limits(60, 30), ca_file, lookup)
    try:
        yield found
    finally:
        await found.close()


async def post(by: Poster, url: str) -> Attempt:
    return await asyncio.wait_for(by.post(URL(url), BODY, HEADERS), 2 * WAIT_S)


async def test_https_goes_to_the_checked_address_under_its_own_name(tmp_path: Path) -> None:
    """The name is looked up once; certificate and Host are the name's."""
    tls, trusted = certificate(tmp_path, "hooks.example.org")
    asked: list[str] = []

    def lookup(host: str) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async with endpoint(tls) as hook, poster(lookup=lookup, ca_file=trusted) as by:
        port = URL(hook.base).port
        assert (await post(by, f"https://hooks.example.org:{port}/hook")).outcome == "delivered"
        assert hook.seen[0].headers["host"] == f"hooks.example.org:{port}"
        assert asked == ["hooks.example.org"]
        assert (await post(by, f"https://other.example.org:{port}/hook")).outcome == "tls_failed"
    async with endpoint(tls) as hook, poster(lookup=lookup) as by:
        untrusted = await post(by, f"https://hooks.example.org:{URL(hook.base).port}/hook")
        assert (untrusted.outcome, hook.seen) == ("tls_failed", [])


async def test_a_name_that_is_bound_again_leads_nowhere_else() -> None:
    """DNS rebinding: what the second look-up says is checked like the first, and never reached."""
    answers = [["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1", "127.0.0.2"], ["169.254.169.254", "::1", "10.0.0.1"], []]
    left = list(answers)

    async def closing(_: Delivery) -> web.StreamResponse:
        return web.Response(status=204, headers={"Connection": "close"})

    async with endpoint(host="127.0.0.2") as good, poster(reaching("127.0.0.2/32"), lambda _: left.pop(0)) as by:
        good.answer = closing
        port = URL(good.base).port
        outcomes = [(await post(by, f"http://rebinding.example.org:{port}/hook")).outcome for _ in answers]
    assert outcomes == ["delivered", "no_address", "delivered", "no_address", "no_address"]
    assert len(good.seen) == 2


async def test_the_last_check_stands_where_the_socket_is_made() -> None:
    """Whatever the names were checked to be: a socket to a forbidden address is not made."""

    class Lenient(Targets):
        checks = 0

        def allows(self, address: str) -> bool:
            Lenient.checks += 1
            return Lenient.checks == 1

    async with endpoint() as hook, poster(Lenient(ports=ANY_PORT, http=True), lambda _: ["127.0.0.1"]) as by:
        found = await post(by, f"http://hooks.example.org:{URL(hook.base).port}/hook")
        assert (found.outcome, hook.seen, Lenient.checks) == ("no_address", [], 2)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "[::ffff:127.0.0.1]", "127.1", "2130706433", "0x7f000001", "localhost", "0.0.0.0", "127.0.0.1."],
)
async def test_loopback_is_not_reached_however_it_is_written(host: str) -> None:
    """By the system's own resolver."""
    async with endpoint() as hook, poster(reaching("127.9.9.9/32")) as by:
        found = await post(by, f"http://{host}:{URL(hook.base).port}/hook")
        assert (found.outcome, found.status, hook.seen) == ("no_address", None, [])


async def test_redirects_are_not_followed() -> None:
    async with endpoint(host="127.0.0.2") as inner, endpoint() as hook, poster() as by:

        async def away(_: Delivery) -> web.StreamResponse:
            return web.Response(status=307, headers={"Location": inner.url})

        hook.answer = away
        found = await post(by, hook.url)
        assert (found.outcome, found.status, inner.seen) == ("redirected", 307, [])


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with endpoint() as hook, poster() as by:
        assert (await post(by, hook.url)).outcome == "delivered"


@contextlib.asynccontextmanager
async def raw(*pieces: bytes, forever: bytes = b"") -> AsyncIterator[str]:
    """A server that sends these bytes to whoever connects, then some for ever or nothing more."""
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
            while forever and not gone.is_set():
                writer.write(forever)
                await writer.drain()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(gone.wait(), 0.01)
            await gone.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    gone.set()
    server.close()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


@pytest.mark.parametrize(
    ("pieces", "forever"),
    [
        ((HEAD, b"Content-Length: 1000\r\n\r\nx"), b""),
        ((HEAD, b"Content-Length: 100000000\r\n\r\n"), b"x"),
        ((HEAD, b"Content-Length: 100000000\r\n\r\n"), b"x" * 65536),
        ((HEAD, b"Transfer-Encoding: chunked\r\n\r\n"), b"1\r\nx\r\n"),
        ((HEAD, b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"), b""),
    ],
    ids=["a body that stops", "a dripping body", "an endless body", "endless chunks", "no gzip"],
)
async def test_the_body_of_an_answer_holds_nobody_up(pieces: tuple[bytes, ...], forever: bytes) -> None:
    """The status counts; the time limit of the request is far beyond the test's."""
    async with raw(*pieces, forever=forever) as url, poster(limits=Limits(3600, 3600)) as by:
        assert (await post(by, url)).outcome == "delivered"


@pytest.mark.parametrize(
    ("pieces", "forever", "outcome"),
    [
        ((), b"", "timed_out"),
        ((b"HTTP/1.1 200 OK\r\n",), b"", "timed_out"),
        ((b"HTTP/1.1 200 OK\r\nX: ",), b"y", "timed_out"),
        ((b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000,), b"", "unreachable"),
        ((b"\x00\x01nonsense\r\n\r\n",), b"", "unreachable"),
    ],
    ids=["silence", "half a head", "a dripping head", "a huge head", "no HTTP"],
)
async def test_what_is_no_answer_is_a_failure(pieces: tuple[bytes, ...], forever: bytes, outcome: str) -> None:
    limits = Limits(1.0, 1.0) if outcome == "timed_out" else Limits(60.0, 60.0)
    async with raw(*pieces, forever=forever) as url, poster(limits=limits) as by:
        found = await post(by, url)
        assert (found.outcome, found.status) == (outcome, None)


@pytest.mark.parametrize(("line", "status"), [(b"099 Odd", None), (b"000 Zero", None), (b"999 Odd", 999)])
async def test_a_status_that_http_does_not_know_is_a_failure(line: bytes, status: int | None) -> None:
    async with raw(b"HTTP/1.1 " + line + b"\r\nContent-Length: 0\r\n\r\n") as url, poster() as by:
        found = await post(by, url)
        assert found.outcome in ("failed", "unreachable")
        assert found.status == (status if found.outcome == "failed" else None)


async def test_nobody_there_and_no_such_name() -> None:
    async with endpoint() as hook:
        url = hook.url

    def nothing(_: str) -> Sequence[str]:
        raise OSError("Name or service not known")

    async with poster(lookup=nothing) as by:
        assert (await post(by, url)).outcome == "unreachable"
        assert (await post(by, "http://nowhere.example.org/")).outcome == "no_address"
