"""Holds that race with a sweeper that deletes: what is held is never erased, and the ledger tells who was first."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import orjson

from services.retention_sweeper.tests.test_sweeping import garden
from services.retention_sweeper.tests.world import World, until
from services.write.tests.writer import Document, claim

OBJECTS = 1_000


async def test_a_thousand_holds_against_a_sweeper_that_deletes(world: World) -> None:
    here = await garden(world)
    items = [{"operation": "create", **claim(here.writer.scope, f"object {n}")} for n in range(OBJECTS)]
    made: list[Document] = (await here.writer.ok("batch", {"scope_id": here.writer.scope, "items": items}))["results"]
    await here.govern(ttl_seconds=60, deletion={"after_seconds": 0, "delay_seconds": 0})
    key, few = await here.writer.scope_key(), asyncio.Semaphore(20)

    async def hold(of: Document) -> bool:
        async with few:
            while True:
                answer = await here.writer.call(
                    "transition",
                    here.writer.change(of, dimension="retention", target_state="legal_hold", policy_basis="a suit"),
                )
                if answer.status < 300:
                    return True
                error = orjson.loads(answer.body)["error"]
                if error["code"] != "version_conflict":
                    assert error["code"] == "object_deleted"
                    return False
                of = {**of, "version_id": error["details"]["current_version_id"]}

    async def over() -> bool:
        left = await here.writer.admin.fetchval(
            "SELECT count(*) FROM core.object_head WHERE scope_key = $1 AND availability_state <> 'deleted'"
            " AND retention_state <> 'legal_hold'",
            key,
        )
        return bool(left == 0)

    async with world.sweeping(timedelta(hours=1), retention_batch=50, retention_objects_per_s=1_000_000):
        held = await asyncio.gather(*map(hold, made))
        await until(over)
    rows = await here.writer.admin.fetch(
        "SELECT s.object_id, s.availability_state, s.retention_state, p.content IS NOT NULL AS there"
        " FROM core.object_head s JOIN core.version_private p"
        " ON p.scope_key = s.scope_key AND p.ledger_seq = s.from_seq"
        " WHERE s.scope_key = $1",
        key,
    )
    found = {row["object_id"]: (row["availability_state"], row["retention_state"], row["there"]) for row in rows}
    for of, kept in zip(made, held, strict=True):
        state = found[of["object_id"]]
        assert state == ("available", "legal_hold", True) if kept else state[0::2] == ("deleted", False), state
    await here.writer.check_scope()
