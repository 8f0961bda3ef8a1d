"""poll: one page from the ledger, waiting for its first event when asked to.

Invariants: what was committed before the poll is on the page (read your writes); a page is bounded in events, in bytes
and in the ledger rows it passes; while it waits, a poll holds no connection.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pamspec_common.calls import HEADER_AS_OF_SEQUENCE, HEADER_LEDGER_EPOCH, Answer
from pamspec_common.errors import InvalidRequest, ServiceUnavailable
from pamspec_common.postgres import Connection
from pamspec_common.telemetry import tracing
from pamspec_common.telemetry.metrics import DELIVERED, DELIVERY_SECONDS
from pamspec_subscription.documents import Poll
from pamspec_subscription.entries import Entry
from pamspec_subscription.fanout import Fanout, FollowedScope, Subscriber
from pamspec_subscription.frames import poll_page
from pamspec_subscription.handlers.acknowledging import advance
from pamspec_subscription.handlers.asked import Asked, check_scope
from pamspec_subscription.handlers.pages import Collected, collect
from pamspec_subscription.lifecycle import Lifecycle, closed_record
from pamspec_subscription.matching import Matcher, viewer_of
from pamspec_subscription.model import PAGE_BYTES, STREAMED, Subscription, check_position
from pamspec_subscription.queries import cursors, subscriptions
from pamspec_subscription.registry import Registry, Seat
from pamspec_subscription.rights import REVOKED, Access, Permitted
from pamspec_subscription.store import Store
from pamspec_subscription.visibility import own

_BUFFER = 1000
_ATTEMPTS = 5


@dataclass(frozen=True)
class Polling:
    """The operation poll, and what it stands on."""

    store: Store
    fanout: Fanout
    registry: Registry
    lifecycle: Lifecycle
    access: Access

    async def poll(self, asked: Asked[Poll]) -> Answer:
        """The next events after `after_sequence`, which acknowledges up to there; without it after what was answered
        last (P127, P217).
        """
        call = _PollCall(self, asked)
        try:
            return await call.answer()
        finally:
            call.leave()


@dataclass(frozen=True)
class _Found:
    """What one look at the subscription and its ledger gave."""

    subscription: Subscription
    matcher: Matcher
    page: Collected


class _PollCall:
    """One poll, over as many looks at the ledger as it takes."""

    def __init__(self, around: Polling, asked: Asked[Poll]) -> None:
        self._around, self._principal, self._request = around, asked.principal, asked.request
        carried = asked.answer_bytes
        self._page_bytes = PAGE_BYTES if carried is None else min(PAGE_BYTES, carried * 7 // 8)
        self._deadline = _now() + asked.request.wait_ms / 1000
        self._position: int | None = None
        self._seat: Seat | None = None
        self._scope: FollowedScope | None = None
        self._traces: list[str | None] = []

    async def answer(self) -> Answer:
        """Look, wait, look again."""
        while True:
            found = await self._look()
            subscription, page = found.subscription, found.page
            if subscription.state != "open":
                return _answer(subscription, page, closed=True)
            waits = not page.events and page.next_after >= subscription.head.last_seq and _now() < self._deadline
            if not waits or self._around.registry.stopping:
                if page.events:
                    DELIVERED.add(len(page.events), {"channel": "poll"})
                    if self._seat is not None:
                        DELIVERY_SECONDS.observe(page.events[0].age_s(), "poll")
                        tracing.link(self._traces)
                return _answer(subscription, page)
            self._position = page.next_after
            if self._seat is None:
                await self._sit_down(found)
            elif not await self._event_in_time(found, self._seat.subscriber):
                return await self._nothing(found, self._seat.subscriber)

    def leave(self) -> None:
        """Give back what waiting took."""
        if self._seat is not None:
            self._around.fanout.leave(self._seat.subscriber)
            self._around.registry.leave(self._seat)
        if self._scope is not None:
            self._around.fanout.unfollow(self._scope)

    async def _look(self) -> _Found:
        """Read a page and move the cursor; again when another poll moved it meanwhile."""
        for _ in range(_ATTEMPTS):
            async with self._around.store.session() as conn:
                loaded = await subscriptions.load(conn, self._principal.tenant_id, self._request.subscription_id)
                subscription = check_scope(self._request, own(loaded, self._principal))
                none = Matcher(subscription.filter, viewer_of(self._principal, subscription.actor))
                if subscription.state != "open":
                    return _Found(subscription, none, Collected([], subscription.resume_after))
                self._check(subscription)
                try:
                    permitted = await self._permitted(conn, subscription)
                except REVOKED as error:
                    refused = error
                else:
                    found = await self._page(conn, subscription, permitted)
                    if found is not None:
                        return found
                    continue
            closed = await self._around.lifecycle.revoke(subscription, self._principal)
            if closed.suspended and closed.state == "open":
                raise refused
            if closed.state != "open":
                return _Found(closed, none, Collected([], closed.resume_after))
        raise ServiceUnavailable("Other polls of this subscription are faster; poll it from one place.")

    async def _page(self, conn: Connection, subscription: Subscription, permitted: Permitted) -> _Found | None:
        """The next page; None when another poll answered the same at the same time."""
        matcher = Matcher(subscription.filter, permitted.viewer)
        start = self._start(subscription)
        page = await collect(conn, subscription, matcher, permitted, start, self._request.max, self._page_bytes)
        if not await self._move(conn, subscription, permitted, page.next_after):
            return None
        return _Found(subscription, matcher, page)

    async def _permitted(self, conn: Connection, subscription: Subscription) -> Permitted:
        """What may be received; raises one of REVOKED when the right is gone."""
        return await self._around.access.permitted(
            self._principal, subscription.actor, subscription.scope_key, subscription.head.epochs, conn
        )

    def _check(self, subscription: Subscription) -> None:
        request, head = self._request, subscription.head
        check_position(request.after_sequence or 0, request.ledger_epoch, head, subscription.resume_after)
        if request.min_sequence is not None and request.min_sequence > head.last_seq:
            details = {"reason": "stale_session", "head_sequence": head.last_seq}
            raise ServiceUnavailable("The ledger has not reached min_sequence; try again shortly.", details=details)
        if self._seat is None or subscription.channel not in STREAMED:
            return
        if subscription.channel_epoch > self._seat.subscriber.channel_epoch:
            raise _replaced(self._position or 0)

    def _start(self, subscription: Subscription) -> int:
        if self._position is not None:
            return self._position
        if self._request.after_sequence is not None:
            return self._request.after_sequence
        return max(subscription.cursor, subscription.delivered)

    async def _move(self, conn: Connection, subscription: Subscription, permitted: Permitted, next_after: int) -> bool:
        """Acknowledge, note what is answered and end whatever else holds the subscription; False when another poll
        answered the same at the same time.
        """
        after = self._request.after_sequence
        cursor, delivered, only_from = next_after, next_after, None
        if after is None:
            only_from = subscription.delivered
        elif after < subscription.cursor:
            cursor, delivered = subscription.cursor, subscription.delivered
        else:
            cursor = after
            if subscription.acked_ahead and after > subscription.cursor:
                cursor, _ = await advance(conn, subscription, permitted, after, ())
        release = self._seat is None and subscription.channel in STREAMED and subscription.channel_kind is not None
        if cursor <= subscription.cursor and delivered <= subscription.delivered and not release:
            return True
        epoch = await cursors.move(conn, subscription, cursor, delivered, only_from=only_from, release=release)
        if epoch is not None and release:
            self._around.registry.replace(subscription.key, epoch)
        return epoch is not None

    async def _sit_down(self, found: _Found) -> None:
        """Hold the subscription and follow its scope; the ledger is looked at once more before the wait."""
        around, subscription = self._around, found.subscription
        around.registry.check_room()
        exclusive = subscription.channel in STREAMED
        epoch = subscription.channel_epoch
        if exclusive:
            async with around.store.session() as conn:
                epoch = await cursors.take(conn, subscription, "poll", 0) or epoch
        self._scope = await around.fanout.follow(subscription.scope_key, subscription.tenant_id, subscription.scope_id)
        self._seat = Seat(Subscriber(subscription.key, found.matcher, _BUFFER, epoch), "poll")
        around.registry.enter(self._seat, beside=not exclusive)
        around.fanout.join(self._scope, self._seat.subscriber)

    async def _event_in_time(self, found: _Found, me: Subscriber) -> bool:
        """Wait for an event beyond the position, or for another reason to look again."""
        position, delivery = found.page.next_after, found.subscription.delivery
        while me.going():
            while me.buffer and me.buffer[0].sequence <= position:
                me.buffer.popleft()
            if (
                me.buffer
                or me.overflowed
                or (me.scope is not None and me.scope.epochs != found.subscription.head.epochs)
            ):
                await self._gather(me, delivery.batching_max_events, delivery.batching_max_wait_ms / 1000)
                if tracing.enabled:
                    self._traces += [entry.traceparent for entry in me.buffer]
                me.buffer.clear()
                me.overflowed = False
                return me.going()
            if not await me.wait(self._deadline - _now()):
                return False
        return False

    async def _gather(self, me: Subscriber, events: int, wait_s: float) -> None:
        until = min(_now() + wait_s, self._deadline)
        while wait_s and len(me.buffer) < min(events, self._request.max) and me.going():
            if not await me.wait(until - _now()):
                return

    async def _nothing(self, found: _Found, me: Subscriber) -> Answer:
        """Nothing came in time; the position moves past what the filter excluded meanwhile (S11)."""
        subscription, scope = found.subscription, me.scope
        if me.ended == "replaced":
            raise _replaced(found.page.next_after)
        if me.ended == "outdated" or scope is None:
            raise ServiceUnavailable("The ledger was restored meanwhile; poll again without after_sequence.")
        next_after = found.page.next_after if me.ended is not None else max(found.page.next_after, scope.last)
        if self._request.after_sequence is None and next_after > found.page.next_after:
            async with self._around.store.session() as conn:
                await cursors.pass_over(conn, subscription, next_after)
        return _answer(subscription, Collected([], next_after, {} if subscription.include_content else None))


def _answer(subscription: Subscription, page: Collected, *, closed: bool = False) -> Answer:
    events: list[Entry] = page.events
    epoch = subscription.head.ledger_epoch
    body = poll_page(
        [entry.event for entry in events],
        page.next_after,
        epoch,
        closed_record(subscription) if closed else None,
        page.envelopes,
    )
    headers = {HEADER_AS_OF_SEQUENCE: str(subscription.head.last_seq), HEADER_LEDGER_EPOCH: str(epoch)}
    return Answer(200, body, headers)


def _replaced(position: int) -> InvalidRequest:
    return InvalidRequest(
        "Another poll or channel took this subscription over; run one at a time, or subscribe once for each.",
        details={"reason": "replaced", "resume_after": position},
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
