"""Subscription quotas: how many subscriptions that are not closed a tenant and each of its principals may have.

Invariant: where there is a bound, counting and inserting are one turn of the tenant, so that openings at the same
moment never go beyond it together. A repetition of an earlier request is none of the bound's affair.
"""

from __future__ import annotations

from pamspec_common.postgres import Connection, scoped
from pamspec_common.quotas import NO_QUOTAS, Quotas, over_quota
from pamspec_subscription.queries import quotas as queries
from pamspec_subscription.queries import subscriptions
from pamspec_subscription.queries.subscriptions import NewSubscription

RETRY_AFTER_S = 10


class SubscriptionQuotas:
    """Inserts new subscriptions where there is room for them."""

    def __init__(self, defaults: Quotas) -> None:
        self._defaults = NO_QUOTAS.over(defaults)

    async def insert(self, conn: Connection, new: NewSubscription) -> bool:
        """Insert a row in state opening; False when one with its key or operation_id exists.

        ServiceUnavailable (429) when the tenant or the principal has as many as it may.
        """
        quotas = (await queries.quotas_of_tenant(conn, new.tenant_id)).over(self._defaults)
        bounds = [
            ("tenant", None, quotas.tenant.subscriptions),
            ("principal", new.principal.actor_id, quotas.principal.subscriptions),
        ]
        if all(bound is None for _, _, bound in bounds):
            return await subscriptions.insert(conn, new)
        async with scoped(conn, [new.scope_key]):
            await queries.take_turn(conn, new.tenant_id)
            inserted = await subscriptions.insert(conn, new)
            if inserted:
                for whose, principal_id, bound in bounds:
                    if bound is not None:
                        await _check(conn, new.tenant_id, whose, principal_id, bound)
            return inserted


async def _check(conn: Connection, tenant_id: str, whose: str, principal_id: str | None, bound: int) -> None:
    """Raise when there are more than `bound` with the one that was just inserted."""
    if await queries.count_open(conn, tenant_id, principal_id, bound + 1) > bound:
        raise over_quota(
            f"{whose}.subscriptions",
            bound,
            f"This {whose} may have {bound} subscriptions and has them; unsubscribe from one that nobody follows, or"
            f" ask the operator for a higher {whose}.subscriptions.",
            RETRY_AFTER_S,
        )
