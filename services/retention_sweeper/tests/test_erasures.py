"""The verification of erasures: what closes a receipt, what keeps it open, and what a scan finds and repairs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import orjson
import pytest
import pytest_asyncio

from pamspec_common.analysis import sought
from pamspec_common.surfaces import SURFACES
from pamspec_retention_sweeper.handlers.erasures import ErasureJob
from pamspec_retention_sweeper.model.erasures import ABSENT, clean, left, noted, wait_s, waiting
from pamspec_retention_sweeper.queries import erasures, scans
from pamspec_retention_sweeper.store import Store
from services.retention_sweeper.tests.world import World
from services.write.tests.writer import SUBSCRIPTION, Document, Writer

SECRET = "SECRET-123 of Ann"
PLACE = (
    "INSERT INTO index_.indexed_object (scope_key, object_id, kind, version_id, sequence, removed) "
    "VALUES ($1, $2, 'o', 'v', $3, $4) RETURNING doc"
)
MARK = "INSERT INTO index_.watermark (scope_key, index_id, ledger_epoch, sequence) VALUES ($1, 'index:lexical', 1, $2)"
OUTBOX = "DELETE FROM relay.outbox WHERE scope_key = $1"
NO_PAGES = "DELETE FROM core.page_debt WHERE scope_key = $1"


@pytest_asyncio.fixture(loop_scope="session")
async def writer(world: World) -> Writer:
    """A scope of the test alone."""
    return await world.writer.afresh()


@pytest_asyncio.fixture(loop_scope="session")
async def job(world: World) -> AsyncIterator[ErasureJob]:
    """The verification, which runs when the test says so."""
    settings = world.settings(erasure_retry_s=0.001)
    store = Store(settings)
    await store.open()
    yield ErasureJob(store, settings)
    await store.close()


async def deleted(writer: Writer, content: Any = SECRET) -> Document:
    """The answer to the deletion of an object with this content, whose pages count as written anew (see test_pages)."""
    made = await writer.create({"text": content})
    change = writer.change(made, policy_basis="asked")
    answer = await writer.ok("delete", change)
    await writer.admin.execute(NO_PAGES, await writer.scope_key())
    return answer


async def receipt(writer: Writer, erasure_id: str) -> Any:
    """The row of an erasure."""
    return await writer.admin.fetchrow("SELECT * FROM core.erasure WHERE erasure_id = $1", erasure_id)


def lines(row: Any) -> dict[str, Any]:
    """What is noted of its surfaces."""
    found: dict[str, Any] = orjson.loads(row["surfaces"])
    return found


async def verified(job: ErasureJob, writer: Writer, erasure_id: str) -> Any:
    """The row after one more verification, due or not."""
    key = await writer.scope_key()
    await writer.admin.execute("UPDATE core.erasure SET due_at = now() WHERE erasure_id = $1", erasure_id)
    await job.verify(key)
    return await receipt(writer, erasure_id)


async def test_an_erasure_closes_once_every_surface_is_settled(job: ErasureJob, writer: Writer) -> None:
    kept, gone = await writer.create({"text": SECRET}), await deleted(writer)
    row = await verified(job, writer, gone["erasure_id"])
    assert row["closed_at"] is None, "the entry still waits for the bus"
    assert lines(row)["streams"]["state"] == "open"
    assert lines(row)["canonical_content"] | {"checked_at": "", "closed_at": ""} == {
        "state": "closed", "attempts": 1, "scan": "ids", "position": gone["ledger_sequence"], "checked_at": "",
        "closed_at": "",
    }  # fmt: skip
    await writer.admin.execute(OUTBOX, await writer.scope_key())
    row = await verified(job, writer, gone["erasure_id"])
    assert row["closed_at"] is not None
    assert (row["needles"], row["seal_salt"]) == (None, None), "what the scans looked for goes with the closing"
    assert lines(row).keys() == set(SURFACES)
    assert {line["state"] for line in lines(row).values()} <= {"closed", "not_present"}
    assert lines(row)["operation_outcomes"]["scan"] == "value"
    content = "SELECT content FROM core.version_private WHERE scope_key = $1 AND ledger_seq = $2"
    assert SECRET.encode() in await writer.admin.fetchval(content, await writer.scope_key(), kept["ledger_sequence"])


async def test_what_a_scan_finds_is_taken_and_looked_for_again(job: ErasureJob, writer: Writer) -> None:
    gone = await deleted(writer)
    key = await writer.scope_key()
    await writer.admin.execute(OUTBOX, key)
    private = "UPDATE core.version_private SET {} WHERE scope_key = $1 AND ledger_seq < $2"
    await writer.admin.execute(private.format("content = '\"back\"'"), key, gone["ledger_sequence"])
    await writer.admin.execute("UPDATE core.version_span SET content = '1' WHERE scope_key = $1", key)
    row = await verified(job, writer, gone["erasure_id"])
    found = lines(row)["canonical_content"]
    assert (found["state"], found["repairs"], row["closed_at"]) == ("open", 1, None)
    assert lines(row)["provenance"]["state"] == "closed"
    row = await verified(job, writer, gone["erasure_id"])
    assert row["closed_at"] is not None
    assert lines(row)["canonical_content"]["attempts"] == 2
    content = "SELECT content FROM core.version_private WHERE scope_key = $1 AND ledger_seq = $2"
    assert await writer.admin.fetchval(content, key, gone["ledger_sequence"] - 1) is None


@pytest.mark.parametrize(
    "leave",
    [
        "INSERT INTO core.data_key (scope_key, ledger_seq, kid, wrapped) VALUES ($1, $2, 'gone', 'k')",
        "UPDATE core.version_span SET private = '1' WHERE scope_key = $1 AND from_seq = $2",
    ],
    ids=["key", "projection"],
)
async def test_of_what_was_sealed_nothing_is_left(job: ErasureJob, writer: Writer, leave: str) -> None:
    """Neither the key of a version nor what queries compared of it; the sibling's stays."""
    kept, gone = await writer.create({"text": SECRET}), await deleted(writer)
    key, admin = await writer.scope_key(), writer.admin
    await admin.execute(OUTBOX, key)
    async with admin.transaction():
        # Names no key that sealed something, so that the services beside this test go on.
        await admin.execute("SET LOCAL session_replication_role = replica")
        for sequence in (kept["ledger_sequence"], gone["ledger_sequence"] - 1):
            await admin.execute(leave, key, sequence)
    row = await verified(job, writer, gone["erasure_id"])
    assert (lines(row)["provenance"]["state"], lines(row)["provenance"]["repairs"]) == ("open", 1)
    await admin.execute(NO_PAGES, key)
    assert (await verified(job, writer, gone["erasure_id"]))["closed_at"] is not None
    left = (
        "SELECT (SELECT count(*) FROM core.data_key WHERE scope_key = $1)"
        " + (SELECT count(*) FROM core.version_span WHERE scope_key = $1 AND private IS NOT NULL)"
    )
    assert await admin.fetchval(left, key) == 1
    await admin.execute("DELETE FROM core.data_key WHERE scope_key = $1", key)


