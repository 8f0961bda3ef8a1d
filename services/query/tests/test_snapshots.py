"""Reads, queries and histories at a sealed snapshot: its position, its members, and nothing that came later."""

from __future__ import annotations

import random
from typing import Any

import asyncpg
import orjson
import pytest

from pamspec_cli.servers.databases import Database
from pamspec_common import snapshots
from pamspec_common.instants import wire
from pamspec_common.strict_json import dumps
from services.query.tests.asking import flat, item_name, walk
from services.query.tests.door import Conn, Door
from services.query.tests.seeds import Scope
from services.query.tests.writing import PROVENANCE, SCOPE, Writer

ALL: dict[str, Any] = {"kind": "structured", "trust": "all"}


async def seal(conn: Conn, scope: Scope, name: str = "snap:a", *members: str) -> str:
    """A snapshot of a seeded scope as it is now."""
    await scope.flush(conn)
    descriptor: dict[str, Any] = {
        "snapshot_id": name,
        "scope_id": scope.scope_id,
        "sealed": True,
        "created_at": wire(scope.now),
        "ledger_sequence_high_watermark": scope.last_seq,
    }
    if members:
        descriptor["included_object_ids"] = sorted(members)
    await conn.execute(
        "INSERT INTO core.snapshot VALUES ($1, $2, $3, NULL, false, $4, $5, $6, $7)",
        scope.key,
        name,
        scope.tenant_id,
        scope.epoch,
        scope.last_seq,
        dumps(snapshots.sealed(descriptor, scope.last_hash)),
        scope.now,
    )
    return name


async def shown(door: Door, snapshot_id: str, query: dict[str, Any] | None = None, **more: Any) -> list[str]:
    found = await door.ok("query", scope_id=SCOPE, snapshot_id=snapshot_id, query=query or ALL, **more)
    return [item_name(item) for item in found["items"]]


