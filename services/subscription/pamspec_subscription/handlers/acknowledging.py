"""ack and reset: the only ways to move a cursor besides polls and Last-Event-ID."""

from __future__ import annotations

from collections.abc import Collection

from pamspec_common.calls import HEADER_LEDGER_EPOCH, Answer
from pamspec_common.errors import InvalidRequest, PamspecError
from pamspec_common.postgres import Connection, scoped
from pamspec_common.strict_json import dumps
from pamspec_subscription.documents import Ack, Reset, check_ack
from pamspec_subscription.handlers.asked import Asked, allowed
from pamspec_subscription.matching import Matcher
from pamspec_subscription.model import SCAN_ROWS, Subscription, ahead_of, check_position, contiguous
from pamspec_subscription.queries import cursors, ledger, subscriptions
from pamspec_subscription.registry import Registry
from pamspec_subscription.rights import Access, Permitted
from pamspec_subscription.store import Store
from pamspec_subscription.visibility import own

_STEPS = 20
"""Stretches of SCAN_ROWS that one acknowledgement passes at most; the next one goes on."""


class Acknowledging:
    """The operations that move a cursor."""

    def __init__(self, store: Store, registry: Registry, access: Access) -> None:
        self._store, self._registry, self._access = store, registry, access

    async def ack(self, asked: Asked[Ack]) -> Answer:
        """Acknowledge everything up to `sequence`, or single `sequences`: the cursor becomes the highest position up to
        which nothing is missing (P127).
        """
        request = asked.request
        check_ack(request)
        async with self._store.session() as conn:
            found = await subscriptions.load(conn, asked.principal.tenant_id, request.subscription_id)
            subscription, permitted = await allowed(asked, own(found, asked.principal), self._access, conn)
            highest = max(request.sequences) if request.sequences else request.sequence or 0
            check_position(highest, request.ledger_epoch, subscription.head, subscription.resume_after)
            if subscription.state != "open":
                return _moved(subscription, subscription.cursor, asked.operation_id)
            cursor, ahead = await advance(conn, subscription, permitted, request.sequence or 0, request.sequences or ())
        self._registry.acknowledged(subscription.key, cursor, ahead)
        return _moved(subscription, cursor, asked.operation_id)

    async def reset(self, asked: Asked[Reset]) -> Answer:
        """Put the cursor anywhere: what comes after it is delivered, again or for the first time."""
        request = asked.request
        async with self._store.session() as conn:
            found = await subscriptions.load(conn, asked.principal.tenant_id, request.subscription_id)
            subscription, _ = await allowed(asked, own(found, asked.principal), self._access, conn)
            check_position(request.after_sequence, request.ledger_epoch, subscription.head, subscription.resume_after)
            epoch = await cursors.reset(conn, subscription, request.after_sequence)
        if epoch is None:
            raise InvalidRequest("The subscription is closed; subscribe again with after_sequence.")
        self._registry.replace(subscription.key, epoch)
        return _moved(subscription, request.after_sequence, asked.operation_id)


def _moved(subscription: Subscription, cursor: int, operation_id: str) -> Answer:
    document = {
        "subscription_id": subscription.subscription_id,
        "next_after_sequence": cursor,
        "ledger_epoch": subscription.head.ledger_epoch,
        "operation_id": operation_id,
    }
    return Answer(200, dumps(document), {HEADER_LEDGER_EPOCH: str(subscription.head.ledger_epoch)})


async def advance(
    conn: Connection, subscription: Subscription, permitted: Permitted, up_to: int, single: Collection[int]
) -> tuple[int, list[int]]:
    """Acknowledge in one transaction; the cursor, and the single acknowledgements that still wait beyond it."""
    async with scoped(conn, [subscription.scope_key]):
        locked = await subscriptions.lock(conn, *subscription.key)
        if locked is None:
            raise PamspecError("the subscription vanished")
        cursor = max(locked.cursor, up_to)
        ahead = ahead_of(cursor, {*locked.acked_ahead, *single})
        matcher = Matcher(locked.filter, permitted.viewer)
        for _ in range(_STEPS):
            if not ahead:
                break
            reached = await _step(conn, locked, matcher, permitted, cursor, ahead)
            if reached == cursor:
                break
            cursor = reached
            ahead = ahead_of(cursor, ahead)
        if (cursor, ahead) != (locked.cursor, list(locked.acked_ahead)):
            await cursors.acknowledge(conn, locked, cursor, ahead)
    return cursor, ahead


async def _step(
    conn: Connection, locked: Subscription, matcher: Matcher, permitted: Permitted, cursor: int, ahead: list[int]
) -> int:
    """How far the single acknowledgements carry the cursor over the next stretch of the ledger."""
    to = min(ahead[-1], cursor + SCAN_ROWS)
    entries = await ledger.page(conn, locked.scope_key, cursor, to, SCAN_ROWS, matcher)
    matching = [entry for entry in entries if matcher.matches(entry)]
    received = await ledger.in_sight(conn, locked.scope_key, matching, permitted)
    return contiguous(cursor, to, [entry.sequence for entry in received], frozenset(ahead))
