"""Requests and WebSockets passed through to a service in another process, as they come.

Invariants: what the client cannot take is not read from the service (backpressure), a client that leaves closes the
connection behind it, and a service that ends its stream ends the client's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import aiohttp

from pamspec_common.asgi import Receive, Scope, Send, deny_websocket, send_answer
from pamspec_common.calls import refusal
from pamspec_common.errors import (
    TREE,
    InternalError,
    PamspecError,
    ServiceUnavailable,
    Unauthenticated,
)

_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"host")
)
_HANDSHAKE = b"sec-websocket-"
_STREAMING = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=None)
_OPENED_WITHIN_S = 10.0
"""How long a service may take to open a stream, where no body goes before."""
_MAX_FRAME = 4 * 1024 * 1024
_GOING_AWAY = 1001

_log = logging.getLogger(__name__)


class StreamProxy:
    """An ASGI application that answers what the service behind `base_url` answers."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str) -> None:
        self._session, self._base_url = session, base_url.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = _body(receive) if scope["method"] not in ("GET", "HEAD") else None
        try:
            async with (
                asyncio.timeout(None if body else _OPENED_WITHIN_S) as opening,
                self._session.request(
                    scope["method"],
                    self._url(scope),
                    headers=_request_headers(scope),
                    data=body,
                    timeout=_STREAMING,
                    allow_redirects=False,
                ) as response,
            ):
                opening.reschedule(None)
                await _until_first(_pass_response(response, send), _client_gone(receive))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.warning("stream not opened: %s", error, extra={"action": "proxy_failed"})
            await send_answer(send, refusal(ServiceUnavailable("The service behind this stream does not answer.")))

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with asyncio.timeout(_OPENED_WITHIN_S):
                upstream = await self._session.ws_connect(
                    self._url(scope),
                    headers=_request_headers(scope),
                    protocols=tuple(scope.get("subprotocols", ())),
                    max_msg_size=_MAX_FRAME,
                    compress=0,
                )
        except aiohttp.WSServerHandshakeError as error:
            await deny_websocket(scope, send, refusal(_error_of(error.status)))
            return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.warning("stream not opened: %s", error, extra={"action": "proxy_failed"})
            await deny_websocket(
                scope, send, refusal(ServiceUnavailable("The service behind this stream does not answer."))
            )
            return
        async with upstream:
            await send({"type": "websocket.accept", "subprotocol": upstream.protocol})
            await _until_first(_frames_down(upstream, send), _frames_up(upstream, receive))

    def _url(self, scope: Scope) -> str:
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope.get("query_string", b"")
        return self._base_url + raw_path.decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")


async def _until_first(*running: Coroutine[Any, Any, None]) -> None:
    """Run both until one ends, then end the other."""
    tasks = [asyncio.ensure_future(one) for one in running]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


async def _client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


async def _pass_response(response: aiohttp.ClientResponse, send: Send) -> None:
    headers = [(name.lower(), value) for name, value in response.raw_headers if name.lower() not in _HOP_BY_HOP]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    try:
        async for chunk in response.content.iter_any():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except (aiohttp.ClientError, OSError) as error:
        _log.info("stream cut by the service: %s", error, extra={"action": "proxy_cut"})
        if response.headers.get("content-length"):
            raise ConnectionResetError("the answer was cut short") from error
    await send({"type": "http.response.body", "body": b""})


async def _frames_down(upstream: aiohttp.ClientWebSocketResponse, send: Send) -> None:
    async for message in upstream:
        if message.type is aiohttp.WSMsgType.TEXT:
            await send({"type": "websocket.send", "text": message.data})
        elif message.type is aiohttp.WSMsgType.BINARY:
            await send({"type": "websocket.send", "bytes": message.data})
    code = upstream.close_code
    await send({"type": "websocket.close", "code": code if code and code not in (1005, 1006) else _GOING_AWAY})


async def _frames_up(upstream: aiohttp.ClientWebSocketResponse, receive: Receive) -> None:
    while (message := await receive())["type"] == "websocket.receive":
        if (text := message.get("text")) is not None:
            await upstream.send_str(text)
        else:
            await upstream.send_bytes(message.get("bytes") or b"")
    await upstream.close()


def _request_headers(scope: Scope) -> list[tuple[str, str]]:
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name not in _HOP_BY_HOP and not name.startswith(_HANDSHAKE)
    ]


def _error_of(status: int) -> PamspecError:
    if status == Unauthenticated.status:
        return Unauthenticated()
    return next((kind() for kind in TREE if kind.status == status), InternalError())
