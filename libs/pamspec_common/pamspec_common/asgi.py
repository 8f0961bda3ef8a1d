"""The few ASGI moves that our own small applications make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import Any

from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_JSON = (b"content-type", b"application/json")
_BODILESS = (204, 304)


class ClientGone(Exception):
    """The client closed the connection before its request was whole."""


def _untold(length: int) -> None:
    """Nobody counts the bytes."""


async def read_body(receive: Receive, limit: int, arrived: Callable[[int], None] = _untold) -> bytes:
    """The request body; InvalidRequest (413) beyond `limit` bytes, ClientGone when the client leaves.

    `arrived` is told how many bytes have come, each time before they are kept, and may refuse them.
    """
    message = await receive()
    if not message.get("more_body") and message["type"] == "http.request":
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        arrived(len(body))
        return body
    parts = bytearray()
    while True:
        if message["type"] != "http.request":
            raise ClientGone
        part = message.get("body", b"")
        if len(parts) + len(part) > limit:
            raise _too_large(limit)
        arrived(len(part))
        parts += part
        if not message.get("more_body"):
            return bytes(parts)
        message = await receive()


def _too_large(limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"The request body is larger than {limit} bytes; send less at a time.", details={"limit": limit}, status=413
    )


def _headers(answer: Answer) -> list[tuple[bytes, bytes]]:
    headers = [] if answer.status in _BODILESS else [_JSON, (b"content-length", b"%d" % len(answer.body))]
    if answer.headers:
        headers += [(_wire_name(name), value.encode()) for name, value in answer.headers.items()]
    return headers


@lru_cache(maxsize=256)
def _wire_name(name: str) -> bytes:
    return name.lower().encode()


async def send_answer(send: Send, answer: Answer) -> None:
    """Send a JSON answer with its headers."""
    await send({"type": "http.response.start", "status": answer.status, "headers": _headers(answer)})
    await send({"type": "http.response.body", "body": answer.body})


async def deny_websocket(scope: Scope, send: Send, answer: Answer) -> None:
    """Refuse a WebSocket before it opens: with the answer where the server can send one, else by closing it."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    await send({"type": "websocket.http.response.start", "status": answer.status, "headers": _headers(answer)})
    await send({"type": "websocket.http.response.body", "body": answer.body})
