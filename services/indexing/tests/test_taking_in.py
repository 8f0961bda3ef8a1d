"""What the ledger tells reaches the indexes, once and in order, whatever order it comes in."""

from __future__ import annotations

import asyncio
import itertools

import asyncpg
import pytest

from pamspec_cli.servers.databases import Database
from pamspec_common.consuming.model import Entry, Poison
from pamspec_common.postgres import scoped
from pamspec_indexing.model import touched
from pamspec_indexing.queries import clearing, indexes, jobs, lexical, objects
from services.indexing.tests.world import PATIENCE_S, Garden, World
from services.write.tests.delegating import agent
from services.write.tests.writer import PROVENANCE


async def test_a_write_is_taken_in_and_the_watermark_says_so(garden: Garden) -> None:
    made = await garden.writer.create({"statement": "The depot opens at six."})
    found = await garden.settled()
    entries = await garden.entries()
    assert found["watermark"]["sequence"] == entries[-1].sequence
    assert found["lag"] == {"events": 0, "seconds": 0}
    assert [(one[0], one[1], one[3]) for one in await garden.objects()] == [
        (made["object_id"], made["version_id"], False)
    ]


async def test_every_order_of_late_and_repeated_entries_ends_the_same(world: World, garden: Garden) -> None:
    """M039: v3, v1, v2, each twice; the object is gone in the end, and stays gone."""
    made = await garden.writer.create("first")
    changed = await garden.writer.update(made, "second")
    await garden.writer.delete(changed)
    entries = [entry for entry in await garden.entries() if b"version_id" in entry.event]
    await garden.settled()
    expected = await garden.objects()
    assert [one[3] for one in expected] == [True]
    for order in itertools.permutations(entries):
        for entry in (*order, *order):
            await garden.take([entry])
        assert await garden.objects() == expected


async def test_relationships_are_taken_in_and_a_tombstone_removes(garden: Garden) -> None:
    one, two = await garden.writer.create("one"), await garden.writer.create("two")
    joined = await garden.writer.relate(one, two)
    await garden.settled()
    assert {name for name, _, _, removed in await garden.objects() if not removed} == {
        one["object_id"], two["object_id"], joined["relationship_id"],
    }  # fmt: skip
    gone = await garden.writer.ok(
        "redact",
        garden.writer.change(one, policy_basis="test", redaction_target={"whole": True}, provenance=PROVENANCE),
    )
    await garden.settled()
    assert {name for name, _, _, removed in await garden.objects() if removed} == {gone["object_id"]}


async def test_lag_is_told_in_entries_and_seconds(garden: Garden) -> None:
    await garden.writer.create("one")
    await garden.settled()
    async with scoped(garden.conn, [garden.key]):
        await garden.conn.execute(
            "UPDATE index_.watermark SET sequence = sequence - 1 WHERE scope_key = $1", garden.key
        )
    (index,) = (await garden.indexes())["indexes"]
    assert index["lag"]["events"] == 1
    assert index["lag"]["seconds"] >= 0


async def test_who_may_not_query_learns_nothing_of_indexes(garden: Garden) -> None:
    answer = await garden.call("list_indexes", {"scope_id": garden.writer.scope}, agent("stranger"))
    assert b"scope_not_found" in answer.body
    other = await garden.call("list_indexes", {"scope_id": "scope:nowhere"})
    assert b"scope_not_found" in other.body


def test_an_entry_that_cannot_be_read_is_poison() -> None:
    with pytest.raises(Poison):
        touched([Entry(1, 1, "evt:1", "object_created", b'{"object_id": 7}')])
    assert touched([Entry(1, 1, "evt:1", "access_denied", b"not looked at")]) == []


MODULES = (objects, indexes, lexical, clearing, jobs)
STATEMENTS = [(module, name) for module in MODULES for name in vars(module) if name.endswith("_SQL")]


@pytest.mark.parametrize(("module", "name"), STATEMENTS)
async def test_every_statement_prepares_as_the_service_role(database: Database, module: object, name: str) -> None:
    conn = await asyncpg.connect(database.role("indexing"))
    await conn.prepare(getattr(module, name))
    await conn.close()


async def test_a_ledger_that_was_restored_is_taken_in_anew(garden: Garden) -> None:
    """A new epoch: what was made of the scope is forgotten, and its entries come again."""
    await garden.writer.create("one")
    before = await garden.settled()
    key, admin = garden.key, garden.writer.admin
    await admin.execute("UPDATE core.scope_head SET ledger_epoch = ledger_epoch + 1 WHERE scope_key = $1", key)
    async with asyncio.timeout(PATIENCE_S):
        while (await garden.settled())["watermark"]["ledger_epoch"] == before["watermark"]["ledger_epoch"]:
            await asyncio.sleep(0.02)
    assert len(await garden.objects()) == 1
    assert (await garden.settled())["watermark"]["sequence"] == before["watermark"]["sequence"]


async def test_a_consumer_that_stands_still_shows_in_readiness_and_writes_go_on(world: World, garden: Garden) -> None:
    """M080: degraded with the part and its lag; as soon as it moves again, all is well."""
    service = await world.service(index_lag_s=0.2)

    async def lag() -> tuple[bool, int]:
        _, parts = await service.ready()
        part = next(one for one in parts if one.name == "index_lag")
        assert not part.essential
        return part.ok, int(part.detail["events"])

    await garden.writer.create("before")
    await garden.settled()
    patient = {"lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}
    blocker = await asyncpg.connect(world.database.role("indexing"), server_settings=patient)
    async with asyncio.timeout(PATIENCE_S):
        async with blocker.transaction():
            await clearing.lock(blocker, garden.key)
            await garden.writer.create("while nothing moves")
            while (await lag())[0]:
                await asyncio.sleep(0.05)
            assert (await lag())[1] >= 1
        while not (await lag())[0]:
            await asyncio.sleep(0.05)
    await blocker.close()
    await garden.settled()
    await service.stop()
