"""What the owner of a webhook does with it: its secrets, what it stands at, its log, and another try."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta

from pamspec_common.calls import HEADER_LEDGER_EPOCH, Answer
from pamspec_common.errors import InvalidRequest
from pamspec_common.instants import wire
from pamspec_common.postgres import scoped
from pamspec_common.strict_json import dumps
from pamspec_subscription.documents import ListDeliveries, OnSubscription, Replay, RotateSecret
from pamspec_subscription.handlers.asked import Asked, allowed, check_scope
from pamspec_subscription.model import Subscription
from pamspec_subscription.queries import subscriptions, webhooks
from pamspec_subscription.queries.webhooks import Endpoint
from pamspec_subscription.registry import Registry
from pamspec_subscription.rights import Access
from pamspec_subscription.store import Store
from pamspec_subscription.visibility import managed, own
from pamspec_subscription.webhooks.secrets import (
    MAX_LIVE,
    SECRET_BYTES,
    CannotOpen,
    Sealing,
    Secret,
    alive,
    rotated,
    shown,
)

_NEWEST = 2**63 - 1


class Endpoints:
    """The operations on webhooks."""

    def __init__(
        self, store: Store, registry: Registry, access: Access, sealing: Sealing, look: Callable[[], None]
    ) -> None:
        self._store, self._registry, self._access = store, registry, access
        self._sealing, self._look = sealing, look

    async def first_secret(self, subscription: Subscription) -> str | None:
        """The secret of an open webhook that has none yet; whoever makes it shows it, and only then it delivers."""
        async with self._store.session() as conn, scoped(conn, [subscription.scope_key]):
            locked = await webhooks.lock_secrets(conn, subscription.key)
            if locked is None or locked[0] is not None:
                return None
            key = secrets.token_bytes(SECRET_BYTES)
            await webhooks.set_secrets(conn, subscription.key, self._sealing.seal([Secret(key)], subscription.key))
        return shown(key)

    async def rotate(self, asked: Asked[RotateSecret]) -> Answer:
        """A new secret, shown here alone; the earlier ones sign beside it until the overlap ends."""
        async with self._store.session() as conn:
            found = await subscriptions.load(conn, asked.principal.tenant_id, asked.request.subscription_id)
            subscription, _ = await allowed(asked, own(found, asked.principal), self._access, conn)
            key = secrets.token_bytes(SECRET_BYTES)
            async with scoped(conn, [subscription.scope_key]):
                locked = await webhooks.lock_secrets(conn, subscription.key)
                if locked is None:
                    raise _not_over_webhook(subscription)
                stored, now = locked
                until = now + timedelta(seconds=asked.request.overlap_s)
                earlier = alive(self._opened(stored, subscription), now.timestamp())
                if len(earlier) >= MAX_LIVE and asked.request.overlap_s:
                    raise InvalidRequest(
                        f"{MAX_LIVE} secrets sign already; wait until an overlap ends, or rotate with overlap_s 0."
                    )
                changed = rotated(earlier, key, now.timestamp(), until.timestamp())
                sealed = self._sealing.seal(changed, subscription.key)
                epoch = await webhooks.set_secrets(conn, subscription.key, sealed)
        self._registry.replace(subscription.key, epoch)
        self._look()
        document = {
            "subscription_id": subscription.subscription_id,
            "secret": shown(key),
            "earlier_until": wire(until),
            "operation_id": asked.operation_id,
        }
        return Answer(200, dumps(document))

    def _opened(self, stored: bytes | None, subscription: Subscription) -> list[Secret]:
        """The stored secrets; none where their key is gone, so that a rotation makes the webhook work again."""
        if stored is None:
            return []
        try:
            return self._sealing.open(stored, subscription.key)
        except CannotOpen:
            return []

    async def list_parked(self, asked: Asked[OnSubscription]) -> Answer:
        """The event at which delivery stands, when it has failed so often that it is tried seldom."""
        subscription, endpoint = await self._endpoint(asked)
        document = {
            "subscription_id": subscription.subscription_id,
            "next_after_sequence": subscription.resume_after,
            "ledger_epoch": subscription.head.ledger_epoch,
            "parked": [_parked(endpoint)] if endpoint.parked else [],
        }
        return Answer(200, dumps(document))

    async def list_deliveries(self, asked: Asked[ListDeliveries]) -> Answer:
        """The log of attempts, the newest first."""
        subscription, _ = await self._endpoint(asked)
        before, limit = _before(asked.request.pagination.cursor), asked.request.pagination.limit
        async with self._store.session() as conn:
            rows = await webhooks.deliveries(conn, subscription, before, limit + 1)
        document = {
            "subscription_id": subscription.subscription_id,
            "deliveries": [{**row, "at": wire(row["at"])} for row in rows[:limit]],
            "next_cursor": str(rows[limit - 1]["attempt"]) if len(rows) > limit else None,
        }
        return Answer(200, dumps(document))

    async def replay(self, asked: Asked[Replay]) -> Answer:
        """Try at once, or pass over the parked event: only its owner decides that it need not be taken."""
        request = asked.request
        if request.skip and request.sequence is None:
            raise InvalidRequest("A skip names the sequence of the parked event; see list_parked.")
        async with self._store.session() as conn:
            found = await subscriptions.load(conn, asked.principal.tenant_id, request.subscription_id)
            subscription, _ = await allowed(asked, own(found, asked.principal), self._access, conn)
            endpoint = await webhooks.endpoint(conn, subscription.key)
            if endpoint is None or subscription.state != "open":
                raise _not_over_webhook(subscription)
            stands_at = endpoint.stands_at if endpoint.parked else None
            epoch = None
            if request.skip and request.sequence is not None:
                epoch = await webhooks.skip(conn, subscription.key, request.sequence)
            elif request.sequence in (None, stands_at):
                await webhooks.at_once(conn, subscription.key)
                epoch = subscription.channel_epoch
            if epoch is None:
                details = {"reason": "not_parked", "parked": stands_at}
                raise InvalidRequest("Delivery does not stand at that sequence; see list_parked.", details=details)
            moved = await subscriptions.load(conn, *subscription.key) or subscription
        self._registry.replace(subscription.key, epoch)
        self._look()
        document = {
            "subscription_id": moved.subscription_id,
            "next_after_sequence": moved.cursor,
            "ledger_epoch": moved.head.ledger_epoch,
            "operation_id": asked.operation_id,
        }
        return Answer(200, dumps(document), {HEADER_LEDGER_EPOCH: str(moved.head.ledger_epoch)})

    async def _endpoint(self, asked: Asked[ListDeliveries] | Asked[OnSubscription]) -> tuple[Subscription, Endpoint]:
        """For its owner and for administrators of the tenant."""
        async with self._store.session() as conn:
            found = await subscriptions.load(conn, asked.principal.tenant_id, asked.request.subscription_id)
            subscription = check_scope(asked.request, managed(found, asked.principal))
            endpoint = await webhooks.endpoint(conn, subscription.key)
        if endpoint is None:
            raise _not_over_webhook(subscription)
        return subscription, endpoint


def _parked(endpoint: Endpoint) -> dict[str, object]:
    return {
        "sequence": endpoint.stands_at,
        "event_id": endpoint.stands_at_event,
        "outcome": endpoint.outcome,
        "status": endpoint.status,
        "attempts": endpoint.failures,
        "failing_since": wire(endpoint.failing_since or endpoint.next_attempt_at),
        "next_attempt_at": wire(endpoint.next_attempt_at),
    }


def _before(cursor: str | None) -> int:
    if cursor is None:
        return _NEWEST
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise InvalidRequest("pagination.cursor is not one of ours; send next_cursor as it came.")
    return int(cursor)


def _not_over_webhook(subscription: Subscription) -> InvalidRequest:
    if subscription.webhook_url is not None:
        return InvalidRequest("The subscription is closed; subscribe again with after_sequence.")
    return InvalidRequest("This subscription is not delivered over a webhook; its channel says how it is reached.")
