"""The NATS delivery subject as a source of frames.

The subject loses what is sent while nobody listens. Every frame names the one before it and progress names the head,
so a hole or a lost tail shows; what is missing is read again by polls after the cursor.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from pamspec_client.channels import SILENCE_S, PollSource, page_frames
from pamspec_client.errors import ClientError
from pamspec_client.frames import Frame, Lost, Position, decode

if TYPE_CHECKING:
    from pamspec_client.client import AsyncClient

_BUFFER = 10_000

Arrival = Frame | ClientError | ConnectionError


class NatsSource:
    """Frames of the delivery subject, completed by polls."""

    def __init__(self, client: AsyncClient, subscription_id: str, subject: str, max_events: int) -> None:
        if client.bus is None:
            raise ClientError("to follow over NATS connect to it, or give the client nats=NatsLogin(url)")
        self._bus = client.bus
        self._subject = subject
        self._poll = PollSource(client, subscription_id, max_events)
        self._doubt = asyncio.Event()

    async def frames(self, after: Position) -> AsyncGenerator[Frame, None]:
        """First what the ledger holds after the position, then live frames, until the connection is lost."""
        inbox: asyncio.Queue[Arrival] = asyncio.Queue(_BUFFER)

        def arrived(data: bytes) -> None:
            try:
                inbox.put_nowait(decode(data))
            except asyncio.QueueFull:
                self._doubt.set()

        def lost(error: ClientError | ConnectionError) -> None:
            # What waits here is read again over the next connection.
            while not inbox.empty():
                inbox.get_nowait()
            inbox.put_nowait(error)

        async with self._bus.listening(self._subject, arrived, lost):
            self._doubt.set()
            at = after
            while True:
                frame = None if self._doubt.is_set() else await _next(inbox)
                if frame is None or _shows_a_gap(frame, at):
                    self._doubt.clear()
                    async for missing in self._read_again(at):
                        yield missing
                        at = _advanced(at, missing)
                if frame is not None:
                    yield frame
                    at = _advanced(at, frame)

    async def _read_again(self, after: Position) -> AsyncGenerator[Frame, None]:
        at = after
        while True:
            page = await self._poll.page(at, 0)
            for frame in page_frames(page, at):
                yield frame
            end = Position(page.ledger_epoch, page.next_after_sequence)
            if end == at:
                return
            at = end


async def _next(inbox: asyncio.Queue[Arrival]) -> Frame | None:
    try:
        async with asyncio.timeout(SILENCE_S):
            found = await inbox.get()
    except TimeoutError:
        return None
    if isinstance(found, ConnectionError):
        raise Lost from found
    if isinstance(found, ClientError):
        raise found
    return found


def _shows_a_gap(frame: Frame, at: Position) -> bool:
    """Whether something between `at` and the frame did not arrive, or may not have."""
    if frame.ledger_epoch != at.ledger_epoch:
        return frame.ledger_epoch > at.ledger_epoch
    before = frame.prev_sequence if frame.prev_sequence is not None else frame.progress
    return before is not None and before > at.sequence


def _advanced(at: Position, frame: Frame) -> Position:
    event = frame.decoded
    reached = event.sequence if event is not None else frame.progress
    if reached is None or frame.ledger_epoch < at.ledger_epoch:
        return at
    if frame.ledger_epoch > at.ledger_epoch:
        return Position(frame.ledger_epoch, reached)
    return Position(at.ledger_epoch, max(at.sequence, reached))
