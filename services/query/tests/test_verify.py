"""verify_ledger: what holds, and each edit made directly in the tables by their owner."""

from __future__ import annotations

from typing import Any

import pytest

from pamspec_common.verification import walk
from pamspec_common.verification.walk import PAGE_ROWS
from services.query.tests.door import Conn, Door
from services.query.tests.seeds import Scope

SCOPE = "workspace:a"


@pytest.fixture(params=[walk.SEGMENT_ROWS, 4])
def segments(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is found also where segments meet."""
    monkeypatch.setattr(walk, "SEGMENT_ROWS", request.param)


async def seeded(seeding: Conn) -> Scope:
    """Ten entries: updates, an event without a version, a deletion and a redaction of one past version."""
    scope = Scope(SCOPE)
    scope.put("obj:a", {"n": 1})
    scope.put("obj:b", {"n": 1})
    scope.put("obj:a", {"n": 2})
    scope.event("subscription_opened", payload={"subscription_id": "sub:1", "channel": "poll"}, subject_id="sub:1")
    scope.put("obj:b", availability_state="deleted", note="why")
    scope.put("obj:c", {"n": 1})
    scope.put("obj:c", {"n": 2})
    scope.put("obj:c", {"n": 2}, event_type="object_redacted",
              payload={"erased": [{"from_sequence": 1, "to_sequence": 1}]})  # fmt: skip
    scope.erase("obj:c", [1])
    scope.put("obj:d", "x" * 100_000)
    await scope.flush(seeding)
    return scope


async def test_a_whole_ledger_verifies(seeding: Conn, door: Door) -> None:
    scope = await seeded(seeding)
    found = await door("verify_ledger", scope_id=SCOPE)
    document = await door.ok("verify_ledger", scope_id=SCOPE)
    assert document == {
        "scope_id": SCOPE,
        "ok": True,
        "entries": 9,
        "versions": 8,
        "erased_versions": 2,
        "first_problem": None,
        "problems": [],
        "head_hash": "sha256:" + scope.last_hash.hex(),
        "anchors": [],
    }
    assert found.headers["Pamspec-As-Of-Sequence"] == "9"
    empty = Scope("workspace:empty")
    await empty.flush(seeding)
    assert (await door.ok("verify_ledger", scope_id="workspace:empty"))["ok"] is True


async def test_it_goes_on_over_many_pages(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for index in range(PAGE_ROWS * 2 + 7):
        scope.put(f"obj:{index % 50}", index)
    await scope.flush(seeding)
    document = await door.ok("verify_ledger", scope_id=SCOPE)
    assert (document["ok"], document["entries"]) == (True, PAGE_ROWS * 2 + 7)


EDITS: dict[str, tuple[str, int, str]] = {
    "edited content": (
        "UPDATE core.version_private SET content = '{\"n\":9}' WHERE ledger_seq = 3", 3, "content_differs",
    ),
    "content and salt exchanged": (
        "UPDATE core.version_private p SET content = o.content, private = o.private, salt = o.salt"
        " FROM core.version_private o"
        " WHERE p.ledger_seq = 3 AND o.ledger_seq = 7", 3, "content_differs",
    ),
    "edited provenance": (
        "UPDATE core.version_private SET private = '{}' WHERE ledger_seq = 3", 3, "private_differs",
    ),
    "content erased without an event": (
        "UPDATE core.version_private SET content = NULL, private = NULL, salt = NULL WHERE ledger_seq = 1", 1,
        "content_missing",
    ),
    "edited metadata": (
        "UPDATE core.version SET metadata = convert_to(replace(convert_from(metadata, 'UTF8'), 'active', 'archived'),"
        " 'UTF8') WHERE ledger_seq = 3", 3, "metadata_differs",
    ),
    "edited event": (
        "UPDATE core.ledger SET event = convert_to(replace(convert_from(event, 'UTF8'), 'seed', 'sead'), 'UTF8')"
        " WHERE sequence = 2", 2, "chain_broken",
    ),
    "edited column": ("UPDATE core.ledger SET event_type = 'object_updated' WHERE sequence = 2", 2, "entry_differs"),
    "deleted middle": ("DELETE FROM core.ledger WHERE sequence = 4", 4, "entry_missing"),
    "deleted middle with its version": (
        "WITH gone AS (DELETE FROM core.ledger WHERE sequence = 3) DELETE FROM core.version WHERE ledger_seq = 3", 3,
        "entry_missing",
    ),
    "deleted version": ("DELETE FROM core.version WHERE ledger_seq = 3", 3, "version_missing"),
    "content erased by an earlier event alone": (
        "UPDATE core.version_private SET content = NULL, private = NULL, salt = NULL WHERE ledger_seq = 8", 8,
        "content_missing",
    ),
    "half erased": (
        "UPDATE core.version_private SET salt = '\\x00', private = '{}' WHERE ledger_seq = 6", 6, "private_differs",
    ),
    "salt kept": ("UPDATE core.version_private SET salt = '\\x00' WHERE ledger_seq = 6", 6, "half_erased"),
    "one record rolled back": (
        "DELETE FROM core.version_span WHERE from_seq = 3;"
        " UPDATE core.version_span SET to_seq = 9223372036854775807 WHERE from_seq = 1", 3, "state_differs",
    ),
    "an older version as the head": (
        "UPDATE core.version_span SET to_seq = 9 WHERE from_seq = 3;"
        " UPDATE core.version_span SET to_seq = 9223372036854775807 WHERE from_seq = 1", 3, "state_differs",
    ),
    "a head that counts as replaced": (
        "UPDATE core.version_span SET to_seq = 8 WHERE from_seq = 3", 3, "state_differs",
    ),
    "a head that ended in the future": (
        "UPDATE core.version_span SET to_seq = 99 WHERE from_seq = 3", 3, "state_differs",
    ),
    "edited state": (
        "UPDATE core.version_span SET validation_state = 'unverified' WHERE from_seq = 3", 3, "state_differs",
    ),
    "edited type": ("UPDATE core.version_span SET object_type = 'claim' WHERE from_seq = 3", 3, "state_differs"),
    "another's state": ("UPDATE core.version_span SET object_id = 'obj:z' WHERE from_seq = 3", 3, "state_differs"),
    "a version of another object": (
        "UPDATE core.version SET object_id = 'obj:z' WHERE ledger_seq = 9;"
        " UPDATE core.version_span SET object_id = 'obj:z' WHERE from_seq = 9", 9, "metadata_differs",
    ),
    "two heads": (
        "DROP INDEX core.version_span_head;"
        " UPDATE core.version_span SET to_seq = 9223372036854775807 WHERE from_seq = 1", 9, "state_differs",
    ),
    "forged state": (
        "INSERT INTO core.version_span SELECT scope_key, 4, to_seq, 'obj:forged', kind, 1, 'ver:forged', object_type,"
        " schema_id, lifecycle_state, availability_state, retention_state, validation_state, actor_id, provenance_id"
        ", observed_at, asserted_at, valid_from, valid_until, committed_at, created_by, content"
        " FROM core.version_span WHERE from_seq = 3", 4, "state_differs",
    ),
    "truncated tail": ("DELETE FROM core.ledger WHERE sequence = 9", 9, "entry_missing"),
    "truncated tail and versions": (
        "WITH gone AS (DELETE FROM core.ledger WHERE sequence >= 9) DELETE FROM core.version WHERE ledger_seq >= 9", 9,
        "entry_missing",
    ),
    "forged insert": (
        "INSERT INTO core.ledger SELECT scope_key, 10, 'evt:x', event_type, subject_id, recorded_at, event, entry_hash"
        " FROM core.ledger WHERE sequence = 9", 10, "entry_foreign",
    ),
    "forged version": (
        "INSERT INTO core.version SELECT scope_key, 4, 'obj:forged', kind, 1, 'ver:forged', metadata"
        " FROM core.version WHERE ledger_seq = 3", 4, "version_foreign",
    ),
    "forged head": ("UPDATE core.scope_head SET last_hash = sha256('x')", 9, "head_differs"),
    "another root": ("UPDATE core.scope SET ledger_id = decode(repeat('00', 16), 'hex')", 1, "chain_broken"),
}  # fmt: skip


@pytest.mark.usefixtures("segments")
@pytest.mark.parametrize("edit", EDITS)
async def test_edits_are_found(seeding: Conn, door: Door, edit: str) -> None:
    await seeded(seeding)
    sql, sequence, kind = EDITS[edit]
    await seeding.execute("ALTER TABLE core.ledger DISABLE TRIGGER insert_only")
    await seeding.execute("ALTER TABLE core.version DISABLE TRIGGER insert_only")
    await seeding.execute(sql)
    found = await door.ok("verify_ledger", scope_id=SCOPE)
    problem = found["first_problem"]
    assert (found["scope_id"], problem["sequence"], problem["kind"]) == (SCOPE, sequence, kind)
    assert found["entries"] < sequence or found["entries"] == 9
    assert len(found["problems"]) <= 4, "what follows from one edit is not told of every later entry"


async def test_it_ends_at_the_hundredth_problem(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for index in range(PAGE_ROWS):
        scope.put(f"obj:{index}", index)
    await scope.flush(seeding)
    await seeding.execute("UPDATE core.version_private SET content = '-1' WHERE ledger_seq <> 2")
    found = await door.ok("verify_ledger", scope_id=SCOPE)
    assert [problem["sequence"] for problem in found["problems"]][:3] == [1, 3, 4]
    assert len(found["problems"]) == 100


async def test_a_gap_longer_than_a_page_is_one_problem(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for index in range(PAGE_ROWS * 3):
        scope.put(f"obj:{index}", index)
    await scope.flush(seeding)
    for table, column in (("ledger", "sequence"), ("version", "ledger_seq"), ("version_span", "from_seq")):
        await seeding.execute(f"ALTER TABLE core.{table} DISABLE TRIGGER USER")
        await seeding.execute(f"DELETE FROM core.{table} WHERE {column} BETWEEN 10 AND {PAGE_ROWS * 2 + 50}")
    found = await door.ok("verify_ledger", scope_id=SCOPE)
    assert [(problem["sequence"], problem["kind"]) for problem in found["problems"]] == [
        (10, "entry_missing"),
        (PAGE_ROWS * 2 + 51, "chain_broken"),
    ]


async def test_swapped_entries_are_found(seeding: Conn, door: Door) -> None:
    """Reordering, also with the columns adapted."""
    await seeded(seeding)
    await seeding.execute("ALTER TABLE core.ledger DISABLE TRIGGER insert_only")
    rows: list[Any] = await seeding.fetch(
        "SELECT sequence, event, entry_hash FROM core.ledger WHERE sequence IN (1, 2)"
    )
    for one, other in ((rows[0], rows[1]), (rows[1], rows[0])):
        await seeding.execute(
            "UPDATE core.ledger SET event = $2, entry_hash = $3 WHERE sequence = $1",
            one["sequence"], other["event"], other["entry_hash"],
        )  # fmt: skip
    problem = (await door.ok("verify_ledger", scope_id=SCOPE))["first_problem"]
    assert (problem["sequence"], problem["kind"]) == (1, "chain_broken")


async def test_a_ledger_of_another_scope_is_found(seeding: Conn, door: Door) -> None:
    """Cross-scope replay: a whole chain, copied with its root."""
    await seeded(seeding)
    copy = Scope("workspace:copy")
    await copy.flush(seeding)
    for table in ("ledger", "version", "version_private"):
        columns = await seeding.fetchval(
            "SELECT string_agg(column_name, ', ' ORDER BY ordinal_position) FROM information_schema.columns"
            " WHERE table_schema = 'core' AND table_name = $1 AND column_name <> 'scope_key'",
            table,
        )
        sql = f"INSERT INTO core.{table} SELECT {copy.key}, {columns} FROM core.{table}"
        await seeding.execute(sql)
    await seeding.execute(
        "UPDATE core.scope c SET ledger_id = o.ledger_id FROM core.scope o"
        " WHERE c.scope_key = $1 AND o.scope_key <> $1",
        copy.key,
    )
    await seeding.execute(
        "UPDATE core.scope_head c SET last_seq = o.last_seq, last_hash = o.last_hash FROM core.scope_head o"
        " WHERE c.scope_key = $1 AND o.scope_key <> $1",
        copy.key,
    )
    problem = (await door.ok("verify_ledger", scope_id="workspace:copy"))["first_problem"]
    assert (problem["sequence"], problem["kind"]) == (1, "entry_differs")
