"""Rebuild, drop and verify: online, to the end whatever is killed, and told in the ledger once."""

from __future__ import annotations

import asyncio

import pytest

from pamspec_common.postgres import scoped
from services.indexing.tests.test_lexical import counts, create, search
from services.indexing.tests.world import PATIENCE_S, Garden, World
from services.write.tests.delegating import agent
from services.write.tests.writer import Document

ROWS_SQL = """
SELECT 'd', x.object_id, d.language::bigint, d.length::bigint, d.word_order,
       array(SELECT unnest(d.terms) ORDER BY 1)::text
FROM index_.lexical_document d JOIN index_.indexed_object x USING (scope_key, doc) WHERE d.scope_key = $1
UNION ALL
SELECT 'p', x.object_id, p.term, p.times::bigint, '', p.length::text
FROM index_.lexical_posting p JOIN index_.indexed_object x USING (scope_key, doc) WHERE p.scope_key = $1
UNION ALL SELECT 't', '', term, documents, '', '' FROM index_.lexical_term WHERE scope_key = $1
UNION ALL SELECT 's', '', language, documents, length::text, '' FROM index_.lexical_statistics
  WHERE scope_key = $1 AND documents > 0
ORDER BY 1, 2, 3, 4"""


async def rows(garden: Garden) -> list[tuple[object, ...]]:
    """All that the lexical index holds of the scope, in an order of its own."""
    async with scoped(garden.conn, [garden.key]):
        return [tuple(row) for row in await garden.conn.fetch(ROWS_SQL, garden.key)]


async def ask(garden: Garden, kind: str) -> Document:
    return await garden.ok(f"{kind}_index", {"scope_id": garden.writer.scope, "index_id": "index:lexical"})


async def ended(garden: Garden) -> Document:
    """The index once its job has ended."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await garden.index()
            if found["job"]["state"] == "done":
                return found
            await asyncio.sleep(0.02)


async def plant(garden: Garden) -> list[tuple[object, ...]]:
    """Some objects, and the rows that they have."""
    made = [await create(garden, f"marigold number {n}") for n in range(4)]
    await garden.writer.update(made[0], "a tulip instead")
    await garden.writer.delete(made[1])
    await garden.settled()
    return await rows(garden)


DAMAGE = [
    "DELETE FROM index_.lexical_posting WHERE doc = (SELECT min(doc) FROM index_.lexical_posting)",
    "DELETE FROM index_.lexical_document WHERE doc = (SELECT min(doc) FROM index_.lexical_document)",
    "UPDATE index_.lexical_document SET word_order = ' meddled '",
    "UPDATE index_.lexical_term SET documents = documents + 1",
    "DELETE FROM index_.lexical_statistics",
    "UPDATE index_.indexed_object SET sequence = sequence - 1",
    "DELETE FROM index_.indexed_object WHERE NOT removed",
    "INSERT INTO index_.lexical_posting SELECT scope_key, 7, doc, 1, 1 FROM index_.lexical_document",
]


@pytest.mark.parametrize("damage", DAMAGE)
async def test_what_a_verification_finds_a_rebuild_mends(garden: Garden, damage: str) -> None:
    """Each kind of damage; before it and after the rebuild there is nothing to find."""
    right = await plant(garden)
    await ask(garden, "verify")
    assert (await ended(garden))["job"]["problems"] == {"missing": 0, "stale": 0, "stray": 0}
    async with scoped(garden.conn, [garden.key]):
        await garden.conn.execute(damage)
    await ask(garden, "verify")
    assert any((await ended(garden))["job"]["problems"].values())
    await ask(garden, "rebuild")
    await ended(garden)
    assert await rows(garden) == right
    await ask(garden, "verify")
    assert (await ended(garden))["job"]["problems"] == {"missing": 0, "stale": 0, "stray": 0}


async def test_a_rebuild_makes_no_version_and_is_told_once(garden: Garden) -> None:
    """P18, P193: the ledger tells of it, and nothing else of the canonical state moves."""
    await plant(garden)
    versions = await garden.writer.count("core.version")
    await ask(garden, "rebuild")
    await ended(garden)
    async with asyncio.timeout(PATIENCE_S):
        while not (told := [one for one in await garden.writer.ledger() if one.event["event_type"] == "index_rebuilt"]):
            await asyncio.sleep(0.02)
    assert len(told) == 1
    assert told[0].event["payload"]["index_id"] == "index:lexical"
    assert told[0].event["payload"]["watermark"] >= 1
    assert await garden.writer.count("core.version") == versions


async def test_a_dropped_index_is_written_to_no_more_until_it_is_rebuilt(garden: Garden) -> None:
    """P190: deletable by itself; the canonical content stays (P19)."""
    await plant(garden)
    await ask(garden, "drop")
    found = await ended(garden)
    assert (found["state"], found["watermark"]["sequence"]) == ("dropped", 0)
    assert found["lag"]["events"] > 0
    assert (await counts(garden))["documents"] == 0
    late = await create(garden, "marigold while it is dropped")
    await garden.taken_in()
    assert await search(garden, "marigold") == []
    await ask(garden, "rebuild")
    assert (await ended(garden))["state"] == "ready"
    assert late["object_id"] in await search(garden, "marigold")
    assert len(await search(garden, "marigold")) == 3


async def test_queries_go_on_while_an_index_is_rebuilt(garden: Garden) -> None:
    await plant(garden)
    expected = await search(garden, "marigold")
    job = await ask(garden, "rebuild")
    again = await ask(garden, "rebuild")
    assert {job["job"]["kind"], again["job"]["kind"]} == {"rebuild"}
    while (await garden.index())["job"]["state"] != "done":
        assert await search(garden, "marigold") == expected
    assert await search(garden, "marigold") == expected


async def test_who_may_not_administer_gets_no_job(garden: Garden) -> None:
    document = {"scope_id": garden.writer.scope, "index_id": "index:lexical"}
    for operation in ("rebuild_index", "drop_index", "verify_index"):
        answer = await garden.call(operation, document, agent("stranger"))
        assert b"scope_not_found" in answer.body
    answer = await garden.call("rebuild_index", {**document, "index_id": "index:other"})
    assert b"index:lexical" in answer.body


async def test_a_service_that_is_stopped_amid_a_job_leaves_it_to_the_next(world: World, garden: Garden) -> None:
    """The page that was under way did not happen; the next process goes on behind the last one that did."""
    right = await plant(garden)
    await ask(garden, "rebuild")
    other = await world.service()
    await ended(garden)
    await other.stop()
    assert await rows(garden) == right
