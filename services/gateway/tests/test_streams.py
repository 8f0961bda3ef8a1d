"""Channels through the gateway: whole frames, the right caller, backpressure, and an end that says where to go on."""

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest

from pamspec_common import contracts
from pamspec_common.asgi import Message, Receive, Scope, Send
from pamspec_common.principal import TokenVerifier
from services.gateway.tests.behind import TOKEN_KEYS, Door, refusal_of

SSE = "/v1/subscriptions/sub:1/stream"
WS = "/v1/subscriptions/sub:1/ws"


def sse_frame(sequence: int, filler: int = 0) -> bytes:
    """An event frame as it goes over the wire."""
    data = orjson.dumps({"event": {"sequence": sequence, "filler": "x" * filler}, "ledger_epoch": 3})
    return b"id: 3-%d\nevent: event\ndata: %b\n\n" % (sequence, data)


class Streamed:
    """The streams of a subscription service, moved by the test."""

    def __init__(self) -> None:
        self.scope: Scope = {}
        self.opened, self.gone = asyncio.Event(), asyncio.Event()
        self.out: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self.received: asyncio.Queue[Message] = asyncio.Queue()
        self.sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        assert (
            TokenVerifier(TOKEN_KEYS, "subscription").verify(self.header(b"x-pamspec-principal")).actor_id == "agent:a"
        )
        listener = asyncio.create_task(self._listen(receive))
        sender = asyncio.create_task(self._websocket(send) if scope["type"] == "websocket" else self._sse(send))
        try:
            await asyncio.wait((listener, sender), return_when=asyncio.FIRST_COMPLETED)
        finally:
            listener.cancel()
            sender.cancel()
            self.gone.set()

    async def _listen(self, receive: Receive) -> None:
        while True:
            message = await receive()
            if message["type"].endswith(".disconnect"):
                self.gone.set()
                return
            await self.received.put(message)

    async def _sse(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self.opened.set()
        while (chunk := await self.out.get()) is not None:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            self.sent += 1
        await send({"type": "http.response.body", "body": b""})

    async def _websocket(self, send: Send) -> None:
        await send({"type": "websocket.accept"})
        self.opened.set()
        while (text := await self.out.get()) is not None:
            await send({"type": "websocket.send", "text": text})
        await send({"type": "websocket.close", "code": 1000})

    def header(self, name: bytes) -> str | None:
        """The only header of that name."""
        found = [value for key, value in self.scope["headers"] if key == name]
        assert len(found) < 2
        return found[0].decode() if found else None


@pytest.fixture
def streamed(door: Door) -> Streamed:
    """What streams behind the door."""
    door.behind.stream = stream = Streamed()
    return stream


def _headers(door: Door, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {door.key}", **{name.replace("_", "-"): value for name, value in more.items()}}


async def _within(awaited: Any, seconds: float = 5) -> Any:
    return await asyncio.wait_for(awaited, seconds)


async def test_sse_passes_frames_and_the_place_to_go_on(door: Door, streamed: Streamed) -> None:
    headers = _headers(door, Last_Event_ID="3-5", X_Pamspec_Principal="k1.forged.forged", Cookie="a=b")
    async with door.session.get(door.url + SSE + "?x=1", headers=headers) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/event-stream"
        for sequence in (6, 7):
            streamed.out.put_nowait(sse_frame(sequence))
            frame = sse_frame(sequence)
            assert await _within(response.content.readexactly(len(frame))) == frame
        assert streamed.header(b"last-event-id") == "3-5"
        assert streamed.header(b"cookie") is None
        assert streamed.header(b"authorization") is None
        assert streamed.scope["query_string"] == b"x=1"
        streamed.out.put_nowait(None)
        assert await _within(response.content.read()) == b""


async def test_a_stream_that_breaks_off_leaves_no_half_frame(door: Door, streamed: Streamed) -> None:
    async with door.session.get(door.url + SSE, headers=_headers(door)) as response:
        streamed.out.put_nowait(sse_frame(1) + sse_frame(2)[:-5])
        streamed.out.put_nowait(None)
        assert await _within(response.content.read()) == sse_frame(1)


async def test_a_client_that_leaves_closes_the_stream_behind(door: Door, streamed: Streamed) -> None:
    async with door.session.get(door.url + SSE, headers=_headers(door)):
        await _within(streamed.opened.wait())
        assert not streamed.gone.is_set()
    await _within(streamed.gone.wait())


async def test_a_slow_client_holds_the_stream_behind_back(door: Door, streamed: Streamed) -> None:
    frame_bytes = 100_000
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port, limit=2**16)
    writer.write(f"GET {SSE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {door.key}\r\n\r\n".encode())
    await _within(streamed.opened.wait())
    for sequence in range(600):
        streamed.out.put_nowait(sse_frame(sequence + 1, frame_bytes))
    held = -1
    while held != streamed.sent or not held:
        held = streamed.sent
        await asyncio.sleep(0.2)
    assert streamed.sent < 400, "the service was not held back"
    received = b""
    while b"id: 3-600\n" not in received[-2 * frame_bytes :]:
        received = received[-2 * frame_bytes :] + await _within(reader.read(2**18))
    writer.close()
    await _within(streamed.gone.wait())


async def test_refusals_of_the_service_come_through(door: Door) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": b'{"error":{}}'})

    door.behind.stream = refuse
    async with door.session.get(door.url + SSE, headers=_headers(door)) as response:
        assert (response.status, await response.read()) == (404, b'{"error":{}}')


async def test_channels_want_a_key_and_the_right_method(door: Door) -> None:
    async with door.session.get(door.url + SSE) as response:
        assert response.status == 401
        assert refusal_of(await response.read())["code"] == "access_denied"
    for method, expected in (("POST", 405), ("HEAD", 405), ("OPTIONS", 204)):
        async with door.session.request(method, door.url + SSE, headers=_headers(door)) as response:
            assert (response.status, response.headers["Allow"]) == (expected, "GET, OPTIONS")
    with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
        await door.session.ws_connect(door.url + WS)
    assert raised.value.status == 401
    with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
        await door.session.ws_connect(door.url + "/v1/nothing", headers=_headers(door))
    assert raised.value.status == 403


async def test_a_websocket_passes_both_ways(door: Door, streamed: Streamed) -> None:
    headers = _headers(door, X_Pamspec_Principal="k1.forged.forged")
    async with door.session.ws_connect(door.url + WS, headers=headers) as client:
        await client.send_str('{"ack": 5}')
        assert (await _within(streamed.received.get()))["type"] == "websocket.connect"
        assert (await _within(streamed.received.get()))["text"] == '{"ack": 5}'
        streamed.out.put_nowait('{"progress": 1, "ledger_epoch": 3}')
        assert await _within(client.receive_str()) == '{"progress": 1, "ledger_epoch": 3}'
        streamed.out.put_nowait(None)
        assert (await _within(client.receive())).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
        assert client.close_code == 1000


async def test_a_websocket_client_that_leaves_is_seen(door: Door, streamed: Streamed) -> None:
    client = await door.session.ws_connect(door.url + WS, headers=_headers(door))
    await _within(streamed.opened.wait())
    await client.close()
    await _within(streamed.gone.wait())


async def test_a_stop_ends_sse_after_a_whole_frame(own_door: Door) -> None:
    own_door.behind.stream = streamed = Streamed()
    async with own_door.session.get(own_door.url + SSE, headers=_headers(own_door)) as response:
        whole, begun = sse_frame(11), sse_frame(12)[:20]
        streamed.out.put_nowait(whole + begun)
        assert await _within(response.content.readexactly(len(whole))) == whole
        await _within(own_door.service.drain())
        rest = await _within(response.content.read())
    kind, position, data = rest.decode().strip().splitlines()
    assert (kind, position) == ("event: ended", "id: 3-11")
    frame = orjson.loads(data.removeprefix("data: "))
    contracts.check("frame", frame)
    assert frame == {"ended": {"reason": "shutdown", "last_sequence": 11}, "ledger_epoch": 3}
    await _within(streamed.gone.wait())


async def test_a_stop_ends_a_websocket_with_its_position(own_door: Door) -> None:
    own_door.behind.stream = streamed = Streamed()
    async with own_door.session.ws_connect(own_door.url + WS, headers=_headers(own_door)) as client:
        streamed.out.put_nowait('{"event": {"sequence": 9}, "prev_sequence": 8, "ledger_epoch": 3}')
        await _within(client.receive_str())
        await _within(own_door.service.drain())
        assert orjson.loads(await _within(client.receive_str())) == {
            "ended": {"reason": "shutdown", "last_sequence": 9},
            "ledger_epoch": 3,
        }
        await _within(client.receive())
        assert client.close_code == 1012
    await _within(streamed.gone.wait())


async def test_a_stopping_gateway_opens_no_channel(own_door: Door) -> None:
    await own_door.service.drain()
    async with own_door.session.get(own_door.url + SSE, headers=_headers(own_door)) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
    status, _, _ = await own_door.get("/readyz")
    assert status == 503
    assert (await own_door.post("/v1/create"))[0] == 200


@pytest.mark.parametrize("path", ["/v1/poll", "/v1/subscriptions/sub:1/events"])
async def test_a_stop_answers_whoever_waits(own_door: Door, path: str) -> None:
    """However long the service behind would take: the drain time ends before, and then nobody gets an answer."""
    own_door.behind.gate = asyncio.Event()
    document = {"subscription_id": "sub:1", "wait_ms": 20_000}
    asking = asyncio.ensure_future(own_door.post(path, document) if path == "/v1/poll" else own_door.get(path))
    await _within(own_door.behind.started.wait())
    await _within(own_door.service.drain())
    status, body, _ = await _within(asking)
    assert (status, refusal_of(body)["code"]) == (503, "service_unavailable")
    own_door.behind.gate = None
    assert (await own_door.post("/v1/read", {"object_id": "obj:1"}))[0] == 200


async def test_a_channel_ends_with_its_key(own_door: Door) -> None:
    own_door.behind.stream = streamed = Streamed()
    async with own_door.session.get(own_door.url + SSE, headers=_headers(own_door)) as response:
        streamed.out.put_nowait(sse_frame(1))
        await _within(response.content.readexactly(len(sse_frame(1))))
        await own_door.revoke()
        assert await _within(response.content.read()) == b""
    await _within(streamed.gone.wait())


async def test_a_websocket_ends_with_its_key(own_door: Door) -> None:
    own_door.behind.stream = streamed = Streamed()
    async with own_door.session.ws_connect(own_door.url + WS, headers=_headers(own_door)) as client:
        await _within(streamed.opened.wait())
        await own_door.revoke()
        await _within(client.receive())
        assert client.close_code == 1008
    await _within(streamed.gone.wait())
