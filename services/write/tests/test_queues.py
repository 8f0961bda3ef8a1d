"""Who goes next into a group commit."""

from __future__ import annotations

import asyncio

from pamspec_common.principal import Principal
from pamspec_write.handlers.queues import Queue, Waiting
from pamspec_write.model.commands import BatchCommand
from pamspec_write.model.facts import ScopeRef
from services.write.tests.writer import ADMIN, Writer, claim


def waiting(tenant_id: str, name: str) -> Waiting:
    """Work of a tenant."""
    scope = ScopeRef(1, tenant_id, "scope:1", "t", "s", 0)
    return Waiting(BatchCommand([], False, name, b"", None, None, scope, "agent:a"))


async def test_tenants_take_turns_and_each_keeps_its_order() -> None:
    queue = Queue()
    for name in ("a1", "a2", "a3", "b1", "a4", "b2", "c1"):
        queue.append(waiting(f"tenant:{name[0]}", name))
    assert queue.first.work.operation_id == "a1"
    assert len(list(queue)) == 7
    order = []
    while queue:
        first = queue.first
        assert queue.popleft() is first
        order.append(first.work.operation_id)
        if order == ["a1", "b1"]:
            queue.append(waiting("tenant:d", "d1"))
    assert order == ["a1", "b1", "c1", "a2", "b2", "d1", "a3", "a4"]


async def test_a_create_does_not_wait_behind_all_the_batches_of_another_tenant(shared: Writer) -> None:
    tenant_id = f"tenant:quiet-{shared.scope.partition(':')[2]}"
    await shared.admin.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1)", tenant_id)
    quiet = Principal(tenant_id, "agent:quiet", "agent", roles=ADMIN)
    lanes, lane = shared.settings.lanes, await shared.scope_key()
    scope = await shared.new_scope(by=quiet)
    while (await shared.scope_key(scope, tenant_id) - lane) % lanes:
        scope = await shared.new_scope(by=quiet)
    item = {"operation": "create", **claim(shared.scope, "x" * 500)}
    del item["scope_id"]
    batch = {"scope_id": shared.scope, "items": [item] * 300}
    loud = [asyncio.ensure_future(shared.ok("batch", batch)) for _ in range(24)]
    await asyncio.wait(loud, return_when=asyncio.FIRST_COMPLETED)
    await shared.ok("create", claim(scope), by=quiet)
    left = sum(not one.done() for one in loud)
    await asyncio.gather(*loud)
    assert left > 0
