"""The one loop behind every channel: from the ledger up to the head, then live, and back when it falls behind.

Invariants: events go out in ledger order, each frame naming the one before it; nothing is skipped but what the filter
or the rights exclude; the last frame says why the channel ended and where to go on, or that the subscription closed
(PAMSPEC P127-P133). No connection to PostgreSQL is held while the client takes frames or while nothing happens.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from opentelemetry.trace import SpanKind

from pamspec_common.asgi import ClientGone
from pamspec_common.errors import PamspecError
from pamspec_common.principal import Principal
from pamspec_common.telemetry import tracing
from pamspec_common.telemetry.metrics import CHANNEL_ENDS, CHANNELS, DELIVERED, DELIVERY_SECONDS
from pamspec_subscription.entries import Entry
from pamspec_subscription.fanout import EPOCHS_FRESH_S, Fanout, FollowedScope, Subscriber
from pamspec_subscription.frames import Frame, closed_frame, ended_frame, event_frame, progress_frame
from pamspec_subscription.model import FLUSH_FRAMES, AckWindow, Subscription
from pamspec_subscription.registry import Seat
from pamspec_subscription.rights import REVOKED, Right
from pamspec_subscription.store import Page, Store

_log = logging.getLogger(__name__)

_PAGE_ROWS = 256
_HYDRATE = 8
_LAST_FRAME_S = 2.0
_PAST_END_S = 0.05
_STORE_PAUSE_S = 0.2
_BLOCKED_S = 0.2


class Sink(Protocol):
    """Where frames go."""

    kind: str
    silent_ends: frozenset[str]
    """Reasons for which no `ended` frame is sent, because the frames go on without a new connection."""

    bounds_itself: bool
    """Whether it bounds how long a send takes; else a client that takes nothing for the stall time is gone."""

    @property
    def at_once(self) -> int:
        """How many events the next send may bring."""

    async def send(self, frames: Sequence[Frame], *, keepalive: bool = False) -> None:
        """Returns when the client's side took them; ClientGone when there is none any more."""


@dataclass(frozen=True)
class Surroundings:
    """What every channel of a process stands on."""

    store: Store
    fanout: Fanout
    stall_s: float
    """How long a client may take nothing, in seconds."""
    revoke: Callable[[Subscription, Principal, int], Awaitable[str | None]]
    """Close a subscription that a principal has no right to any more, at its position; None where it is kept."""
    acknowledgements: Callable[[], Awaitable[None]]
    """Look at once for acknowledgements that came in elsewhere."""


