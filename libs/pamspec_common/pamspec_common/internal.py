"""The internal door: how services reach one another over HTTP, many calls in one request.

`POST /internal/operations` takes length-prefixed msgpack `Call`s and answers length-prefixed `(index, Answer)` pairs in
the order in which they finish. The sender keeps few requests in flight, so calls that wait travel together; a request
that one of its calls holds up no longer counts among the few.

A slow call and a service that has stopped are told apart: while calls are under way the door sends a sign of life every
BEAT_S, if the sender asks for it; after SILENCE_S without any the sender gives up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import msgspec

from pamspec_common.asgi import Receive, Scope, Send, read_body, send_answer
from pamspec_common.calls import Answer, Call, Operations, refusal
from pamspec_common.errors import InternalError, InvalidRequest, PamspecError, ServiceUnavailable
from pamspec_common.telemetry import tracing

PATH = "/internal/operations"
MAX_GROUP = 256
MAX_IN_FLIGHT = 4
PATIENCE_S = 0.05
"""After how long a request in flight makes room for another one."""
BEAT_S = 1.0
"""How often a door says that its calls are under way."""
SILENCE_S = 6.0
"""After so long without a byte a service that gives signs of life counts as away."""
_BYTES_PER_S = 2**20
"""What a service takes in at least, when it is sent a large group."""
_BEAT = bytes(4)
_BEATS = "Pamspec-Beats"
_SAY_EVERY_S = 5.0
_MAX_BODY = 512 * 1024 * 1024

_LOST = (aiohttp.ClientError, TimeoutError, OSError, RuntimeError, IndexError, msgspec.DecodeError)
"""No answer: the service is away, the session is closed, or what answers is no internal door."""

_log = logging.getLogger(__name__)
_encoder = msgspec.msgpack.Encoder()
_calls = msgspec.msgpack.Decoder(list[Call])
_reply = msgspec.msgpack.Decoder(tuple[int, Answer])


class InternalDoor:
    """The ASGI side: runs the calls of one request concurrently."""

    def __init__(self, service: str, operations: Operations) -> None:
        self._service, self._operations = service, operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            calls = _calls.decode(await read_body(receive, _MAX_BODY))
        except msgspec.DecodeError:
            await send_answer(send, refusal(InvalidRequest("The internal door takes a msgpack list of calls.")))
            return
        beats = any(name == _BEATS.lower().encode() for name, _ in scope["headers"])
        headers = [(b"content-type", b"application/msgpack")]
        headers += [(_BEATS.lower().encode(), b"1")] if beats else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        tasks = {asyncio.ensure_future(self._one(call)): index for index, call in enumerate(calls)}
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            pending = set(tasks)
            while pending and not gone.done():
                waited: set[asyncio.Future[Any]] = {*pending, gone}
                await asyncio.wait(waited, timeout=BEAT_S if beats else None, return_when=asyncio.FIRST_COMPLETED)
                done = {task for task in pending if task.done()}
                pending -= done
                chunk = b"".join(_frame(tasks[task], task.result()) for task in done)
                if not done and beats and not gone.done():
                    chunk = _BEAT
                if chunk:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()
            for task in tasks:
                task.cancel()

    async def _one(self, call: Call) -> Answer:
        return await answer(self._operations, call, self._service)


async def _disconnected(receive: Receive) -> None:
    """Return when the caller has left; its calls then end too."""
    while (await receive())["type"] != "http.disconnect":
        continue


async def answer(operations: Operations, call: Call, service: str = "pamspec") -> Answer:
    """Run one call; whatever goes wrong becomes an answer, and what was not expected is logged with its traceback."""
    if not tracing.enabled:
        return await _answer(operations, call)
    with tracing.call(service, call.operation, call.traceparent) as span:
        found = await _answer(operations, call)
        if span is not None:
            span.set_attribute("rpc.response.status_code", str(found.status))
            if found.status >= 500:
                tracing.failed(span, str(found.status))
        return found


async def _answer(operations: Operations, call: Call) -> Answer:
    handler = operations.get(call.operation)
    if handler is None:
        return refusal(InvalidRequest("This service does not own that operation."))
    try:
        return await handler(call)
    except PamspecError as error:
        return refusal(error)
    except Exception:
        _log.exception("operation failed", extra={"action": "operation_failed", "operation": call.operation})
        return refusal(InternalError())


def _frame(index: int, reply: Answer) -> bytes:
    body = _encoder.encode((index, reply))
    return len(body).to_bytes(4, "big") + body


class RemoteOperations:
    """The sending side: `call` waits for one answer; ServiceUnavailable when the service does not answer."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str) -> None:
        self._session, self._url = session, base_url.rstrip("/") + PATH
        self._waiting: deque[tuple[Call, asyncio.Future[Answer]]] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._slow: set[asyncio.Task[None]] = set()
        self._said_at, self._unsaid = -_SAY_EVERY_S, 0

    async def call(self, call: Call) -> Answer:
        """Send a call together with all that wait at this moment; one that may wait long goes alone."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if b'"wait_ms"' in call.body:
            await self._send_group([(call, future)])
            return future.result()
        self._waiting.append((call, future))
        self._start()
        return await future

    def _start(self) -> None:
        if self._waiting and len(self._senders) - len(self._slow) < MAX_IN_FLIGHT:
            sender = asyncio.create_task(self._send())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)

    async def _send(self) -> None:
        await asyncio.sleep(0)
        loop, own = asyncio.get_running_loop(), asyncio.current_task()
        assert own is not None
        while self._waiting and len(self._senders) - len(self._slow) <= MAX_IN_FLIGHT:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_GROUP))]
            patience = loop.call_later(PATIENCE_S, self._make_room, own)
            try:
                await self._send_group(group)
            finally:
                patience.cancel()
                self._slow.discard(own)

    def _make_room(self, sender: asyncio.Task[None]) -> None:
        self._slow.add(sender)
        self._start()

    async def _send_group(self, group: Sequence[tuple[Call, asyncio.Future[Answer]]]) -> None:
        lost = ServiceUnavailable("A service behind the gateway did not answer; try again with the same key.")
        data = _encoder.encode([call for call, _ in group])
        try:
            async with (
                asyncio.timeout(SILENCE_S + len(data) / _BYTES_PER_S) as silence,
                self._session.post(self._url, data=data, headers={_BEATS: "1"}) as response,
            ):
                if response.status == 200:
                    async for index, reply in _replies(response, silence):
                        future = group[index][1]
                        if not future.done():
                            future.set_result(reply)
        except _LOST as error:
            self._say(error)
        finally:
            for _, future in group:
                if not future.done():
                    future.set_result(refusal(lost))

    def _say(self, error: Exception) -> None:
        """Log a failure; while a service is away one line in five seconds tells of all."""
        now = asyncio.get_running_loop().time()
        if now - self._said_at < _SAY_EVERY_S:
            self._unsaid += 1
            return
        extra = {"action": "internal_call_failed", "count": self._unsaid + 1}
        _log.warning("internal calls failed: %s", str(error) or "no answer in time", extra=extra)
        self._said_at, self._unsaid = now, 0


async def _replies(response: aiohttp.ClientResponse, silence: asyncio.Timeout) -> AsyncIterator[tuple[int, Answer]]:
    """The answers as they come; each byte puts the end off. Without signs of life the session's patience counts."""
    loop, beats = asyncio.get_running_loop(), _BEATS in response.headers
    silence.reschedule(loop.time() + SILENCE_S if beats else None)
    buffer = bytearray()
    async for chunk in response.content.iter_any():
        if beats:
            silence.reschedule(loop.time() + SILENCE_S)
        buffer += chunk
        while len(buffer) >= 4 and len(buffer) >= (end := 4 + int.from_bytes(buffer[:4], "big")):
            if end > 4:
                yield _reply.decode(bytes(buffer[4:end]))
            del buffer[:end]
