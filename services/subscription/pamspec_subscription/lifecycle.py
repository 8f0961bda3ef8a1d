"""Opening and closing: each spans two transactions around an entry that the write service makes in the ledger.

Invariants: the entry's operation_id follows from the subscription_id, so repeating a step changes nothing; a step that
was interrupted is finished by `finish_leftovers`, here or in another process; what is closing is never polled again,
and its delivery ends at its subscription_closed (PAMSPEC P130-P132, P218).
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import orjson

from pamspec_common.calls import Answer, Call
from pamspec_common.errors import PamspecError, ServiceUnavailable, told_error
from pamspec_common.peers import Peer
from pamspec_common.postgres import Connection, scoped
from pamspec_common.principal import Principal, TokenSigner, service_principal
from pamspec_common.strict_json import dumps
from pamspec_common.telemetry.metrics import SUBSCRIPTION_CLOSES
from pamspec_subscription.matching import Matcher
from pamspec_subscription.model import SCAN_ROWS, Subscription
from pamspec_subscription.queries import cursors, ledger, subscriptions
from pamspec_subscription.rights import REVOKED, Access
from pamspec_subscription.store import Store, read_page

_log = logging.getLogger(__name__)

_SCAN_STEPS = 100
_REVOCATIONS = 5
_PAGE = 500


class Lifecycle:
    """Makes subscriptions open and closed."""

    def __init__(self, store: Store, write: Peer, signer: TokenSigner, access: Access) -> None:
        self._store, self._write, self._signer, self._access = store, write, signer, access

    async def finish_opening(self, opening: Subscription) -> Subscription:
        """Write subscription_opened and make the row open; the refusal of the write service otherwise.

        A refusal for good removes the row; one that may pass leaves it to a retry or to `finish_leftovers`.
        """
        payload = {"subscription_id": opening.subscription_id, "channel": opening.channel}
        answer = await self._exercise(opening)
        if answer is None or answer.status < 400:
            answer = await self._record(opening, "subscription_opened", "opened", payload)
        async with self._store.session() as conn:
            if answer.status >= 500 or answer.status == 429:
                raise refused(answer)
            if answer.status >= 400:
                await subscriptions.refused(conn, *opening.key)
                raise refused(answer)
            await subscriptions.opened(conn, *opening.key, orjson.loads(answer.body)["ledger_sequence"])
            return await self._loaded(conn, opening)

    async def close(self, open_: Subscription, reason: str, delivered: int = 0) -> Subscription:
        """Close for good with a reason; a subscription that is closing or closed keeps its first one.

        `delivered` is how far a channel of this process is, when that is more than the row knows.
        """
        async with self._store.session() as conn:
            await subscriptions.closing(conn, open_.key, reason, delivered)
            closing = await self._loaded(conn, open_)
        return await self._finish_closing(closing) if closing.state == "closing" else closing

    async def revoke(self, open_: Subscription, principal: Principal, delivered: int = 0) -> Subscription:
        """Close what a principal may not receive any more; still open where its tenant is suspended, or where it may.

        Decided by the rights as they are now: a tenant that was suspended and resumed meanwhile loses nothing.
        """
        for _ in range(_REVOCATIONS):
            async with self._store.session() as conn:
                found = await self._loaded(conn, open_)
                if found.state == "open" and not found.suspended and not await self._receives(conn, principal, found):
                    await subscriptions.closing(
                        conn, found.key, "authorization_revoked", delivered, found.head.epochs[1]
                    )
                    found = await self._loaded(conn, open_)
                    if found.state == "open" and not found.suspended:
                        continue
            return await self._finish_closing(found) if found.state == "closing" else found
        raise ServiceUnavailable("The rights of this tenant are being changed; try again shortly.")

    async def _receives(self, conn: Connection, principal: Principal, found: Subscription) -> bool:
        try:
            await self._access.permitted(principal, found.actor, found.scope_key, found.head.epochs, conn)
        except REVOKED:
            return False
        return True

    async def remove_offboarded(self) -> None:
        """Remove what tenants had that are gone."""
        async with self._store.for_channels() as conn:
            await subscriptions.remove_offboarded(conn)

    async def _finish_closing(self, closing: Subscription) -> Subscription:
        payload = {"subscription_id": closing.subscription_id, **closed_record(closing)}
        answer = await self._record(closing, "subscription_closed", "closed", payload)
        if answer.status >= 400:
            raise refused(answer)
        async with self._store.session() as conn:
            await subscriptions.closed(conn, *closing.key, orjson.loads(answer.body)["ledger_sequence"])
            SUBSCRIPTION_CLOSES.add(1, {"reason": closing.closed_reason or "unsubscribed"})
            return await self._loaded(conn, closing)

    async def finish_leftovers(self, age: timedelta) -> None:
        """Finish every opening and closing that has been waiting for `age`."""
        async with self._store.for_channels() as conn:
            waiting = await subscriptions.leftovers(conn, age)
        for left in waiting:
            try:
                await (self.finish_opening(left) if left.state == "opening" else self._finish_closing(left))
            except PamspecError as error:
                _log.warning("a subscription stays %s: %s", left.state, error, extra={"action": "leftover_waits"})

    async def close_deleted(self) -> None:
        """Close what follows scopes that were deleted, whether or not anybody asks for it."""
        async with self._store.for_channels() as conn:
            found = await subscriptions.of_deleted_scopes(conn)
        for one in found:
            await self.close(one, "scope_deleted")

    async def close_unacknowledged(self, age: timedelta) -> list[Subscription]:
        """Close what has an undelivered or unacknowledged event older than `age` and made no progress meanwhile."""
        async with self._store.for_channels() as conn:
            candidates = await subscriptions.unacknowledged(conn, age)
        closed = []
        for candidate in candidates:
            if await self._is_behind(candidate, age):
                closed.append(await self.close(candidate, "unacknowledged"))
        return closed

    async def close_delegated(self) -> None:
        """Close what was opened under a grant that is not in force any more, whether somebody receives or not."""
        after = ""
        while True:
            async with self._store.for_channels() as conn:
                page = await subscriptions.delegated(conn, after, _PAGE)
            for one in page:
                try:
                    await self._access.permitted(one.principal, one.actor, one.scope_key, one.head.epochs)
                except REVOKED:
                    await self.revoke(one, one.principal)
            if len(page) < _PAGE:
                return
            after = page[-1].subscription_id

    async def _is_behind(self, candidate: Subscription, age: timedelta) -> bool:
        """Whether the oldest matching event beyond the cursor is old enough; the cursor passes what is excluded."""
        permitted = await self._access.viewer(
            candidate.principal, candidate.actor, candidate.scope_key, candidate.head.epochs
        )
        matcher = Matcher(candidate.filter, permitted.viewer)
        after = candidate.cursor
        async with self._store.for_channels() as conn:
            for _ in range(_SCAN_STEPS):
                page = await read_page(conn, candidate.scope_key, after, candidate.head, SCAN_ROWS, matcher)
                waiting = [entry for entry in page.entries if matcher.matches(entry)]
                async with scoped(conn, [candidate.scope_key]):
                    waiting = await ledger.in_sight(conn, candidate.scope_key, waiting, permitted)
                oldest = next(
                    (entry.sequence for entry in waiting if entry.sequence not in candidate.acked_ahead), None
                )
                if oldest is not None:
                    await cursors.pass_over(conn, candidate, oldest - 1)
                    async with scoped(conn, [candidate.scope_key]):
                        since, old_enough = await ledger.age_of(conn, candidate.scope_key, oldest, age)
                    await cursors.waiting_since(conn, candidate, since)
                    return old_enough
                if page.scanned_to == after:
                    break
                after = page.scanned_to
                await cursors.pass_over(conn, candidate, after)
        return False

    async def _loaded(self, conn: Connection, subscription: Subscription) -> Subscription:
        found = await subscriptions.load(conn, *subscription.key)
        if found is None:
            raise ServiceUnavailable("The subscription is being opened or refused elsewhere; try again shortly.")
        return found

    async def _exercise(self, opening: Subscription) -> Answer | None:
        """The use of the grant that is subscribed under, committed before anything is opened (P177); None without one.

        Its operation_id follows from the subscription's, so a repeated step is the same use.
        """
        delegation_id = opening.actor.get("delegation_id")
        if delegation_id is None:
            return None
        request = {
            "operation_id": f"op:{opening.subscription_id.partition(':')[2]}.used",
            "delegation_id": delegation_id,
            "scope_id": opening.scope_id,
            "operation": "subscribe",
            "actor": {name: opening.actor[name] for name in ("actor_id", "actor_kind")},
        }
        token = self._signer.sign(service_principal("subscription", opening.tenant_id))
        return await self._write.call(Call("exercise_delegation", token, dumps(request)))

    async def _record(self, of: Subscription, event_type: str, step: str, payload: dict[str, Any]) -> Answer:
        request: dict[str, Any] = {
            "operation_id": f"op:{of.subscription_id.partition(':')[2]}.{step}",
            "scope_id": of.scope_id,
            "actor": of.actor,
            "event_type": event_type,
            "payload": payload,
        }
        if of.evaluation_run_id is not None:
            request["evaluation_run_id"] = of.evaluation_run_id
        token = self._signer.sign(service_principal("subscription", of.tenant_id))
        return await self._write.call(Call("record_event", token, dumps(request)))


def closed_record(closed: Subscription) -> dict[str, Any]:
    """The terminal record of a subscription that is closing or closed."""
    return {"reason": closed.closed_reason, "last_delivered_sequence": closed.last_delivered or 0}


def refused(answer: Answer) -> PamspecError:
    """The error that an answer of another service stands for."""
    return told_error(answer.status, answer.body)
