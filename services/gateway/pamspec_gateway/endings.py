"""How a channel ends when the gateway stops: after a whole frame, with a frame that names the last sequence.

Invariant: what the client has received is a sequence of whole frames, and `last_sequence` is that of the last of them,
so that a client that goes on after it loses nothing and gets nothing twice.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

import orjson

from pamspec_common.asgi import Message, Send

_RESTARTING, _POLICY = 1012, 1008
_SSE_ID = re.compile(rb"^id: ?(\d+)-(\d+)$", re.MULTILINE)


class Ending(Protocol):
    """A send function that remembers where the channel is, and can end it."""

    async def send(self, message: Message) -> None:
        """Pass a message on."""

    async def end(self) -> None:
        """End the channel, if it is open, with an `ended` frame."""

    async def cut(self) -> None:
        """End the channel, if it is open, without a place to go on."""


class SseEnding:
    """Server-sent events: a frame ends with an empty line, its id is `<epoch>-<sequence>`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._open = self._whole = False
        self._held = b""
        self._last = b""

    async def send(self, message: Message) -> None:
        """Pass whole frames on; the beginning of a frame waits for its end."""
        if message["type"] == "http.response.start":
            await self._send(message)
            headers: dict[bytes, bytes] = dict(message.get("headers", ()))
            self._open = headers.get(b"content-type", b"").startswith(b"text/event-stream")
            return
        if not self._open:
            await self._send(message)
            return
        body = self._held + message.get("body", b"")
        end = body.rfind(b"\n\n") + 2 if b"\n\n" in body else 0
        if not message.get("more_body"):
            self._open = False
            await self._send({**message, "body": body[:end]})
            return
        if not end:
            self._held = body
            return
        frames, self._held = body[:end], body[end:]
        await self._send({"type": "http.response.body", "body": frames, "more_body": True})
        if b"id:" in frames:
            self._last = frames

    async def end(self) -> None:
        """The last frame, without which the client could not tell a stop from a broken connection."""
        ids = _SSE_ID.findall(self._last)
        frame = b""
        if ids:
            epoch, sequence = (int(part) for part in ids[-1])
            frame = b"event: ended\nid: %d-%d\ndata: %b\n\n" % (epoch, sequence, _ended(epoch, sequence))
        await self._finish(frame)

    async def cut(self) -> None:
        """The end of the answer."""
        await self._finish(b"")

    async def _finish(self, body: bytes) -> None:
        if self._open:
            self._open = False
            await self._send({"type": "http.response.body", "body": body})


class WebSocketEnding:
    """WebSocket: a frame is a text message."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._open = False
        self._last: str | None = None

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        await self._send(message)
        if message["type"] == "websocket.send":
            self._last = message.get("text") or self._last
        else:
            self._open = message["type"] == "websocket.accept"

    async def end(self) -> None:
        """The last frame, then the close code for a server that goes away."""
        position = _position(orjson.loads(self._last)) if self._last else None
        if self._open and position is not None:
            await self._send({"type": "websocket.send", "text": _ended(*position).decode()})
        await self._close(_RESTARTING)

    async def cut(self) -> None:
        """The close code for a caller that may no longer listen."""
        await self._close(_POLICY)

    async def _close(self, code: int) -> None:
        if self._open:
            self._open = False
            await self._send({"type": "websocket.close", "code": code})


def _position(frame: dict[str, Any]) -> tuple[int, int] | None:
    sequence = frame["event"]["sequence"] if "event" in frame else frame.get("progress")
    return (frame["ledger_epoch"], sequence) if isinstance(sequence, int) else None


def _ended(epoch: int, sequence: int) -> bytes:
    return b'{"ended":{"last_sequence":%d,"reason":"shutdown"},"ledger_epoch":%d}' % (sequence, epoch)
