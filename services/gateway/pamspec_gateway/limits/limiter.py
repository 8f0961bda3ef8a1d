"""The limiter: the one place that every door passes before an operation goes to a service.

Invariants: a request that is refused costs nobody's budget; what a request costs is charged to its principal and its
tenant together; what waits long (polls, streams, transfers, reads that wait) takes no place among the requests; an
answer that something is not there is held back (`absences.py`) after its place was given back.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from pamspec_common import contracts
from pamspec_common.calls import Answer, Call
from pamspec_common.errors import PamspecError, ServiceUnavailable
from pamspec_common.peers import Peer
from pamspec_common.principal import Principal
from pamspec_common.quotas import NO_QUOTAS, Quotas
from pamspec_common.service import Background
from pamspec_common.telemetry.metrics import BUDGET_LEFT, LIMITED
from pamspec_common.turns import Turns
from pamspec_gateway.absences import Absences, tells_absence
from pamspec_gateway.limits.budgets import MAX_WEIGHT, Spent
from pamspec_gateway.limits.holders import Holder, TenantHolder
from pamspec_gateway.limits.sharing import Sharing

_log = logging.getLogger(__name__)
_FORGET_AFTER_S = 60.0
_PUT_OFF_S = (0.05, 0.15)
"""When a refusal for a rate is told: long before Retry-After, and long enough that who ignores it comes less often."""
_PUT_OFF_AT_ONCE = 4096
_TOO_MANY = 429

Documents = Callable[[Sequence[str]], Awaitable[dict[str, Quotas]]]
"""The quota documents of those of the tenants that have one."""


class _Items(msgspec.Struct):
    items: list[msgspec.Raw] = []


class _Waiting(msgspec.Struct):
    wait_ms: int = 0


_items = msgspec.json.Decoder(_Items)
_waiting = msgspec.json.Decoder(_Waiting)


class Limiter:
    """The limits of one gateway process."""

    def __init__(
        self,
        turns: Turns,
        sharing: Sharing | None = None,
        documents: Documents | None = None,
        defaults: Quotas = NO_QUOTAS,
        clock: Callable[[], float] = time.monotonic,
        absences: Absences | None = None,
    ) -> None:
        self.absences = absences or Absences()
        self._turns, self._sharing, self._documents, self._clock = turns, sharing, documents, clock
        self._defaults = NO_QUOTAS.over(defaults)
        self._tenants: dict[str, TenantHolder] = {}
        self._holders: dict[tuple[str, str], Holder] = {}
        self._refused: Counter[str] = Counter()
        self._put_off = 0

    async def holder(self, principal: Principal) -> Holder:
        """Who holds the budgets of a principal, by the quotas of its tenant, which are looked at once before."""
        tenant = self._tenants.get(principal.tenant_id)
        if tenant is None:
            tenant = self._tenants[principal.tenant_id] = TenantHolder(principal.tenant_id, self._defaults)
        if not tenant.known:
            await self._look_up([tenant])
        tenant.used_at = self._clock()
        key = (principal.tenant_id, principal.actor_id)
        holder = self._holders.get(key)
        if holder is None or holder.tenant is not tenant:
            holder = self._holders[key] = Holder(tenant, principal.actor_id)
        holder.used_at = tenant.used_at
        return holder

    def check(self, holder: Holder) -> None:
        """Raise (429) when the principal or its tenant has no room for one more request; nothing is charged."""
        spent = holder.check(self._clock())
        if spent is not None:
            raise self._refusal(spent)

    def charge(self, holder: Holder, weight: int = 1) -> None:
        """Take what a request costs from both budgets, or refuse it (429) and take nothing."""
        now = self._clock()
        spent = holder.check(now)
        if spent is not None:
            raise self._refusal(spent)
        for budget in (holder.budget, holder.tenant.budget):
            if budget.per_s:
                budget.charge(now, weight)
                if self._sharing is not None:
                    self._sharing.charged(budget, now)

    async def call(self, holder: Holder, peer: Peer, call: Call, *, waits: bool = False) -> Answer:
        """Charge an operation, wait for its turn, and let the service answer it."""
        self.charge(holder, _weight(call))
        came = self.absences.now()
        answer = await self._answered(holder, peer, call, waits)
        if tells_absence(call.operation, answer):
            await self.absences.hold(came)
        return answer

    async def _answered(self, holder: Holder, peer: Peer, call: Call, waits: bool) -> Answer:
        if waits or waits_long(call):
            return await peer.call(call)
        line = holder.tenant.line
        if not self._turns.take(line):
            await self._turns.wait(line)
        try:
            return await peer.call(call)
        finally:
            self._turns.give_back(line)

    async def put_off(self, error: PamspecError) -> None:
        """Wait a moment before a refusal for a limit (429) is told, each a different one; nothing else waits.

        Callers who go on at once would otherwise come back all together, as often as they can, and cost others their
        time by being refused.
        """
        if error.http_status != _TOO_MANY or self._put_off >= _PUT_OFF_AT_ONCE:
            return
        self._put_off += 1
        try:
            await asyncio.sleep(random.uniform(*_PUT_OFF_S))
        finally:
            self._put_off -= 1

    def check_room(self, tenant: TenantHolder, waits: bool, held: int, capacity: int) -> None:
        """Raise (429) when the tenant holds its part of this process already."""
        try:
            tenant.check_room(waits, held, capacity)
        except PamspecError:
            self._refused["tenant.channels" if waits else "tenant.concurrency"] += 1
            raise

    def _refusal(self, spent: Spent) -> ServiceUnavailable:
        self._refused[spent.limit] += 1
        return spent.refusal()

    async def watch(self, background: Background, every_s: float) -> None:
        """Look at the documents of all tenants in use again and again, and forget who is idle."""
        while not await background.pause(every_s):
            await self._look_up(list(self._tenants.values()))
            self._forget()

    async def _look_up(self, tenants: Sequence[TenantHolder]) -> None:
        """Apply the documents in force; while they can't be read, what is known goes on to hold."""
        if self._documents is None or not tenants:
            return
        try:
            found = await self._documents([tenant.tenant_id for tenant in tenants])
        except ServiceUnavailable as error:
            _log.warning("quotas cannot be read: %s", error.message, extra={"action": "quotas_unread"})
            return
        for tenant in tenants:
            tenant.known = True
            quotas = found.get(tenant.tenant_id, NO_QUOTAS).over(self._defaults)
            if quotas != tenant.quotas:
                tenant.apply(quotas)

    def _forget(self) -> None:
        """Forget those who were not seen for a while and have spent nothing: they begin as they are."""
        now = self._clock()
        before = now - _FORGET_AFTER_S
        for key, holder in list(self._holders.items()):
            if holder.used_at < before and holder.budget.settled(now):
                del self._holders[key]
        alive = {holder.tenant.tenant_id for holder in self._holders.values()}
        for tenant_id, tenant in list(self._tenants.items()):
            if tenant_id not in alive and tenant.used_at < before and tenant.idle(now):
                del self._tenants[tenant_id]

    def flush(self) -> None:
        """Move counts and levels into the metrics; no label names a tenant or a principal."""
        refused, self._refused = self._refused, Counter()
        for limit, count in refused.items():
            LIMITED.add(count, {"limit": limit})
        now = self._clock()
        left = {
            "tenant": min((tenant.budget.left(now) for tenant in self._tenants.values()), default=1.0),
            "principal": min((holder.budget.left(now) for holder in self._holders.values()), default=1.0),
        }
        for whose, share in left.items():
            BUDGET_LEFT.set(share, {"of": whose})


def waits_long(call: Call) -> bool:
    """Whether an operation is a read that asks to wait; a write never is, whatever stands in it."""
    if b'"wait_ms"' not in call.body:
        return False
    operation = contracts.operations().get(call.operation)
    if operation is None or operation.writes:
        return False
    try:
        return _waiting.decode(call.body).wait_ms > 0
    except msgspec.DecodeError:
        return False


def _weight(call: Call) -> int:
    """What an operation costs: one, or a batch as many as it has items."""
    if call.operation != "batch":
        return 1
    try:
        return min(MAX_WEIGHT, max(1, len(_items.decode(call.body).items)))
    except msgspec.DecodeError:
        return 1
