"""Channels: server-sent events and WebSockets, passed through from the service that delivers them.

Invariants: the service learns the caller only from the signed principal that is put on here, a header of that name from
outside is dropped; a caller whose key is no longer valid loses its channel; when the gateway stops, whole frames have
been sent and the last tells where to go on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping
from contextlib import suppress

from pamspec_common.asgi import ASGIApp, Receive, Scope, Send, deny_websocket, send_answer
from pamspec_common.errors import PamspecError, ServiceUnavailable
from pamspec_common.peers import Peer
from pamspec_common.principal import PRINCIPAL_HEADER
from pamspec_gateway.authentication import Guard
from pamspec_gateway.door import Load, address_of, headers_of, not_allowed, refused
from pamspec_gateway.endings import Ending, SseEnding, WebSocketEnding

_KEPT = frozenset((b"last-event-id", b"accept", b"traceparent", b"connection", b"upgrade"))
_END_TIMEOUT_S = 2.0


class StreamDoor:
    """Answers the channels, whose paths are templates; everything else goes to `rest`."""

    def __init__(
        self, channels: Mapping[str, tuple[str, str, Peer]], guard: Guard, load: Load, rest: ASGIApp, recheck_s: float
    ) -> None:
        self._channels = [(kind, _pattern(path), name, peer) for kind, (path, name, peer) in channels.items()]
        self._guard, self._load, self._rest, self._recheck_s = guard, load, rest, recheck_s
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wanted = "websocket" if scope["type"] == "websocket" else "sse"
        for kind, pattern, service, peer in self._channels:
            if pattern.fullmatch(scope["path"]):
                if kind == wanted:
                    await self._stream(service, peer, scope, receive, send)
                    return
                if scope["type"] == "http":
                    break
        await self._rest(scope, receive, send)

    async def _stream(self, service: str, peer: Peer, scope: Scope, receive: Receive, send: Send) -> None:
        is_http = scope["type"] == "http"
        if is_http and scope["method"] != "GET":
            await send_answer(send, not_allowed(scope["method"], "GET, OPTIONS"))
            return
        try:
            with self._load.admitted(waits=True) as room:
                if self._stopping.is_set() or peer.app is None:
                    raise ServiceUnavailable("Channels are not open now; connect again shortly.")
                headers, address = headers_of(scope), address_of(scope)
                admission = await self._guard.admit(headers, address)
                room.claim(admission.holder)
                self._load.limiter.charge(admission.holder)
                ending: Ending = SseEnding(send) if is_http else WebSocketEnding(send)
                sending = self._load.limiter.absences.holding(ending.send)
                stream = peer.app(_with_principal(scope, admission.tokens[service]), receive, sending)
                await self._run(stream, ending, headers, address)
        except PamspecError as error:
            answer = refused(error)
            self._load.answered["stream", answer.status] += 1
            if is_http:
                await send_answer(send, answer)
            else:
                await receive()
                await deny_websocket(scope, send, answer)

    async def _run(
        self, running: Awaitable[None], ending: Ending, headers: Mapping[bytes, bytes], address: str
    ) -> None:
        self._open += 1
        self._idle.clear()
        stream = asyncio.ensure_future(running)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            while not stream.done() and not stopping.done():
                moved = self._guard.moved
                await asyncio.wait(
                    (stream, stopping, moved), timeout=self._recheck_s, return_when=asyncio.FIRST_COMPLETED
                )
                if stream.done() or stopping.done():
                    break
                if not await self._guard.still_admits(headers, address):
                    break
            if stream.done():
                stream.result()
                return
            stream.cancel()
            await asyncio.gather(stream, return_exceptions=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_TIMEOUT_S):
                    await (ending.end() if stopping.done() else ending.cut())
        finally:
            stopping.cancel()
            stream.cancel()
            self._open -= 1
            if not self._open:
                self._idle.set()

    async def drain(self, timeout_s: float) -> None:
        """Give every channel its end; refuse new ones."""
        self._stopping.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{[a-z_]+\\\}", "[^/]+", re.escape(path)))


def _with_principal(scope: Scope, token: str) -> Scope:
    headers = [(name, value) for name, value in scope["headers"] if name in _KEPT or name.startswith(b"sec-websocket-")]
    return {**scope, "headers": [*headers, (PRINCIPAL_HEADER, token.encode())]}
