"""Pages of what was erased are written anew in time, once, and nobody waits for it unasked."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from pamspec_common.service import Part, Service
from services.retention_sweeper.tests.world import World
from services.write.tests.writer import claim

OWED = {"core.data_key", "core.operation_record", "core.source_event", "core.version_private", "core.version_span"}


COUNT = "SELECT count(*) FROM core.page_rewrite WHERE relation LIKE 'core.%'"
RECEIPT = "SELECT closed_at, surfaces -> 'page_bytes' ->> 'state' AS pages FROM core.erasure WHERE scope_key = $1"


async def _erased(world: World) -> int:
    """The key of a scope in which something was deleted, and of whose entries none waits for the bus."""
    writer = await world.writer.afresh()
    made = await writer.ok("create", claim(writer.scope))
    about = {name: made[name] for name in ("scope_id", "object_id")}
    await writer.ok("delete", {**about, "expected_version_id": made["version_id"], "policy_basis": "asked"})
    await writer.admin.execute("DELETE FROM relay.outbox WHERE scope_key = $1", await writer.scope_key())
    return await writer.scope_key()


async def _pages(service: Service) -> Part:
    return {part.name: part for part in (await service.ready())[1]}["page_bytes"]


async def _owed(world: World) -> set[str]:
    return {
        row[0]
        for row in await world.writer.admin.fetch("SELECT relation FROM core.pages_due() WHERE relation LIKE 'core.%'")
    }


async def _receipt(world: World, key: int) -> asyncpg.Record:
    row = await world.writer.admin.fetchrow(RECEIPT, key)
    assert row is not None
    return row


async def _until(world: World, owed: set[str]) -> None:
    async with asyncio.timeout(60):
        while await _owed(world) != owed:
            await asyncio.sleep(0.05)


async def test_what_is_owed_is_rewritten_by_two_sweepers_together(world: World) -> None:
    await _erased(world)
    assert await _owed(world) == OWED
    before = await world.writer.admin.fetchval(COUNT)
    soon: Any = {"page_rewrite_after_s": 0, "page_poll_s": 0.05}
    sweepers = [await world.sweeper(**soon), await world.sweeper(**soon)]
    await _until(world, set())
    for sweeper in sweepers:
        await sweeper.stop()
    done = await world.writer.admin.fetchval(COUNT)
    assert done - before == len(OWED), "each relation once, whoever did it"


async def test_what_is_overdue_is_said_and_a_relation_too_large_is_left(world: World) -> None:
    await _erased(world)
    sweeper = await world.sweeper(page_rewrite_after_s=0, page_poll_s=0.05, page_deadline_s=0.001, page_rewrite_bytes=1)
    async with asyncio.timeout(60):
        while not set((await _pages(sweeper)).detail.get("overdue", ())) >= OWED:
            await asyncio.sleep(0.05)
    part = await _pages(sweeper)
    assert not part.ok
    assert not part.essential
    assert set(part.detail["too_large"]) >= OWED
    assert (await sweeper.ready())[0], "it goes on with everything else"
    await sweeper.stop()
    assert await _owed(world) == OWED


async def test_a_busy_relation_is_tried_again(world: World) -> None:
    await _erased(world)
    reader = await asyncpg.connect(world.database.dsn)
    async with reader.transaction():
        await reader.execute("LOCK TABLE core.version_span IN ACCESS SHARE MODE")
        sweeper = await world.sweeper(page_rewrite_after_s=0, page_poll_s=0.05)
        await _until(world, {"core.version_span"})
    await reader.close()
    await _until(world, set())
    await sweeper.stop()


async def test_a_receipt_closes_with_its_pages_those_of_indexes_included(world: World) -> None:
    """The derived index has nothing, so no table of it holds the erasure up, and each is written anew all the same."""
    key = await _erased(world)
    waits = await world.sweeper(erasure_retry_s=0.1, page_poll_s=0.05)
    async with asyncio.timeout(60):
        while (await _receipt(world, key))["pages"] != "open":
            await asyncio.sleep(0.05)
    assert (await _receipt(world, key))["closed_at"] is None
    await waits.stop()
    sweeper = await world.sweeper(erasure_retry_s=0.1, page_rewrite_after_s=0, page_poll_s=0.05)
    async with asyncio.timeout(60):
        while (await _receipt(world, key))["closed_at"] is None:
            await asyncio.sleep(0.05)
    assert (await _receipt(world, key))["pages"] == "closed"
    written = {
        row["relation"] for row in await world.writer.admin.fetch("SELECT relation FROM core.page_bytes($1)", key)
    }
    assert written > OWED
    await sweeper.stop()
