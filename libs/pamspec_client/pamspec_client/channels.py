"""Poll, server-sent events and WebSocket as sources of frames.

Invariant: each opens after the position it is given, so a connection that dies before its first frame costs nothing:
the next one opens after the same position.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from pamspec_client.errors import ProtocolError, SubscriptionClosed
from pamspec_client.frames import Frame, Lost, Position, decode
from pamspec_client.models import NOTHING, PollPage
from pamspec_client.sse import SseParser
from pamspec_client.transport import failure

if TYPE_CHECKING:
    from pamspec_client.client import AsyncClient

LONG_POLL_MS = 20_000
SILENCE_S = 90.0
"""A push channel that says nothing for so long, not even progress, is taken for dead."""


class PollSource:
    """Long polls; each acknowledges the page before it."""

    def __init__(self, client: AsyncClient, subscription_id: str, max_events: int) -> None:
        self._client, self._subscription_id, self._max = client, subscription_id, max_events

    async def frames(self, after: Position) -> AsyncGenerator[Frame, None]:
        """Frames of page after page, without end."""
        at = after
        while True:
            page = await self.page(at, LONG_POLL_MS)
            for frame in page_frames(page, at):
                yield frame
            at = Position(page.ledger_epoch, page.next_after_sequence)

    async def page(self, after: Position, wait_ms: int) -> PollPage:
        """One page after a position; SubscriptionClosed when nothing will ever follow."""
        page = await self._client.poll(
            subscription_id=self._subscription_id,
            after_sequence=after.sequence,
            ledger_epoch=after.ledger_epoch,
            max=self._max,
            wait_ms=wait_ms,
        )
        if page.closed is not None and not page.events_raw:
            raise SubscriptionClosed(self._subscription_id, page.closed.reason, page.closed.last_delivered_sequence)
        return page


def page_frames(page: PollPage, after: Position) -> list[Frame]:
    """The frames that a page stands for: its events, then progress up to its end."""
    previous, frames = after.sequence, []
    for event in page.events:
        raw = (page.envelopes or {}).get(event.version_id or "", NOTHING)
        frames.append(
            Frame(
                ledger_epoch=page.ledger_epoch,
                event=msgspec.Raw(event.raw),
                envelope=raw,
                prev_sequence=previous,
            )
        )
        previous = event.sequence
    return [*frames, Frame(ledger_epoch=page.ledger_epoch, progress=page.next_after_sequence)]


class SseSource:
    """Server-sent events; Last-Event-ID says where to go on, and acknowledges up to there."""

    def __init__(self, client: AsyncClient, subscription_id: str) -> None:
        self._transport = client.transport
        self._url = f"{client.base_url}/v1/subscriptions/{subscription_id}/stream"

    async def frames(self, after: Position) -> AsyncGenerator[Frame, None]:
        """Frames of one stream, until it ends."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": f"{after.ledger_epoch}-{after.sequence}"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=SILENCE_S)
        async with self._transport.session.get(self._url, headers=headers, timeout=timeout) as response:
            if response.status != 200:
                raise failure(response, await response.read())
            parser = SseParser()
            async for chunk in response.content.iter_any():
                for data in parser.feed(chunk):
                    yield decode(data)
        raise Lost


class WebSocketSource:
    """A WebSocket, opened after a position."""

    def __init__(self, client: AsyncClient, subscription_id: str, max_events: int) -> None:
        self._transport = client.transport
        self._url = f"{client.base_url}/v1/subscriptions/{subscription_id}/ws"
        self._poll = PollSource(client, subscription_id, max_events)

    async def frames(self, after: Position) -> AsyncGenerator[Frame, None]:
        """Frames of one connection, until it ends."""
        try:
            async for frame in self._connected(after):
                yield frame
        except aiohttp.WSServerHandshakeError as error:
            if not 400 <= error.status < 500:
                raise
            # A refused handshake carries no reason that reaches us; a poll is refused with the same one.
            await self._poll.page(after, 0)
            raise ProtocolError(f"the channel is refused with status {error.status}") from error

    async def _connected(self, after: Position) -> AsyncGenerator[Frame, None]:
        place = {"after_sequence": str(after.sequence), "ledger_epoch": str(after.ledger_epoch)}
        async with self._transport.session.ws_connect(
            self._url, params=place, heartbeat=30.0, max_msg_size=16 * 1024 * 1024
        ) as socket:
            async for message in socket:
                if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                    yield decode(message.data)
        raise Lost