async def test_a_snapshot_shows_its_position(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    old = scope.put("obj:x", "then")
    scope.put("obj:y", "then")
    await seal(seeding, scope)
    new = scope.put("obj:x", "now")
    scope.put("obj:z", "now")
    await scope.flush(seeding)
    found = await door("read", scope_id=SCOPE, object_id="obj:x", snapshot_id="snap:a")
    assert orjson.loads(found.body)["envelope"]["canonical_content"] == "then"
    assert found.headers["Pamspec-As-Of-Sequence"] == "2"
    assert await shown(door, "snap:a") == ["y", "x"]
    history = await door.ok("inspect_history", scope_id=SCOPE, object_id="obj:x", snapshot_id="snap:a")
    assert [version["version_id"] for version in history["versions"]] == [old.version_id]
    events = await door.ok("inspect_history", scope_id=SCOPE, after_sequence=0, snapshot_id="snap:a")
    assert [event["sequence"] for event in events["events"]] == [1, 2]
    at = {"scope_id": SCOPE, "snapshot_id": "snap:a"}
    for later in ({"object_id": "obj:z"}, {"object_id": "obj:x", "version_id": new.version_id}):
        assert (await door.refused("read", **at, **later))["code"] == "object_not_found"
    assert (await door.ok("read", **at, object_id="obj:x", version_id=old.version_id))["envelope"]["sequence"] == 1
    assert (await door.refused("inspect_history", **at, object_id="obj:z"))["code"] == "object_not_found"
    fields = await door.ok("read", **at, object_id="obj:x", fields=["canonical_content"])
    assert fields == {"projection": {"canonical_content": "then"}}


async def test_a_snapshot_shows_its_members_alone(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for name in ("obj:a", "obj:b", "obj:c"):
        scope.put(name, 1)
    scope.put("rel:in", 1, kind="r", object_type="part_of")
    scope.put("rel:out", 1, kind="r", object_type="references")
    scope.event("index_rebuilt", payload={"index_id": "index:1"})
    await seal(seeding, scope, "snap:a", "obj:a", "obj:c", "rel:in")
    at = {"scope_id": SCOPE, "snapshot_id": "snap:a"}
    assert await shown(door, "snap:a") == ["c", "a"]
    both = {**ALL, "filters": {"object_type": "any", "relationship_type": "any"}}
    assert await shown(door, "snap:a", both) == ["in", "c", "a"]
    events = await door.ok("inspect_history", **at, after_sequence=0)
    assert [event["sequence"] for event in events["events"]] == [1, 3, 4]
    assert (await door.ok("read", **at, relationship_id="rel:in"))["envelope"]["relationship_id"] == "rel:in"
    for outside in ({"object_id": "obj:b"}, {"relationship_id": "rel:out"}):
        for operation in ("read", "inspect_history"):
            assert (await door.refused(operation, **at, **outside))["code"] == "object_not_found"


async def test_a_snapshot_of_an_empty_scope_or_of_nothing_is_empty(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    await seal(seeding, scope, "snap:empty")
    scope.put("obj:x", 1)
    await scope.flush(seeding)
    assert await shown(door, "snap:empty") == []
    refused = await door.refused("read", scope_id=SCOPE, object_id="obj:x", snapshot_id="snap:empty")
    assert refused["code"] == "object_not_found"


async def test_missing_foreign_and_forbidden_snapshots_are_alike(seeding: Conn, door: Door) -> None:
    scope, other = Scope(SCOPE), Scope("workspace:b")
    elsewhere = Scope("workspace:c", tenant_id="tenant:other")
    for one in (scope, other, elsewhere):
        one.put("obj:x", 1)
    await scope.flush(seeding)
    await seal(seeding, other, "snap:other")
    await seal(seeding, elsewhere, "snap:elsewhere")
    said = set()
    for name in ("snap:other", "snap:elsewhere", "snap:nowhere"):
        for operation, what in (
            ("read", {"object_id": "obj:x"}),
            ("query", {"query": ALL}),
            ("inspect_history", {"object_id": "obj:x"}),
        ):
            answer = await door(operation, scope_id=SCOPE, snapshot_id=name, operation_id="op:1", **what)
            assert answer.status == 404
            said.add(answer.body)
    assert len(said) == 1
    assert orjson.loads(said.pop())["error"]["code"] == "snapshot_not_found"


async def test_a_snapshot_is_a_position_of_its_own(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:x", 1, valid_from=scope.now)
    await seal(seeding, scope)
    at = {"scope_id": SCOPE, "snapshot_id": "snap:a"}
    for place in ({"ledger_sequence": 1}, {"recorded_at": wire(scope.now)}):
        assert (await door.refused("read", **at, object_id="obj:x", as_of=place))["code"] == "invalid_request"
        assert (await door.refused("query", **at, query={**ALL, "as_of": place}))["code"] == "invalid_request"
    assert await shown(door, "snap:a", {**ALL, "as_of": {"valid_at": wire(scope.now)}}) == ["x"]
    assert await shown(door, "snap:a", {**ALL, "as_of": {"valid_at": "2020-01-01T00:00:00Z"}}) == []


async def test_what_was_erased_stays_erased_in_a_snapshot(writer: Writer, door: Door, seeding: Conn) -> None:
    """S21: a snapshot holds ids, never content."""
    made = await writer.create("SECRET-123", object_id="obj:x")
    await writer.create("kept", object_id="obj:y")
    await writer.ok("seal_snapshot", snapshot_id="snap:a", included_object_ids=["obj:x", "obj:y"])
    assert await shown(door, "snap:a") == ["y", "x"]
    await writer.change("delete", made, policy_basis="asked for")
    at = {"scope_id": SCOPE, "snapshot_id": "snap:a"}
    assert (await door.refused("read", **at, object_id="obj:x"))["code"] == "object_deleted"
    assert (await door.refused("read", **at, object_id="obj:x", version_id=made["version_id"]))[
        "code"
    ] == "object_deleted"
    assert await shown(door, "snap:a", {**ALL, "filters": {"availability_state": ["available"]}}) == ["y"]
    for operation, what in (("query", {"query": ALL}), ("inspect_history", {"after_sequence": 0})):
        answer = await door(operation, **at, **what)
        assert answer.status == 200
        assert b"SECRET" not in answer.body
    history = await door.ok("inspect_history", **at, object_id="obj:x")
    assert [version["canonical_content"] for version in history["versions"]] == [{"tombstone": True}]
    assert b"SECRET" not in b"".join(await seeding.fetchval("SELECT array_agg(document) FROM core.snapshot"))


async def test_cursors_belong_to_their_snapshot(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for number in range(7):
        scope.put(f"obj:{number}", number)
    await seal(seeding, scope, "snap:a")
    await seal(seeding, scope, "snap:b", *(f"obj:{n}" for n in range(7)))
    for name in ("snap:a", "snap:b"):
        pages = await walk(door, 2, snapshot_id=name, query=ALL)
        assert pages == [["6", "5"], ["4", "3"], ["2", "1"], ["0"]]
    call = {"scope_id": SCOPE, "query": ALL}
    first = await door.ok("query", **call, snapshot_id="snap:a", pagination={"limit": 2})
    page = {"limit": 2, "cursor": first["next_cursor"]}
    for other in ({"snapshot_id": "snap:b"}, {}):
        assert (await door.refused("query", **call, **other, pagination=page))["code"] == "invalid_request"
    history = {"scope_id": SCOPE, "after_sequence": 0}
    first = await door.ok("inspect_history", **history, snapshot_id="snap:a", pagination={"limit": 2})
    page = {"limit": 10, "cursor": first["next_cursor"]}
    rest = await door.ok("inspect_history", **history, snapshot_id="snap:a", pagination=page)
    assert [event["sequence"] for event in rest["events"]] == [3, 4, 5, 6, 7]
    assert (await door.refused("inspect_history", **history, snapshot_id="snap:b", pagination=page))["code"] == (
        "invalid_request"
    )


async def test_nothing_that_is_written_later_changes_a_snapshot(writer: Writer, door: Door) -> None:
    """P154, P156, P164: byte for byte, while updates, transitions and creates of every kind go on."""
    dice = random.Random(7)
    heads = [await writer.create({"n": n}, object_id=f"obj:{n}", object_type="claim") for n in range(12)]

    async def churn() -> None:
        for _ in range(25):
            place = dice.randrange(len(heads))
            if dice.random() < 0.3:
                state = heads[place]["envelope"]["validation_state"]
                moved = "disputed" if state in ("unverified", "corroborated") else "corroborated"
                change = {"dimension": "validation", "target_state": moved, "policy_basis": "test"}
                heads[place] = await writer.change("transition", heads[place], **change)
            else:
                content = {"n": dice.random()}
                heads[place] = await writer.change(
                    "update", heads[place], canonical_content=content, provenance=PROVENANCE
                )
        await writer.create({"n": "new"})

    await churn()
    some = [f"obj:{n}" for n in range(0, 12, 2)]
    await writer.ok("seal_snapshot", snapshot_id="snap:all")
    await writer.ok("seal_snapshot", snapshot_id="snap:some", included_object_ids=some)

    async def answers() -> list[bytes]:
        found = []
        for name in ("snap:all", "snap:some"):
            at = {"scope_id": SCOPE, "snapshot_id": name}
            for ordering in (None, {"by": [{"field": "validation_state"}], "tie_break": ["object_id"]}):
                shape = {} if ordering is None else {"ordering": ordering}
                found.append((await door("query", **at, query=ALL, **shape)).body)
                found.append(dumps(await walk(door, 3, snapshot_id=name, query=ALL, **shape)))
            found += [(await door("read", **at, object_id=object_id)).body for object_id in some]
            found += [(await door("inspect_history", **at, object_id=object_id)).body for object_id in some]
            found.append((await door("inspect_history", **at, after_sequence=0)).body)
        return found

    before = await answers()
    states = [head["envelope"] for head in heads]
    for _ in range(3):
        await churn()
        assert await answers() == before
    listed = {item_name(item) for item in orjson.loads(before[0])["items"]}
    assert {f"obj:{name}" for name in listed} >= {state["object_id"] for state in states}
    reads = {orjson.loads(body)["envelope"]["object_id"]: orjson.loads(body)["envelope"] for body in before[4:10]}
    assert reads == {state["object_id"]: state for state in states if state["object_id"] in some}
    assert set(flat(await walk(door, 3, snapshot_id="snap:some", query=ALL))) == {name[4:] for name in some}


async def test_a_snapshot_outlives_an_epoch_whose_ledger_still_holds_it(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:x", "then")
    await seal(seeding, scope)
    scope.epoch = 2
    scope.put("obj:x", "now")
    await scope.flush(seeding)
    found = await door("read", scope_id=SCOPE, object_id="obj:x", snapshot_id="snap:a")
    assert orjson.loads(found.body)["envelope"]["canonical_content"] == "then"
    assert found.headers["Pamspec-Ledger-Epoch"] == "2"


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE core.snapshot SET document ="
        " convert_to(replace(convert_from(document, 'UTF8'), 'obj:x', 'obj:y'), 'UTF8')",
        "UPDATE core.snapshot SET watermark = 1, document ="
        " convert_to(replace(convert_from(document, 'UTF8'), '_watermark\":2', '_watermark\":1'), 'UTF8')",
        "UPDATE core.ledger SET entry_hash = '\\x00' WHERE sequence = 2",
        "DELETE FROM core.ledger WHERE sequence = 2",
    ],
)
async def test_a_snapshot_is_never_answered_from_another_ledger(seeding: Conn, door: Door, edit: str) -> None:
    """Edits by the owner of the tables: the digest no longer fits."""
    scope = Scope(SCOPE)
    scope.put("obj:x", 1)
    scope.put("obj:y", 1)
    await seal(seeding, scope, "snap:a", "obj:x")
    assert await shown(door, "snap:a") == ["x"]
    for table in ("snapshot", "ledger"):
        await seeding.execute(f"ALTER TABLE core.{table} DISABLE TRIGGER insert_only")
    await seeding.execute(edit)
    for operation, what in (("query", {"query": ALL}), ("read", {"object_id": "obj:x"})):
        error = await door.refused(operation, scope_id=SCOPE, snapshot_id="snap:a", **what)
        assert (error["code"], error["details"]["reason"]) == ("snapshot_not_found", "ledger_differs")


async def test_the_reader_sees_the_snapshots_of_its_scopes_and_changes_none(seeding: Conn, database: Database) -> None:
    scope = Scope(SCOPE)
    await seal(seeding, scope)
    conn = await asyncpg.connect(database.role("query"))
    try:
        for statement in ("DELETE FROM core.snapshot", "UPDATE core.snapshot SET watermark = 1"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await conn.execute(statement)
        assert await conn.fetchval("SELECT count(*) FROM core.snapshot") == 0
        await conn.execute(f"SET pamspec.scope_keys = '{{{scope.key}}}'")
        assert await conn.fetchval("SELECT count(*) FROM core.snapshot") == 1
    finally:
        await conn.close()
