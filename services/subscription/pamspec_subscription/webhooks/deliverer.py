"""Delivery over webhooks: which endpoints this process posts to, and what follows a failure.

Invariants: endpoints do not wait for each other. Each has its own task and at most one request under way; one that
fails gives its lease back until it is due again. Failing ones never hold more than a quarter of the places here, one
tenant never more than half. Endpoints that have not proved themselves have their own names' threads and connections.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta

from pamspec_common.asgi import ClientGone
from pamspec_common.errors import InvalidRequest, PamspecError
from pamspec_common.postgres import Connection
from pamspec_common.telemetry.metrics import WEBHOOK_ATTEMPTS, WEBHOOKS_PARKED
from pamspec_subscription.channels.leaseholder import Key, Leaseholder
from pamspec_subscription.channels.opening import Opener
from pamspec_subscription.model import Subscription
from pamspec_subscription.queries import subscriptions, webhooks
from pamspec_subscription.queries.webhooks import Endpoint
from pamspec_subscription.store import Store
from pamspec_subscription.webhooks.attempts import GONE, Attempt, after_failure
from pamspec_subscription.webhooks.posting import Poster
from pamspec_subscription.webhooks.secrets import CannotOpen, Secret, alive, signed_headers
from pamspec_subscription.webhooks.sink import Failure, Post, WebhookSink
from pamspec_subscription.webhooks.terms import Terms

_log = logging.getLogger(__name__)

_CLAIM_AT_ONCE = 200
_PACE_S = 0.25
"""How often endpoints that are due are looked for at most, where no failure here said when."""
_LATER_S = 30.0
"""When to look again at what cannot be delivered for a reason of our own."""

Close = Callable[[Subscription, str, int], Awaitable[object]]
"""Closes a subscription with a reason, at the position that it got to."""


class WebhookDeliverer:
    """Runs the subscriptions over webhooks whose leases this process holds."""

    def __init__(
        self, store: Store, opener: Opener, terms: Terms, lane: Callable[[], Poster], lease_s: float, close: Close
    ) -> None:
        self._store, self._opener, self._terms, self._lane, self._close = store, opener, terms, lane, close
        self._failing: set[Key] = set()
        self._lanes: dict[bool, Poster] = {}
        self.leases = Leaseholder("webhook", store, lease_s, self._claim, self._deliver)

    def start(self) -> None:
        """Open the lanes; in a running loop."""
        self._lanes = {proven: self._lane() for proven in (True, False)}

    async def stop(self) -> None:
        """Give the leases back and close the connections."""
        await self.leases.stop()
        for lane in self._lanes.values():
            await lane.close()

    async def _claim(self, conn: Connection, owner: str, lease: timedelta) -> tuple[Sequence[Key], bool]:
        places = self._terms.places
        room = min(_CLAIM_AT_ONCE, places - len(self.leases))
        claimed = await self._claimed(conn, owner, lease, room, self.leases.held, failing=False)
        claimed_room = max(1, places // 4) - len(self._failing)
        failing = await self._claimed(
            conn, owner, lease, min(room - len(claimed), claimed_room), self._failing, failing=True
        )
        self._failing.update(failing)
        if self._terms.places and (due := await webhooks.next_due(conn)) is not None:
            self.leases.look_in(max(_PACE_S, due))
        return [*claimed, *failing], len(claimed) == _CLAIM_AT_ONCE

    async def _claimed(
        self, conn: Connection, owner: str, lease: timedelta, room: int, held: Iterable[Key], *, failing: bool
    ) -> list[Key]:
        """What is due and has a place here; one tenant never gets more than half of the places."""
        if room <= 0:
            return []
        share = max(1, self._terms.places // (8 if failing else 2))
        tenants = Counter(tenant for tenant, _ in held)
        return await webhooks.claim(conn, owner, lease, room, share, tenants, failing=failing)

    async def _deliver(self, key: Key) -> bool:
        """One run of a channel: until the service stops it, the endpoint fails, or the subscription has ended."""
        try:
            await self._run(key)
        except PamspecError as error:
            _log.info("a webhook waits: %s", error, extra={"action": "webhook_waits"})
        finally:
            self._failing.discard(key)
        return False

    async def _run(self, key: Key) -> None:
        async with self._store.for_channels() as conn:
            subscription = await subscriptions.load(conn, *key)
            endpoint = await webhooks.endpoint(conn, key)
        if subscription is None or endpoint is None or endpoint.secrets is None:
            await self._postpone(key)
            return
        try:
            secrets = self._terms.sealing.open(endpoint.secrets, key)
        except CannotOpen:
            _log.error("the key that sealed a webhook's secrets is not set", extra={"action": "webhook_sealed"})
            await self._postpone(key)
            return
        sink = WebhookSink(
            subscription,
            endpoint,
            self._post(key, endpoint, secrets),
            self._store,
            lambda: self.leases.holds(key),
            self._terms.body_bytes,
            self._terms.log_rows,
        )
        opened = await self._opener.pushed(subscription, "webhook", subscription.resume_after)
        with suppress(ClientGone):
            await self._opener.run(opened, sink)
        if sink.ended:
            await self._end(key)
        elif sink.failure is not None:
            before = endpoint.outcome if sink.failures else None
            await self._after(subscription, sink.failure, sink.failures + 1, before)

    def _post(self, key: Key, endpoint: Endpoint, secrets: Sequence[Secret]) -> Post:
        """Requests to an endpoint, in the lane that it has earned."""
        proven = endpoint.attempts > 0 and endpoint.failures == 0

        async def post(body: bytes, name: str) -> Attempt:
            nonlocal proven
            now = time.time()
            try:
                url = self._terms.targets.check(endpoint.url)
            except InvalidRequest:
                attempt = Attempt("no_address")
            else:
                headers = signed_headers(alive(secrets, now), name, int(now), body)
                attempt = await self._lanes[proven].post(url, body, headers)
            WEBHOOK_ATTEMPTS.add(1, {"outcome": attempt.outcome})
            proven = attempt.status is not None and 200 <= attempt.status < 300
            if proven:
                self._failing.discard(key)
            return attempt

        return post

    async def _after(self, subscription: Subscription, failure: Failure, failures: int, before: str | None) -> None:
        """Give the lease back until the next attempt; the end, where there is none."""
        key, patience, attempt = subscription.key, self._terms.patience, failure.attempt
        closing = failure.closing or subscription.state != "open"
        if attempt.outcome == GONE:
            if not closing:
                await self._close(subscription, "endpoint_gone", failure.tried.first - 1)
            await self._end(key)
            return
        if closing and failures >= patience.attempts:
            await self._end(key)
            return
        following = after_failure(attempt, failures, before, random.random(), patience)
        async with self._store.for_channels() as conn:
            noted = await webhooks.failed(
                conn,
                subscription,
                failure.tried,
                self._terms.log_rows,
                timedelta(seconds=following.delay_s),
                parked=following.parked and not closing,
                event_id=failure.event_id,
            )
        if noted:
            if following.parked and not closing:
                WEBHOOKS_PARKED.add(1)
            self.leases.give_back(key)
            self.leases.look_in(following.delay_s)

    async def _end(self, key: Key) -> None:
        """Nothing is delivered any more, once the close is written down."""
        async with self._store.for_channels() as conn:
            ended = await webhooks.ended(conn, key)
        if ended:
            self.leases.give_back(key)
        else:
            await self._postpone(key)

    async def _postpone(self, key: Key) -> None:
        async with self._store.for_channels() as conn:
            await webhooks.postpone(conn, key, self.leases.owner, timedelta(seconds=_LATER_S))
        self.leases.give_back(key)
