"""A follower: the events of a subscription, each once, in ledger order, across every interruption.

Invariant: the cursor is the last position that the caller finished with. Whatever breaks, the follower opens its
channel again after the cursor, so nothing is left out; copies are dropped by event_id and by position, so nothing
comes out twice. What is acknowledged never lies beyond the cursor.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pamspec_client.channels import PollSource, SseSource, WebSocketSource
from pamspec_client.documents import FollowChannel
from pamspec_client.errors import (
    ChannelReplaced,
    ClientError,
    InvalidRequest,
    NoAnswer,
    ServiceUnavailable,
    SubscriptionClosed,
)
from pamspec_client.frames import Frame, Lost, Position, Source
from pamspec_client.models import Event
from pamspec_client.nats_channel import NatsSource
from pamspec_client.transport import TRANSPORT_ERRORS

if TYPE_CHECKING:
    from pamspec_client.client import AsyncClient

ACK_EVERY_EVENTS = 200
LAST_ACK_S = 2.0
"""How long the end of a follower may wait for its last acknowledgement; what it lacks is delivered again."""


class Follow:
    """An asynchronous iterator of events, and a context manager that ends it cleanly."""

    def __init__(
        self,
        client: AsyncClient,
        subscription_id: str,
        *,
        channel: FollowChannel,
        after_sequence: int | None,
        max_events: int,
        window: int,
        ack_every_s: float,
        resume_outdated: bool,
    ) -> None:
        self._client = client
        self._subscription_id = subscription_id
        self._channel = channel
        self._after_sequence = after_sequence
        self._max_events = max_events
        self._window = window
        self._ack_every_s = ack_every_s
        self._resume_outdated = resume_outdated
        self._cursor: Position | None = None
        self._acknowledged: Position | None = None
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._finished = asyncio.Event()
        self._unacknowledged = 0
        self._tries = 0
        self._acks: asyncio.Task[None] | None = None
        self._events = self._deliver()
        self.duplicates = 0
        """How many copies were dropped."""
        self.reconnects = 0
        """How often the channel was opened again."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await anext(self._events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def cursor(self) -> Position | None:
        """The last position that the caller finished with; None before the first connection."""
        return self._cursor

    async def aclose(self) -> None:
        """End the channel and acknowledge what was finished; a second call does nothing.

        Belongs to the task that iterates; another task cancels that one instead.
        """
        await self._events.aclose()

    async def _deliver(self) -> AsyncGenerator[Event, None]:
        try:
            while True:
                try:
                    source = await self._open()
                    async with contextlib.aclosing(self._received(source)) as events:
                        async for event in events:
                            yield event
                except (Lost, NoAnswer, ServiceUnavailable, *TRANSPORT_ERRORS) as error:
                    await self._pause(error)
                except InvalidRequest as error:
                    self._go_on_after(error)
        finally:
            await self._end_acknowledging()

    async def _open(self) -> Source:
        """The source of frames; the cursor is looked up once, and kept over every later connection."""
        client, subscription_id = self._client, self._subscription_id
        if self._cursor is None or self._channel == "nats":
            entry = await client.get_subscription(subscription_id)
            if entry.closed is not None:
                raise SubscriptionClosed(subscription_id, entry.closed.reason, entry.closed.last_delivered_sequence)
            if self._cursor is None:
                start = entry.next_after_sequence if self._after_sequence is None else self._after_sequence
                self._cursor = self._acknowledged = Position(entry.ledger_epoch, start)
            if self._channel == "nats":
                subject = str(entry.subscription.get("channel_ref", ""))
                return NatsSource(client, subscription_id, subject, self._max_events)
        if self._channel == "sse":
            return SseSource(client, subscription_id)
        if self._channel == "websocket":
            return WebSocketSource(client, subscription_id, self._max_events)
        return PollSource(client, subscription_id, self._max_events)

    async def _received(self, source: Source) -> AsyncGenerator[Event, None]:
        """New events of one connection; returns never, it raises."""
        if self._cursor is None:
            raise Lost
        if self._acks is None and self._channel != "poll":
            self._acks = asyncio.create_task(self._acknowledge())
        at = self._cursor
        async with contextlib.aclosing(source.frames(at)) as frames:
            async for frame in frames:
                self._tries = 0
                if frame.ledger_epoch < at.ledger_epoch:
                    continue
                if frame.prev_sequence is not None and _beyond(frame, frame.prev_sequence, at):
                    raise Lost
                event = frame.decoded
                if event is None:
                    self._control(frame)
                    at = self._finish(frame, frame.progress, at)
                    continue
                if self._is_new(event, frame, at):
                    yield event
                at = self._finish(frame, event.sequence, at)
        raise Lost

    def _is_new(self, event: Event, frame: Frame, at: Position) -> bool:
        known = event.event_id in self._seen
        if known or (frame.ledger_epoch == at.ledger_epoch and event.sequence <= at.sequence):
            self.duplicates += 1
            return False
        self._seen[event.event_id] = None
        if len(self._seen) > self._window:
            self._seen.popitem(last=False)
        return True

    def _finish(self, frame: Frame, sequence: int | None, at: Position) -> Position:
        """Move the cursor to what the caller is done with; progress counts once all events before it are."""
        if sequence is None or (frame.ledger_epoch == at.ledger_epoch and sequence <= at.sequence):
            return at
        self._cursor = Position(frame.ledger_epoch, sequence)
        self._unacknowledged += 1
        if self._unacknowledged >= ACK_EVERY_EVENTS:
            self._finished.set()
        return self._cursor

    def _control(self, frame: Frame) -> None:
        if frame.closed is not None:
            closed = frame.closed
            raise SubscriptionClosed(self._subscription_id, closed.reason, closed.last_delivered_sequence)
        if frame.ended is not None:
            if frame.ended.reason == "replaced":
                raise ChannelReplaced(f"another consumer of subscription {self._subscription_id} took over")
            raise Lost

    async def _pause(self, error: BaseException) -> None:
        """Before the next connection: a growing random time, Retry-After where the service named one."""
        self.reconnects += 1
        self._tries += 1
        retry_after_s = error.retry_after_s if isinstance(error, ServiceUnavailable) else None
        await asyncio.sleep(self._client.transport.retry.pause_s(self._tries, retry_after_s))

    def _go_on_after(self, error: InvalidRequest) -> None:
        """A restore made our position worthless: go on where the service says, when the caller allowed that."""
        if error.reason == "replaced":
            raise ChannelReplaced(f"another consumer of subscription {self._subscription_id} took over") from error
        epoch, sequence = error.details.get("ledger_epoch"), error.details.get("resume_after")
        if error.reason != "position_outdated" or not self._resume_outdated:
            raise error
        if not isinstance(epoch, int) or not isinstance(sequence, int):
            raise error
        self._cursor = self._acknowledged = Position(epoch, sequence)

    async def _acknowledge(self) -> None:
        """Acknowledge what is finished, soon but not one by one; what fails is acknowledged with the next."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._ack_every_s):
                    await self._finished.wait()
            self._finished.clear()
            with contextlib.suppress(ClientError):
                await self._send_acknowledgement()

    async def _send_acknowledgement(self) -> None:
        cursor = self._cursor
        if cursor is None or cursor == self._acknowledged:
            return
        self._unacknowledged = 0
        await self._client.ack(
            subscription_id=self._subscription_id, sequence=cursor.sequence, ledger_epoch=cursor.ledger_epoch
        )
        self._acknowledged = cursor

    async def _end_acknowledging(self) -> None:
        if self._acks is not None:
            self._acks.cancel()
            await asyncio.gather(self._acks, return_exceptions=True)
            self._acks = None
        with contextlib.suppress(ClientError, TimeoutError):
            async with asyncio.timeout(LAST_ACK_S):
                await self._send_acknowledgement()


def _beyond(frame: Frame, sequence: int, at: Position) -> bool:
    return frame.ledger_epoch == at.ledger_epoch and sequence > at.sequence
