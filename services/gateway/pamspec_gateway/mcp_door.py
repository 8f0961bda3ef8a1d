"""The door for MCP hosts: `/mcp`, in front of the operation door and behind the same guard.

Invariants: a tool's call goes through the operation door as the request that carries it, with that request's own
credential; a stream whose credential is no longer valid ends; what is not MCP passes through untouched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import get_args
from urllib.parse import parse_qs

from pamspec_common import strict_json
from pamspec_common.asgi import ASGIApp, Message, Receive, Scope, Send, send_answer
from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest, PamspecError, ServiceUnavailable, Unauthenticated
from pamspec_gateway.authentication import Admission, Guard
from pamspec_gateway.door import Load, Room, address_of, check_length, headers_of, not_allowed, refused, with_headers
from pamspec_gateway.settings import Settings
from pamspec_gateway.through import Messages, Through
from pamspec_mcp.app import Host, build
from pamspec_mcp.http import Sessions, origin_allowed, resource_metadata
from pamspec_mcp.model.bounds import Bounds
from pamspec_mcp.model.catalogue import Naming, ToolSet

_PATH = "/mcp"
_METADATA = "/.well-known/oauth-protected-resource"
_METHODS = "DELETE, GET, OPTIONS, POST"
_PAGES_SEND = b"Authorization, Content-Type, Last-Event-ID, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id"
_SETS: tuple[ToolSet, ...] = get_args(ToolSet)
_NAMINGS: tuple[Naming, ...] = get_args(Naming)


class McpDoor:
    """Answers `/mcp`, `/mcp/<set of tools>` and the metadata of the resource; everything else goes to `rest`."""

    def __init__(self, settings: Settings, guard: Guard, load: Load, rest: ASGIApp) -> None:
        self._guard, self._load, self._rest = guard, load, rest
        self._recheck_s, self._origins = settings.channel_recheck_s, settings.mcp_origins
        self._public_url, self._graph_scope = settings.public_url, settings.mcp_graph_scope
        self._issuers = [one.issuer for one in settings.token_issuers]
        self.sessions = Sessions(
            build(Bounds(settings.mcp_answer_tokens)),
            idle_s=settings.mcp_session_idle_s,
            most=settings.mcp_max_sessions,
            most_of_one=settings.mcp_sessions_each,
            body_bytes=settings.max_body_bytes,
        )
        self._messages = Messages(max(1, load.limits.waiting // 4))
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._asking = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if scope["type"] != "http" or not path.startswith((_PATH, _METADATA)):
            await self._rest(scope, receive, send)
        elif path == _PATH or path.startswith(_PATH + "/"):
            await self._answer(scope, receive, send)
        elif path == _METADATA or path.startswith(_METADATA + _PATH):
            await self._tell_metadata(scope, send)
        else:
            await self._rest(scope, receive, send)

    async def _tell_metadata(self, scope: Scope, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await send_answer(send, not_allowed(scope["method"], "GET, HEAD, OPTIONS"))
            return
        told = resource_metadata(self._address(scope) + _PATH, self._issuers)
        await send_answer(send, Answer(200, strict_json.dumps(told), {"Cache-Control": "max-age=300"}))

    def _address(self, scope: Scope) -> str:
        if self._public_url is not None:
            return self._public_url.rstrip("/")
        host = next((value for name, value in scope["headers"] if name == b"host"), b"localhost")
        return f"{scope.get('scheme', 'http')}://{host.decode('latin-1')}"

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = next((value for name, value in scope["headers"] if name == b"origin"), None)
        sending = _Sending(send, origin if origin_allowed(origin, self._origins) else None)
        try:
            if scope["method"] not in ("GET", "POST", "DELETE"):
                await send_answer(sending.send, not_allowed(scope["method"], _METHODS))
                return
            with self._load.admitted(waits=True) as room:
                if self._stopping.is_set():
                    raise ServiceUnavailable("The gateway stops; connect again shortly.")
                headers, address = headers_of(scope), address_of(scope)
                if not origin_allowed(headers.get(b"origin"), self._origins):
                    raise InvalidRequest("Pages of this origin may not use this door.", status=403)
                admission = await self._guard.admit(headers, address)
                holder = admission.holder
                host = self._host(scope, partial(self._load.limiter.charge, holder))
                counted = _counting(receive, room)
                principal = _principal(admission)
                if scope["method"] == "GET":
                    room.claim(holder)
                    self._load.limiter.charge(holder)
                    await self._run(scope, counted, sending, host, principal)
                    return
                with self._messages.room(holder):
                    check_length(headers, min(self._load.limits.body_bytes, holder.tenant.body_bytes))
                    await self._run(scope, counted, sending, host, principal)
        except PamspecError as error:
            self._load.answered["mcp", error.http_status] += 1
            answer = refused(error)
            if isinstance(error, Unauthenticated):
                answer = with_headers(answer, self._challenge(scope))
            await sending.refuse(answer)

    def _host(self, scope: Scope, charge: Callable[[], None]) -> Host:
        """Who speaks, and what the address of the request asks to see."""
        name = scope["path"].removeprefix(_PATH).strip("/") or "operations"
        tools = next((one for one in _SETS if one == name), None)
        if tools is None:
            raise InvalidRequest(f"There is no such set of tools; use one of: {', '.join(_SETS)}.", status=404)
        asked = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        naming = next((one for one in _NAMINGS if one == asked.get("names", ["dots"])[-1]), None)
        if naming is None:
            raise InvalidRequest(f"names takes one of: {', '.join(_NAMINGS)}.", details={"field": "names"})
        graph_scope = asked.get("scope", [self._graph_scope])[-1]
        return Host(
            Through(self._rest, scope["headers"], scope.get("client")),
            tools,
            naming,
            charge,
            graph_scope,
            self._stopping,
        )

    def _challenge(self, scope: Scope) -> dict[str, str]:
        return {
            "WWW-Authenticate": f'Bearer realm="pamspec", resource_metadata="{self._address(scope)}{_METADATA}{_PATH}"'
        }

    async def _run(self, scope: Scope, receive: Receive, sending: _Sending, host: Host, principal: str) -> None:
        """Answer a request for as long as its credential is valid and the gateway goes on."""
        headers, address = headers_of(scope), address_of(scope)
        asks = scope["method"] == "POST"
        if asks:
            self._asking += 1
            self._idle.clear()
        running = asyncio.ensure_future(self.sessions.serve(scope, receive, sending.send, host, principal))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            while not running.done() and not stopping.done():
                moved = self._guard.moved
                await asyncio.wait(
                    (running, stopping, moved), timeout=self._recheck_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not running.done() and not await self._guard.still_admits(headers, address):
                    raise Unauthenticated
            if not running.done() and asks:
                # What was asked is answered yet; the drain bounds how long that takes.
                await running
            if running.done():
                running.result()
        finally:
            stopping.cancel()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await sending.finish()
            self._asking -= asks
            if not self._asking:
                self._idle.set()

    async def drain(self, timeout_s: float) -> None:
        """Take no more requests, answer those under way, and end streams and sessions with what they watch."""
        self._stopping.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        await self.sessions.stop()


class _Sending:
    """The answer on its way, which may be refused as long as it has not begun.

    A page of an allowed origin is told that it may read it.
    """

    def __init__(self, send: Send, origin: bytes | None) -> None:
        self._send, self._origin = send, origin
        self._begun = self._ended = False

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            self._begun = True
            if self._origin is not None:
                message = {**message, "headers": [*message["headers"], *_for_pages(self._origin)]}
        elif not message.get("more_body"):
            self._ended = True
        await self._send(message)

    async def refuse(self, answer: Answer) -> None:
        """Refuse; an answer that has begun ends where it is."""
        if not self._begun:
            await send_answer(self.send, answer)

    async def finish(self) -> None:
        """End an answer that has begun."""
        if self._begun and not self._ended:
            with suppress(OSError):
                await self.send({"type": "http.response.body", "body": b""})


def _for_pages(origin: bytes) -> list[tuple[bytes, bytes]]:
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", b"DELETE, GET, POST"),
        (b"access-control-allow-headers", _PAGES_SEND),
        (b"access-control-expose-headers", b"Mcp-Session-Id, WWW-Authenticate"),
        (b"vary", b"Origin"),
    ]


def _counting(receive: Receive, room: Room) -> Receive:
    """The same, with the bytes of the body counted among those that are in memory."""

    async def counted() -> Message:
        message = await receive()
        if message["type"] == "http.request":
            room.take(len(message.get("body", b"")))
        return message

    return counted


def _principal(admission: Admission) -> str:
    principal = admission.principal
    return f"{principal.tenant_id}\n{principal.actor_id}"
