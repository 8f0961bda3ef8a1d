"""WebSocket: each frame is one text message. What the client sends is read and ignored; it acknowledges over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from pamspec_common.asgi import ClientGone, Send
from pamspec_subscription.frames import Frame
from pamspec_subscription.model import FLUSH_FRAMES

CLOSE_CODES = {"shutdown": 1012, "replaced": 4409, "too_slow": 1013, "idle": 1013, "outdated": 4410}
"""By the reason of the `ended` frame; a closed subscription ends with 1000."""


class WebSocketSink:
    """Frames as text messages over ASGI."""

    kind = "websocket"
    silent_ends: frozenset[str] = frozenset()
    at_once = FLUSH_FRAMES
    bounds_itself = False

    def __init__(self, send: Send) -> None:
        self._send = send
        self._gone = False

    def gone(self) -> None:
        """The client has left."""
        self._gone = True

    async def start(self) -> None:
        """Accept the connection."""
        await self._send({"type": "websocket.accept"})

    async def send(self, frames: Sequence[Frame], *, keepalive: bool = False) -> None:
        """A message for each frame; waits while the client's side is full."""
        for frame in frames:
            if self._gone:
                raise ClientGone
            await self._send({"type": "websocket.send", "text": frame.data.decode()})

    async def finish(self, reason: str | None) -> None:
        """Close the connection with the code of the reason."""
        if not self._gone:
            await self._send({"type": "websocket.close", "code": CLOSE_CODES.get(reason or "", 1000)})