@pytest.mark.parametrize("hidden", [SECRET, 'of "Ann": 7 \\ 8'])
async def test_a_value_in_a_book_keeps_the_erasure_open(job: ErasureJob, writer: Writer, hidden: str) -> None:
    """The value itself is looked for, also where nothing of the object's ids would lead to it."""
    gone, sibling = await deleted(writer, hidden), await deleted(writer, "another value 99")
    key = await writer.scope_key()
    await writer.admin.execute(OUTBOX, key)
    park = "INSERT INTO delegation.parked VALUES ($1, 1, 'evt:x', 'object_created', $2)"
    await writer.admin.execute(park, key, f"could not take {hidden} in")
    row = await verified(job, writer, gone["erasure_id"])
    found = lines(row)["parked_messages"]
    assert (found["state"], found["repairs"], row["closed_at"]) == ("open", 1, None)
    assert hidden not in row["surfaces"]
    assert (await receipt(writer, sibling["erasure_id"]))["closed_at"] is not None, "not its value"
    await writer.admin.execute("DELETE FROM delegation.parked WHERE scope_key = $1", key)
    assert (await verified(job, writer, gone["erasure_id"]))["closed_at"] is not None


async def test_a_derived_store_must_have_come_past_the_erasure(job: ErasureJob, writer: Writer) -> None:
    gone = await deleted(writer)
    key = await writer.scope_key()
    await writer.admin.execute(OUTBOX, key)
    await writer.admin.execute("INSERT INTO index_.inbox VALUES ($1, 0, 1)", key)
    await writer.admin.execute(PLACE, key, gone["object_id"], 1, False)
    row = await verified(job, writer, gone["erasure_id"])
    assert lines(row)["lexical"]["state"] == "open"
    await writer.admin.execute(MARK, key, gone["ledger_sequence"])
    row = await verified(job, writer, gone["erasure_id"])
    assert lines(row)["lexical"]["error"] == "the index is not that far yet", "the object is still indexed as it was"
    move = "UPDATE index_.indexed_object SET sequence = $2, removed = true WHERE scope_key = $1"
    await writer.admin.execute(move, key, gone["ledger_sequence"])
    row = await verified(job, writer, gone["erasure_id"])
    assert (row["closed_at"] is not None, lines(row)["lexical"]["position"]) == (True, gone["ledger_sequence"])
    await writer.admin.execute("DELETE FROM index_.inbox WHERE scope_key = $1", key)


