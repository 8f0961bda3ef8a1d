"""The internal door and peers, in one process and over HTTP: each call gets its own answer, and only slow ones wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest
import pytest_asyncio

from pamspec_common import internal, proxy
from pamspec_common.asgi import Receive, Scope, Send, send_answer
from pamspec_common.calls import Answer, Call
from pamspec_common.errors import ObjectNotFound
from pamspec_common.peers import ANSWER_TIMEOUT_S, LocalPeer, Peer, RemotePeer, peer_session
from pamspec_common.server import serving
from pamspec_common.service import Part, Service


class Behind:
    """A service whose operations do what a test needs."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.running = 0
        self.calls: list[Call] = []
        self.well = True
        operations = {name: getattr(self, name) for name in ("echo", "refuse", "fail", "wait", "large")}
        self.service = Service("behind", operations, self._readiness, _nothing, _nothing)

    async def _readiness(self) -> list[Part]:
        return [Part("store", self.well, {"lag": 3}), Part("bus", False, essential=False)]

    async def echo(self, call: Call) -> Answer:
        """The body again."""
        self.calls.append(call)
        return Answer(200, call.body, {"X-Key": call.idempotency_key or ""})

    async def refuse(self, call: Call) -> Answer:
        """A refusal that nobody turned into an answer."""
        raise ObjectNotFound(details={"object_id": "obj:1"})

    async def fail(self, call: Call) -> Answer:
        """A defect."""
        raise KeyError("SECRET")

    async def wait(self, call: Call) -> Answer:
        """An answer once the gate is open."""
        self.running += 1
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        return Answer(200, call.body)

    async def large(self, call: Call) -> Answer:
        """Many bytes."""
        return Answer(200, b"x" * int(call.body))


async def _nothing() -> None:
    return None


@pytest_asyncio.fixture(loop_scope="session", params=["local", "remote"])
async def peer(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Peer, Behind]]:
    """A peer of either kind."""
    behind = Behind()
    if request.param == "local":
        await behind.service.start()
        yield LocalPeer(behind.service), behind
        return
    async with serving(behind.service) as url, peer_session() as session:
        yield RemotePeer(session, url), behind


@pytest_asyncio.fixture(loop_scope="session")
async def remote() -> AsyncIterator[tuple[RemotePeer, Behind]]:
    """A peer over HTTP."""
    behind = Behind()
    async with serving(behind.service) as url, peer_session() as session:
        yield RemotePeer(session, url), behind


def call(operation: str, body: bytes = b"{}", **more: Any) -> Call:
    """A call of nobody in particular."""
    return Call(operation, "token", body, **more)


async def test_each_call_gets_its_own_answer(peer: tuple[Peer, Behind]) -> None:
    to, behind = peer
    bodies = [str(number).encode() for number in range(600)]
    answers = await asyncio.gather(*(to.call(call("echo", body, idempotency_key=body.decode())) for body in bodies))
    assert [answer.body for answer in answers] == bodies
    assert [answer.headers["X-Key"] for answer in answers] == [body.decode() for body in bodies]
    assert len(behind.calls) == 600
    assert behind.calls[0].principal == "token"


async def test_refusals_and_defects_are_answers(peer: tuple[Peer, Behind], caplog: pytest.LogCaptureFixture) -> None:
    to, _ = peer
    found = orjson.loads((await to.call(call("refuse"))).body)["error"]
    assert (found["code"], found["details"]) == ("object_not_found", {"object_id": "obj:1"})
    defect = await to.call(call("fail"))
    assert (defect.status, orjson.loads(defect.body)["error"]["code"]) == (500, "internal_error")
    assert b"SECRET" not in defect.body
    assert any(record.exc_info for record in caplog.records)
    unknown = orjson.loads((await to.call(call("nothing"))).body)["error"]
    assert unknown["code"] == "invalid_request"
    assert found["operation_id"].startswith("op:")


async def test_large_answers_arrive_whole(peer: tuple[Peer, Behind]) -> None:
    to, _ = peer
    sizes = [0, 1, 70_000, 5_000_000]
    answers = await asyncio.gather(*(to.call(call("large", str(size).encode())) for size in sizes))
    assert [len(answer.body) for answer in answers] == sizes


async def test_readiness_tells_the_parts(peer: tuple[Peer, Behind]) -> None:
    to, behind = peer
    ok, parts = await to.ready()
    assert ok
    assert {part.name: (part.ok, part.essential) for part in parts} == {"store": (True, True), "bus": (False, False)}
    assert next(part.detail["lag"] for part in parts if part.name == "store") == 3
    behind.well = False
    assert (await to.ready())[0] is False


async def test_slow_calls_hold_up_nobody(remote: tuple[RemotePeer, Behind]) -> None:
    """However many calls are stuck, one after another or together, a quick one is answered at once."""
    to, behind = remote
    stuck: list[asyncio.Task[Answer]] = []
    for _ in range(3 * internal.MAX_IN_FLIGHT):
        stuck.append(asyncio.create_task(to.call(call("wait", b"late"))))
        began = time.monotonic()
        assert (await to.call(call("echo", b"now"))).body == b"now"
        assert time.monotonic() - began < 15
    assert not any(task.done() for task in stuck)
    behind.gate.set()
    assert {answer.body for answer in await asyncio.gather(*stuck)} == {b"late"}


