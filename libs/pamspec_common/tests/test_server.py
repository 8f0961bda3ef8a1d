"""A service as a process: signals, the order of a stop, and exit codes."""

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from pamspec_common import contracts
from pamspec_common.asgi import Receive, Scope, Send, deny_websocket
from pamspec_common.calls import refusal
from pamspec_common.errors import ServiceUnavailable
from pamspec_common.peers import RemotePeer, peer_session
from pamspec_common.server import bind, serving
from pamspec_common.service import Part, Service

PROGRAM = textwrap.dedent(
    """
    import asyncio, sys
    from pamspec_common.server import run
    from pamspec_common.service import Service
    from pamspec_common.settings import CommonSettings

    ending = asyncio.Event()

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"open ", "more_body": True})
        await ending.wait()
        await send({"type": "http.response.body", "body": b"ended"})

    async def parts():
        return []

    def hook(name, failing=False):
        async def called():
            print(name, flush=True)
            if failing:
                raise RuntimeError("no database")
            if name == "drain":
                ending.set()
        return called

    def build():
        failing = "failing" in sys.argv
        return Service("sample", {}, parts, hook("start", failing), hook("stop"), app=app, on_drain=hook("drain"))

    sys.exit(run(build, CommonSettings(port=0, drain_s=5)))
    """
)


@asynccontextmanager
async def _running(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _listening(process: asyncio.subprocess.Process) -> int:
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while b'"action":"listening"' not in (line := await process.stderr.readline()):
            assert line, "the process ended before it listened"
    return int(line.split(b"127.0.0.1:")[1].split(b'"')[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_channels_then_the_service_and_the_code_is_0(number: signal.Signals) -> None:
    async with _running() as process, aiohttp.ClientSession() as session:
        port = await _listening(process)
        async with session.get(f"http://127.0.0.1:{port}/stream") as response:
            assert await response.content.readexactly(5) == b"open "
            os.kill(process.pid, number)
            assert await asyncio.wait_for(response.content.read(), 60) == b"ended"
        output, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors
    assert output.split() == [b"start", b"drain", b"stop"]


async def test_a_failed_start_is_code_1() -> None:
    async with _running("failing") as process:
        output, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert output.split() == [b"start", b"stop"]
    assert b"no database" in errors


async def _nothing() -> None:
    return None


def _sample(parts: list[Part], calls: list[str] | None = None) -> Service:
    async def readiness() -> list[Part]:
        return parts

    async def stop() -> None:
        if calls is not None:
            calls.append("stop")

    return Service("sample", {}, readiness, _nothing, stop)


async def test_degraded_is_still_ready() -> None:
    parts = [Part("store", True), Part("bus", False, {"lag": 3}, essential=False)]
    async with serving(_sample(parts)) as url, aiohttp.ClientSession() as session:
        async with session.get(url + "/readyz") as response:
            assert response.status == 200
            document = await response.json()
        assert document == {
            "service": "sample",
            "status": "degraded",
            "parts": {
                "store": {"ok": True, "essential": True},
                "bus": {"ok": False, "essential": False, "lag": 3},
            },
        }
        parts[0] = Part("store", False)
        async with session.get(url + "/readyz") as response:
            assert response.status == 503
            assert (await response.json())["status"] == "not_ready"


async def test_a_route_that_fails_is_an_answer_in_the_envelope() -> None:
    service = _sample([])

    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
        raise ZeroDivisionError

    service.app = fails
    async with serving(service) as url, aiohttp.ClientSession() as session:
        async with session.get(url + "/any") as response:
            assert response.status == 500
            document = await response.json()
            contracts.check("error", document)
            assert document["error"]["code"] == "internal_error"
        with pytest.raises(aiohttp.ClientError):
            async with session.get(url + "/begun") as response:
                await response.read()
        async with session.get(url + "/any") as response:
            assert response.status == 500


async def test_a_peer_that_is_none_of_ours_is_not_ready() -> None:
    service = _sample([])
    bodies = [b"[]", b"{}", b'{"parts":[1]}', b'{"parts":{"a":1}}', b"<html>", b""]

    async def strange(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bodies[-1]})

    service.app = strange
    async with serving(service) as url, peer_session() as session:
        while bodies:
            ready, parts = await RemotePeer(session, url + "/strange").ready()
            assert not (ready and parts[0].ok)
            assert parts == [Part("reachable", False)]
            bodies.pop()
        assert await RemotePeer(session, url).ready() == (True, [])


async def test_a_peer_behind_a_wrong_url_is_not_ready_however_well_it_is() -> None:
    service = _sample([])
    async with serving(service) as url, peer_session() as session:
        assert await RemotePeer(session, url, service.name).ready() == (True, [])
        ready, parts = await RemotePeer(session, url, "query").ready()
    assert not ready
    assert parts == [Part("reachable", False, {"expected": "query", "found": service.name})]


async def test_a_service_without_operations_has_no_internal_door() -> None:
    async with (
        serving(_sample([])) as url,
        aiohttp.ClientSession() as session,
        session.post(url + "/internal/operations", data=b"\x90") as response,
    ):
        assert response.status == 404


async def test_a_port_that_is_taken_is_an_error_and_the_service_is_not_started() -> None:
    taken = bind("127.0.0.1", 0)
    taken.listen()
    try:
        with pytest.raises(OSError, match="in use"):
            async with serving(_sample([]), port=taken.getsockname()[1]):
                raise AssertionError("it must not start")
    finally:
        taken.close()


async def test_stopping_twice_and_before_the_start_is_fine() -> None:
    calls: list[str] = []
    service = _sample([], calls)
    await service.stop()
    await service.stop()
    assert calls == ["stop"]
    assert not (await service.ready())[0]


HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
CLOSE_FRAME = b"\x88\x80\x00\x00\x00\x00"


async def _websocket(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket of a client that does only what the test writes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(HANDSHAKE)
    return reader, writer


async def test_a_client_that_leaves_its_websocket_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    left = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        try:
            await send({"type": "websocket.close", "code": 1001})
        except OSError:
            left.set()
            raise

    service = _sample([])
    service.app = app
    async with serving(service) as url, asyncio.timeout(30):
        reader, writer = await _websocket(url)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        writer.transport.abort()
        await left.wait()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_stop_goes_on_over_a_websocket_in_the_middle_of_its_closing() -> None:
    closing, sent = asyncio.Event(), 0

    async def fill(send: Send) -> None:
        nonlocal sent
        while True:
            await send({"type": "websocket.send", "bytes": b"x" * 65536})
            sent += 1

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        filling = asyncio.create_task(fill(send))
        while (await receive())["type"] != "websocket.disconnect":
            pass
        filling.cancel()
        closing.set()

    calls: list[str] = []
    service = _sample([], calls)
    service.app = app
    async with asyncio.timeout(30):
        async with serving(service, drain_s=0.5) as url:
            reader, writer = await _websocket(url)
            # Unread, what the server sends fills its buffers, so that its answer to the close frame stays behind.
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            before = -1
            while sent == 0 or sent > before:
                before = sent
                await asyncio.sleep(0.05)
            writer.write(CLOSE_FRAME)
            await closing.wait()
        writer.transport.abort()
    assert calls == ["stop"]


async def test_a_refused_websocket_is_no_error_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await deny_websocket(scope, send, refusal(ServiceUnavailable()))

    service = _sample([])
    service.app = app
    async with serving(service) as url, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
            await session.ws_connect(url)
        assert raised.value.status == 503
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