async def test_any_table_of_the_index_is_scanned_and_cleared(job: ErasureJob, writer: Writer) -> None:
    """A table that somebody adds needs no word here: it is found in the catalogue."""
    gone, other = await deleted(writer), await writer.create({"text": SECRET})
    key = await writer.scope_key()
    await writer.admin.execute(OUTBOX, key)
    await writer.admin.execute("INSERT INTO index_.inbox VALUES ($1, 0, 1)", key)
    await writer.admin.execute("CREATE TABLE index_.added (scope_key bigint, doc bigint, PRIMARY KEY (scope_key, doc))")
    try:
        await writer.admin.execute(MARK, key, 99)
        for made, removed in ((gone, True), (other, False)):
            doc = await writer.admin.fetchval(PLACE, key, made["object_id"], 99, removed)
            await writer.admin.execute("INSERT INTO index_.added VALUES ($1, $2)", key, doc)
        row = await verified(job, writer, gone["erasure_id"])
        assert (lines(row)["lexical"]["state"], lines(row)["lexical"]["repairs"]) == ("open", 1)
        assert (await verified(job, writer, gone["erasure_id"]))["closed_at"] is not None
        assert await writer.admin.fetchval("SELECT count(*) FROM index_.added") == 1, "the sibling's row stays"
    finally:
        await writer.admin.execute("DROP TABLE index_.added")
        await writer.admin.execute("DELETE FROM index_.inbox WHERE scope_key = $1", key)


async def test_vectors_and_postings_of_what_was_removed_are_found_and_taken(job: ErasureJob, writer: Writer) -> None:
    """A vector stands by its space, a posting by its term: one is found by its object, the other by the value."""
    gone, other = await deleted(writer), await writer.create({"text": SECRET})
    key = await writer.scope_key()
    await writer.admin.execute(OUTBOX, key)
    await writer.admin.execute("INSERT INTO index_.inbox VALUES ($1, 0, 1)", key)
    await writer.admin.execute(MARK, key, 99)
    vector = "INSERT INTO index_.vectors VALUES ($1, 1, $2, 0, 2, 'c', '[1,0]', 'd')"
    posting = "INSERT INTO index_.lexical_posting (scope_key, term, doc, length, times) VALUES ($1, $2, $3, 1, 1)"
    (term, *_) = sought(SECRET).terms
    for made, removed in ((gone, True), (other, False)):
        doc = await writer.admin.fetchval(PLACE, key, made["object_id"], 99, removed)
        await writer.admin.execute(vector, key, doc)
        await writer.admin.execute(posting, key, term, doc)
    row = await verified(job, writer, gone["erasure_id"])
    for surface in ("lexical", "vector"):
        assert (lines(row)[surface]["state"], lines(row)[surface]["repairs"]) == ("open", 1), surface
    row = await verified(job, writer, gone["erasure_id"])
    assert row["closed_at"] is not None
    assert lines(row)["lexical"]["scan"] == "value"
    for table in ("vectors", "lexical_posting"):
        count = f"SELECT count(*) FROM index_.{table} WHERE scope_key = $1"
        assert await writer.admin.fetchval(count, key) == 1, f"the sibling's row in {table} stays"
    await writer.admin.execute("DELETE FROM index_.inbox WHERE scope_key = $1", key)