async def test_a_caller_that_leaves_disturbs_no_other(remote: tuple[RemotePeer, Behind]) -> None:
    to, behind = remote
    leaving, staying = (asyncio.create_task(to.call(call("wait", b"x"))) for _ in range(2))
    alone = asyncio.create_task(to.call(call("wait", b'{"wait_ms":1000}')))
    while behind.running < 3:
        await asyncio.sleep(0.005)
    leaving.cancel()
    alone.cancel()
    while behind.running > 2:
        await asyncio.sleep(0.005)
    behind.gate.set()
    assert (await staying).body == b"x"
    for task in (leaving, alone):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_service_that_is_away_is_an_answer(unused_tcp_port: int) -> None:
    async with peer_session() as session:
        to = RemotePeer(session, f"http://127.0.0.1:{unused_tcp_port}/")
        answers = await asyncio.gather(*(to.call(call("echo", body)) for body in (b"{}", b'{"wait_ms":1}', b"{}")))
        assert [answer.status for answer in answers] == [503] * 3
        assert {answer.headers["Retry-After"] for answer in answers} == {"1"}
        assert (await to.ready())[0] is False


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nPamspec-Beats: 1\r\nContent-Length: 9\r\n\r\n"])
async def test_a_service_that_has_stopped_is_an_answer_soon(monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    """A process under SIGSTOP: its kernel takes connections and requests, and nothing comes back, or nothing more."""
    monkeypatch.setattr(internal, "SILENCE_S", 0.2)
    held: list[asyncio.StreamWriter] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        await reader.read(1)
        writer.write(head)

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, peer_session() as session:
        to = RemotePeer(session, f"http://127.0.0.1:{port}")
        async with asyncio.timeout(ANSWER_TIMEOUT_S - 10):
            answers = await asyncio.gather(*(to.call(call("echo", body)) for body in (b"{}", b'{"wait_ms":30000}')))
        assert [answer.status for answer in answers] == [503, 503]
        for writer in held:
            writer.close()


async def test_a_slow_call_is_not_taken_for_a_service_that_has_stopped(
    monkeypatch: pytest.MonkeyPatch, remote: tuple[RemotePeer, Behind]
) -> None:
    """It gives signs of life for as long as it takes, however long that is."""
    monkeypatch.setattr(internal, "SILENCE_S", 3.0)
    monkeypatch.setattr(internal, "BEAT_S", 0.05)
    to, behind = remote
    slow = asyncio.create_task(to.call(call("wait", b"late")))
    asyncio.get_running_loop().call_later(4.0, behind.gate.set)
    assert (await slow).body == b"late"


async def test_a_door_of_the_version_before_gives_no_signs_of_life(
    monkeypatch: pytest.MonkeyPatch, remote: tuple[RemotePeer, Behind]
) -> None:
    """Neither is it asked for more than it knows, nor does it get what it cannot read."""
    monkeypatch.setattr(internal, "BEAT_S", 0.01)
    to, behind = remote
    body = internal._encoder.encode([call("wait", b"late")])
    async with aiohttp.ClientSession() as session, session.post(to.base_url + internal.PATH, data=body) as response:
        assert internal._BEATS not in response.headers
        asyncio.get_running_loop().call_later(0.3, behind.gate.set)
        said = await response.read()
    assert int.from_bytes(said[:4], "big") == len(said) - 4, "one answer and nothing else"


async def test_a_closed_session_is_an_answer(remote: tuple[RemotePeer, Behind]) -> None:
    session = peer_session()
    to = RemotePeer(session, remote[0].base_url)
    await session.close()
    async with asyncio.timeout(60):
        assert [answer.status for answer in await asyncio.gather(*(to.call(call("echo")) for _ in range(600)))] == [
            503
        ] * 600


@pytest.mark.parametrize(
    "body", [b"", b"\x00\x00\x00\x05hello", b"\x00\x00\x00\x01\xc1", b"\x00\x00\x00\x02\x92\x07\x90"]
)
async def test_what_is_no_internal_door_is_an_answer(body: bytes) -> None:
    async def strange(scope: Scope, receive: Receive, send: Send) -> None:
        await send_answer(send, Answer(200, body))

    service = Service("strange", {}, _no_parts, _nothing, _nothing, app=strange)
    async with serving(service) as url, peer_session() as session:
        answer = await RemotePeer(session, url).call(call("echo"))
        assert answer.status == 503


async def _no_parts() -> list[Part]:
    return []


async def test_the_door_takes_calls_only(remote: tuple[RemotePeer, Behind]) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(remote[0].base_url + internal.PATH, data=b"not msgpack") as response,
    ):
        assert response.status == 400
        assert orjson.loads(await response.read())["error"]["code"] == "invalid_request"


async def test_a_stream_of_a_service_that_has_stopped_is_refused_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP and as a WebSocket; the client gets an answer of its own instead of none."""
    monkeypatch.setattr(proxy, "_OPENED_WITHIN_S", 0.2)
    held: list[asyncio.StreamWriter] = []

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, peer_session() as session:
        front = Service("front", {}, _no_parts, _nothing, _nothing, app=RemotePeer(session, url).app)
        async with serving(front) as door, aiohttp.ClientSession() as client, asyncio.timeout(ANSWER_TIMEOUT_S - 10):
            async with client.get(door + "/v1/subscriptions/s/stream") as response:
                assert response.status == 503
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect(door + "/v1/subscriptions/s/ws")
            assert refused.value.status == 503
        for writer in held:
            writer.close()
