"""Who holds budgets: tenants and their principals, with the quotas that hold for them now."""

from __future__ import annotations

from pamspec_common.errors import ServiceUnavailable
from pamspec_common.ids import subject_token
from pamspec_common.quotas import MAX_BODY_BYTES, Quotas, over_quota
from pamspec_common.turns import Line
from pamspec_gateway.limits.budgets import Budget, Spent


class TenantHolder:
    """One tenant in this process: its budget, its line, and what it has under way."""

    __slots__ = ("body_bytes", "budget", "known", "line", "quotas", "tenant_id", "under_way", "used_at", "waiting")

    def __init__(self, tenant_id: str, quotas: Quotas) -> None:
        self.tenant_id = tenant_id
        self.budget = Budget(subject_token(tenant_id))
        self.line = Line()
        self.under_way = self.waiting = 0
        self.known = False
        """Whether its document was looked at."""
        self.used_at = 0.0
        self.quotas = quotas
        self.body_bytes = MAX_BODY_BYTES
        self.apply(quotas)

    def apply(self, quotas: Quotas) -> None:
        """Let these quotas hold from now on."""
        self.quotas = quotas
        self.budget.set_rate(quotas.tenant.requests_per_s, quotas.tenant.burst)
        self.body_bytes = quotas.tenant.body_bytes or MAX_BODY_BYTES

    def check_room(self, waits: bool, held: int, capacity: int) -> None:
        """Raise (429) when the tenant has as much under way as its quota allows, or more than the process has free.

        So one tenant alone can hold half of a process, two a third each, and there is always something free for
        another one.
        """
        own = self.waiting if waits else self.under_way
        bound = self.quotas.tenant.channels if waits else self.quotas.tenant.concurrency
        limit = "tenant.channels" if waits else "tenant.concurrency"
        what = "polls, streams and transfers open" if waits else "requests under way"
        if bound is not None and own >= bound:
            raise over_quota(
                limit,
                bound,
                f"This tenant may have {bound} {what} at once; wait for some to end, or ask the operator for a higher"
                f" {limit}.",
                1,
            )
        if own > capacity - held:
            raise _crowding(limit, what, own)

    def idle(self, now: float) -> bool:
        """Whether forgetting it loses nothing."""
        return not (self.under_way or self.waiting) and self.budget.settled(now)


class Holder:
    """One principal of a tenant."""

    __slots__ = ("budget", "rate", "tenant", "used_at")

    def __init__(self, tenant: TenantHolder, actor_id: str) -> None:
        self.tenant = tenant
        self.budget = Budget(subject_token(tenant.tenant_id, actor_id))
        self.rate: Quotas | None = None
        self.used_at = 0.0

    def check(self, now: float) -> Spent | None:
        """The budget that has no room for one more; None when both have."""
        tenant, own = self.tenant, self.budget
        if self.rate is not tenant.quotas:
            self.rate = tenant.quotas
            own.set_rate(tenant.quotas.principal.requests_per_s, tenant.quotas.principal.burst)
        wait = own.wait(now)
        if wait > 0:
            return Spent(own, wait, "principal.requests_per_s")
        wait = tenant.budget.wait(now)
        return Spent(tenant.budget, wait, "tenant.requests_per_s") if wait > 0 else None


def _crowding(limit: str, what: str, own: int) -> ServiceUnavailable:
    return over_quota(
        limit,
        own,
        f"This tenant has {own} {what} here, and more would leave nothing to others; wait for some to end.",
        1,
    )