async def test_a_forget_is_settled_when_each_of_its_parts_is(job: ErasureJob, writer: Writer) -> None:
    made = [await writer.create({"text": f"{SECRET} {number}"}) for number in range(3)]
    items = [{"id": one["object_id"], "kind": "o"} for one in made]
    begin: Document = {
        "scope_id": writer.scope, "actor": {"actor_id": "human:a", "actor_kind": "human"}, "policy_basis": "asked",
        "token": f"1.{writer.scope}", "ledger_sequence": 1, "items": items,
    }  # fmt: skip
    name = (await writer.ok("begin_forget", begin, by=SUBSCRIPTION))["erasure_id"]
    nothing = {**begin, "token": f"2.{writer.scope}", "items": []}
    empty = (await writer.ok("begin_forget", nothing, by=SUBSCRIPTION))["erasure_id"]
    key = await writer.scope_key()
    async with asyncio.timeout(60):
        while (
            await writer.admin.fetchval(
                "SELECT count(*) FROM core.forget WHERE scope_key = $1 AND finished_at IS NOT NULL", key
            )
            < 2
        ):
            await asyncio.sleep(0.05)
    row = await verified(job, writer, name)
    row = await verified(job, writer, name)
    assert lines(row)["streams"]["state"] == "open", "its entries still wait for the bus"
    assert (lines(row)["canonical_content"]["state"], row["closed_at"]) == ("closed", None)
    await writer.admin.execute(OUTBOX, key)
    await writer.admin.execute(NO_PAGES, key)
    await writer.admin.execute("UPDATE core.erasure SET due_at = now() WHERE part_of = $1", name)
    await verified(job, writer, name)
    row = await verified(job, writer, name)
    assert row["closed_at"] is not None, "once its parts are noted as closed"
    assert {line["state"] for line in lines(row).values()} <= {"closed", "not_present"}
    assert (await verified(job, writer, empty))["closed_at"] is not None


async def test_two_that_verify_at_once_do_the_work_once(world: World, writer: Writer) -> None:
    gone = [await deleted(writer, f"{SECRET} {number}") for number in range(12)]
    key = await writer.scope_key()
    await writer.admin.execute(OUTBOX, key)
    settings = world.settings(erasure_group=3)
    stores = [Store(settings), Store(settings)]
    for store in stores:
        await store.open()
    jobs = [ErasureJob(store, settings) for store in stores]
    while any([await job.verify(key) for job in jobs]):
        await asyncio.gather(*(job.verify(key) for job in jobs))
    rows = [await receipt(writer, one["erasure_id"]) for one in gone]
    assert all(row["closed_at"] is not None for row in rows)
    assert [row["attempts"] for row in rows] == [1] * 12
    for store in stores:
        await store.close()


async def test_the_running_service_closes_what_is_open(world: World, writer: Writer) -> None:
    gone = await deleted(writer)
    await writer.admin.execute(OUTBOX, await writer.scope_key())
    service = await world.sweeper()
    async with asyncio.timeout(60):
        while (await receipt(writer, gone["erasure_id"]))["closed_at"] is None:
            await asyncio.sleep(0.05)
    _, parts = await service.ready()
    assert {part.name for part in parts} >= {"erasure_receipts", "erasures"}
    await service.stop()


@pytest.mark.parametrize("name", [name for name in dir(erasures) + dir(scans) if name.endswith("_SQL")])
async def test_every_statement_prepares_as_the_service_role(world: World, name: str) -> None:
    conn = await asyncpg.connect(world.database.role("retention_sweeper"))
    await conn.prepare(getattr(erasures, name, None) or getattr(scans, name))
    await conn.close()


def test_lines_of_a_receipt() -> None:
    """Settled surfaces stay as they were; what was found is counted; pauses grow and are bounded."""
    first = noted({}, {"lexical": waiting("not yet"), "graph": ABSENT, "streams": clean("value", 7)}, "t1")
    assert first == {
        "lexical": {"state": "open", "attempts": 1, "checked_at": "t1", "error": "not yet"},
        "graph": {"state": "not_present", "attempts": 1, "checked_at": "t1"},
        "streams": {
            "state": "closed",
            "attempts": 1,
            "checked_at": "t1",
            "closed_at": "t1",
            "scan": "value",
            "position": 7,
        },
    }
    second = noted(first, {"lexical": left("found", "ids"), "streams": waiting("?")}, "t2")
    assert second["streams"] == first["streams"]
    assert (second["lexical"]["attempts"], second["lexical"]["repairs"]) == (2, 1)
    third = noted(second, {"lexical": clean("ids", 9)}, "t3")["lexical"]
    assert (third["state"], third["repairs"], third["attempts"], "error" in third) == ("closed", 1, 3, False)
    assert [wait_s(attempts, {}, 5.0) for attempts in (0, 1, 4, 100)] == [0.2, 0.4, 3.2, 5.0]
