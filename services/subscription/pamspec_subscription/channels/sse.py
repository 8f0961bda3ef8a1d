"""Server-sent events: the id of each is `<epoch>-<sequence>`, so that Last-Event-ID tells a position.

Memory events carry no event name and reach `onmessage`; the channel's own frames are named progress, ended and closed.
Each keepalive is a comment and a progress frame, whose id moves on past what the filter excluded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pamspec_common.asgi import ClientGone, Send
from pamspec_common.errors import InvalidRequest
from pamspec_subscription.frames import Frame
from pamspec_subscription.model import FLUSH_FRAMES

_ID = re.compile(r"(\d{1,10})-(\d{1,19})\Z")
_NAMES = {b'{"ledger': b"progress", b'{"ended"': b"ended", b'{"closed': b"closed"}
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_KEEPALIVE = b": keepalive\n\n"


def position_of(last_event_id: str) -> tuple[int, int]:
    """(epoch, sequence) of a Last-Event-ID; InvalidRequest when it is not one of ours."""
    found = _ID.match(last_event_id.strip())
    if found is None:
        raise InvalidRequest("Last-Event-ID is <epoch>-<sequence>, as the stream sent it; leave it out to start over.")
    return int(found[1]), int(found[2])


class SseSink:
    """Frames as server-sent events over ASGI."""

    kind = "sse"
    silent_ends: frozenset[str] = frozenset()
    at_once = FLUSH_FRAMES
    bounds_itself = False

    def __init__(self, send: Send, ledger_epoch: int) -> None:
        self._send, self._epoch = send, ledger_epoch
        self._gone = False

    def gone(self) -> None:
        """The client has left."""
        self._gone = True

    async def start(self) -> None:
        """Send the head of the answer."""
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})

    async def send(self, frames: Sequence[Frame], *, keepalive: bool = False) -> None:
        """One chunk for all frames; waits while the client's side is full."""
        if self._gone:
            raise ClientGone
        parts = [_KEEPALIVE] if keepalive else []
        for frame in frames:
            name = _NAMES.get(frame.data[:8])
            if name is not None:
                parts.append(b"event: %b\n" % name)
            parts.append(b"id: %d-%d\ndata: %b\n\n" % (self._epoch, frame.sequence, frame.data))
        await self._send({"type": "http.response.body", "body": b"".join(parts), "more_body": True})

    async def finish(self) -> None:
        """End the answer."""
        if not self._gone:
            await self._send({"type": "http.response.body", "body": b""})