class _Closed(Exception):
    """The subscription closed for good."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Channel:
    """One open channel of a subscription."""

    def __init__(
        self,
        subscription: Subscription,
        seat: Seat,
        sink: Sink,
        right: Right,
        around: Surroundings,
        start: int,
        window: AckWindow | None = None,
    ) -> None:
        self._subscription, self._seat, self._sink, self._right = subscription, seat, sink, right
        self.closed = False
        """Whether the subscription's own end was delivered."""
        self._around, self._window = around, window
        self._me: Subscriber = seat.subscriber
        self._epoch = subscription.head.ledger_epoch
        self._delivery = subscription.delivery
        self._position = self._frame_sequence = start
        self._acked = frozenset(subscription.acked_ahead)
        self._last_overflow = -1e9
        self._keepalive_at = 0.0
        self._right_ends_at = math.inf
        self._scope: FollowedScope | None = None
        self._epochs, self._epochs_at = subscription.head.epochs, -1e9
        seat.position = start
        if window is not None:
            seat.on_acknowledged = self._acknowledged

    async def run(self) -> None:
        """Deliver until the client, the service or the subscription ends it; then send the last frame."""
        CHANNELS.add(1, {"channel": self._sink.kind})
        try:
            last = await self._until_end()
            if last is not None:
                async with asyncio.timeout(None if self._sink.bounds_itself else _LAST_FRAME_S):
                    await self._sink.send([last])
        except (ClientGone, TimeoutError):
            _log.debug("a channel's client is gone", extra={"action": "channel_gone"})
        finally:
            self._around.fanout.leave(self._me)
            if self._scope is not None:
                self._around.fanout.unfollow(self._scope)
            CHANNELS.add(-1, {"channel": self._sink.kind})
            reason = "closed" if self.closed else self._me.ended or "gone"
            CHANNEL_ENDS.add(1, {"channel": self._sink.kind, "reason": reason})

    async def _until_end(self) -> Frame | None:
        try:
            await self._progress()
            while self._me.going():
                await self._catch_up()
                await self._live()
        except _Closed as closed:
            self.closed = True
            return closed_frame(closed.reason, self._position, self._epoch)
        except REVOKED:
            revoked = await self._around.revoke(self._subscription, self._right.principal, self._position)
            if revoked is not None:
                self.closed = True
                return closed_frame(revoked, self._position, self._epoch)
            self._me.end("shutdown")
        reason = self._me.ended or "gone"
        if reason == "gone" or reason in self._sink.silent_ends:
            return None
        return ended_frame(reason, self._position, self._epoch)

    async def _catch_up(self) -> None:
        """From the ledger to the head, then joined to the live entries without a hole between."""
        while self._me.going():
            page = await self._read(None)
            await self._pass(page)
            if page.scanned_to >= page.head.last_seq:
                break
        if not self._me.going():
            return
        await self._follow()
        if self._scope is None:
            return
        self._around.fanout.join(self._scope, self._me)
        while self._me.going() and self._position < self._me.joined_at and not self._me.overflowed:
            await self._pass(await self._read(self._me.joined_at))

    async def _follow(self) -> None:
        """Have the scope followed; while the store is away the channel stays and tries again."""
        while self._scope is None and self._me.going():
            try:
                subscription = self._subscription
                self._scope = await self._around.fanout.follow(
                    subscription.scope_key, subscription.tenant_id, subscription.scope_id
                )
            except PamspecError:
                await self._me.wait(_STORE_PAUSE_S)
        if self._scope is not None and self._scope.epoch != self._epoch:
            self._me.end("outdated")

    async def _read(self, to: int | None) -> Page:
        """The next page; while the store is away the channel stays and tries again."""
        subscription = self._subscription
        while True:
            try:
                page = await self._around.store.page(
                    subscription.scope_key, subscription.tenant_id, self._position, _PAGE_ROWS, self._me.matcher, to
                )
            except PamspecError:
                await self._me.wait(_STORE_PAUSE_S)
                if not self._me.going():
                    return Page([], self._position, subscription.head)
                await self._keep_alive()
                continue
            if page.head.ledger_epoch != self._epoch:
                self._me.end("outdated")
                return Page([], self._position, page.head)
            self._epochs, self._epochs_at = page.head.epochs, self._now()
            await self._permitted(page.head.epochs)
            return page

    async def _pass(self, page: Page) -> None:
        """Deliver a page's entries and stand at its end."""
        await self._deliver([entry for entry in page.entries if self._concerns(entry)])
        if self._me.going():
            self._stand_at(page.scanned_to)
            await self._keep_alive()

    def _concerns(self, entry: Entry) -> bool:
        if entry.closes(self._subscription.subscription_id):
            return True
        return entry.sequence not in self._acked and self._me.matcher.matches(entry)

    async def _live(self) -> None:
        """Deliver what the fan-out brings, until it ends or falls behind."""
        scope = self._scope
        if scope is None:
            return
        while self._me.going() and not self._me.overflowed:
            await self._permitted(scope.epochs)
            if self._me.buffer:
                await self._gather()
                entries = self._take()
                await self._deliver(entries)
                continue
            self._stand_at(scope.last)
            await self._keep_alive()
            await self._me.wait(min(self._keepalive_at, self._right_ends_at) - self._now())
        if self._me.overflowed and self._me.going():
            self._fell_behind()

    def _take(self) -> list[Entry]:
        buffer = self._me.buffer
        entries = [buffer.popleft() for _ in range(min(len(buffer), FLUSH_FRAMES, self._delivery.batching_max_events))]
        return [entry for entry in entries if entry.sequence > self._position]

    async def _gather(self) -> None:
        """Let a batch grow for the time that the subscription asked for."""
        if not self._delivery.batching_max_wait_ms:
            return
        until = self._now() + self._delivery.batching_max_wait_ms / 1000
        while len(self._me.buffer) < self._delivery.batching_max_events and self._me.going():
            if self._me.overflowed or not await self._me.wait(until - self._now()):
                return

    def _fell_behind(self) -> None:
        """Read from the ledger again; a client too slow twice within the stall time ends, unless it may block."""
        self._around.fanout.leave(self._me)
        now = self._now()
        if self._delivery.backpressure_policy != "block" and now - self._last_overflow < self._around.stall_s:
            self._me.end("too_slow")
        self._last_overflow = now

    async def _deliver(self, entries: Sequence[Entry]) -> None:
        """Send entries in flushes; raises _Closed at the subscription's own subscription_closed."""
        done = 0
        while done < len(entries) and self._me.going():
            room = await self._room()
            size = min(FLUSH_FRAMES, self._delivery.batching_max_events, room)
            if self._subscription.include_content:
                size = min(size, _HYDRATE)
            flush = entries[done : done + size]
            done += len(flush)
            own_id = self._subscription.subscription_id
            closing = next((at for at, entry in enumerate(flush) if entry.closes(own_id)), None)
            await self._flush(flush if closing is None else flush[:closing])
            if closing is not None:
                raise _Closed(str(flush[closing].document["payload"]["reason"]))

    async def _room(self) -> int:
        """How many events may go out; waits while too many are unacknowledged."""
        if self._window is None:
            return self._sink.at_once
        look_at = self._now()
        while not (room := self._window.room()) and self._me.going():
            if self._now() >= look_at:
                look_at = self._now() + _BLOCKED_S
                await self._around.acknowledgements()
                continue
            await self._me.wait(look_at - self._now())
            await self._keep_alive()
        return room

    async def _flush(self, entries: Sequence[Entry]) -> None:
        entries = await self._receivable(entries)
        if not entries or not self._me.going():
            return
        envelopes = await self._envelopes(entries)
        if not self._me.going():
            return
        frames = []
        previous = self._frame_sequence
        for entry in entries:
            envelope = envelopes.get(entry.document.get("version_id", "")) if envelopes else None
            data = (
                entry.frame(previous, self._epoch)
                if envelope is None
                else event_frame(entry.event, previous, self._epoch, envelope, entry.traceparent)
            )
            frames.append(Frame(data, entry.sequence, entry.traceparent))
            previous = entry.sequence
        if await self._delivered(frames):
            if self._window is not None:
                self._window.sent(entry.sequence for entry in entries)
            self._frame_sequence = previous
            self._stand_at(previous)
            DELIVERED.add(len(frames), {"channel": self._sink.kind})
            if self._me.scope is not None and entries[0].sequence > self._me.joined_at:
                DELIVERY_SECONDS.observe(entries[0].age_s(), self._sink.kind)

    async def _delivered(self, frames: Sequence[Frame]) -> bool:
        """Whether the client's side took a flush; one span for all of it."""
        if not tracing.enabled:
            return await self._send(frames)
        kind = self._sink.kind
        attributes = tracing.messages("pamspec", "deliver", "send", kind, len(frames))
        traces = [frame.traceparent for frame in frames]
        with tracing.batched("subscription", f"deliver {kind}", SpanKind.PRODUCER, traces, attributes):
            return await self._send(frames)

    async def _receivable(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """What the rights that hold now leave of some entries."""
        subscription = self._subscription
        while entries and self._me.going():
            try:
                if self._scope is not None:
                    await self._around.fanout.confirm(self._scope, entries[-1].sequence)
                    self._epochs = self._scope.epochs
                elif self._now() - self._epochs_at > EPOCHS_FRESH_S:
                    at, scope = self._now(), (subscription.scope_key, subscription.tenant_id)
                    heads = await self._around.store.heads([scope])
                    self._epochs, self._epochs_at = heads[subscription.scope_key].epochs, at
                permitted = await self._right.check(self._epochs)
                return await self._around.store.in_sight(subscription.scope_key, entries, permitted)
            except REVOKED:
                raise
            except PamspecError:
                await self._me.wait(_STORE_PAUSE_S)
        return []

    async def _permitted(self, epochs: tuple[int, int]) -> None:
        """Raise when the right is gone; while the store is away it is asked for again, and nothing goes out."""
        while self._me.going():
            try:
                self._ends((await self._right.check(epochs)).left_s)
            except REVOKED:
                raise
            except PamspecError:
                await self._me.wait(_STORE_PAUSE_S)
            else:
                return

    def _ends(self, left_s: float | None) -> None:
        """Note when a grant ends by itself, which no entry tells."""
        self._right_ends_at = math.inf if left_s is None else self._now() + max(left_s, 0.0) + _PAST_END_S

    async def _envelopes(self, entries: Sequence[Entry]) -> dict[str, bytes]:
        if not self._subscription.include_content:
            return {}
        wanted = sorted({name for entry in entries if (name := entry.document.get("version_id")) is not None})
        while wanted and self._me.going():
            try:
                return await self._around.store.envelopes(self._subscription.scope_key, wanted)
            except PamspecError:
                await self._me.wait(_STORE_PAUSE_S)
        return {}

    async def _send(self, frames: Sequence[Frame], *, keepalive: bool = False) -> bool:
        """Hand frames to the client's side; one that takes nothing for the stall time ends the channel."""
        try:
            async with asyncio.timeout(None if self._sink.bounds_itself else self._around.stall_s):
                await self._sink.send(frames, keepalive=keepalive)
        except TimeoutError:
            self._me.end("idle")
            return False
        return True

    async def _keep_alive(self) -> None:
        if self._now() >= self._keepalive_at and self._me.going():
            await self._progress()

    async def _progress(self) -> None:
        """A progress frame: everything up to it was delivered or did not match."""
        self._keepalive_at = self._now() + self._delivery.keepalive_interval_ms / 1000
        if await self._send([progress_frame(self._position, self._epoch)], keepalive=True):
            self._frame_sequence = max(self._frame_sequence, self._position)

    def _stand_at(self, position: int) -> None:
        if position > self._position:
            self._position = self._seat.position = position

    def _acknowledged(self, cursor: int, ahead: Sequence[int]) -> None:
        if self._window is not None:
            self._window.acknowledged(cursor, ahead)
            self._me.wake.set()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
