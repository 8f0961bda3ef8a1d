"""Reads of what the write service wrote: the two agree about every stored byte."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from typing import Any

import asyncpg
import orjson
import pytest

from pamspec_cli.servers.databases import Database
from services.query.tests.door import Door
from services.query.tests.writing import PROVENANCE, SCOPE, Writer

ALL: dict[str, Any] = {"kind": "structured", "trust": "all"}


async def test_what_was_written_is_read(writer: Writer, door: Door) -> None:
    """K1, P154: the envelope of the write, byte for byte, from the moment of its answer, through every door to it."""
    contents: list[Any] = [None, False, 0, "", [], {}, {"a": [1, {"b": None}]}, "x" * 70_000, {"t": "a\0b", "k\0": 1}]
    for content in contents:
        written = await writer.call("create", object_type="claim", canonical_content=content, provenance=PROVENANCE)
        document = orjson.loads(written.body)
        floor = int(written.headers["Pamspec-Ledger-Sequence"])
        found = await door("read", scope_id=SCOPE, object_id=document["object_id"], min_sequence=floor)
        assert orjson.loads(found.body)["envelope"] == document["envelope"]
        assert found.headers["Pamspec-As-Of-Sequence"] == str(floor)
        assert found.body.removeprefix(b'{"envelope":')[:-1] in written.body
        everything = await door.ok("query", scope_id=SCOPE, query=ALL, min_sequence=floor)
        assert everything["items"][0]["envelope"] == document["envelope"]
        history = await door.ok("inspect_history", scope_id=SCOPE, object_id=document["object_id"])
        assert history["versions"] == [document["envelope"]]
    assert (await door.ok("verify_ledger", scope_id=SCOPE))["entries"] == len(contents)


async def test_a_life_of_an_object(writer: Writer, door: Door) -> None:
    """Create, update, transition, delete: heads, versions, past positions, history, verification."""
    first = await writer.create({"n": 1}, object_id="obj:x", valid_from="2026-01-01T00:00:00Z")
    second = await writer.change("update", first, canonical_content={"n": 2}, provenance=PROVENANCE)
    third = await writer.change(
        "transition", second, dimension="validation", target_state="corroborated", policy_basis="reviewed"
    )
    await writer.create({"tool_name": "x", "arguments": {}}, object_type="tool_invocation", object_id="obj:tool")
    assert (await door.ok("read", scope_id=SCOPE, object_id="obj:x"))["envelope"] == third["envelope"]
    for version in (first, second, third):
        found = await door.ok("read", scope_id=SCOPE, object_id="obj:x", version_id=version["version_id"])
        assert found["envelope"] == version["envelope"]
        at = version["envelope"]["recorded_at"]
        found = await door.ok("read", scope_id=SCOPE, object_id="obj:x", as_of={"recorded_at": at})
        assert found["envelope"] == version["envelope"]
    trusted = await door.ok("query", scope_id=SCOPE, query={"kind": "structured"})
    assert [item["envelope"] for item in trusted["items"]] == [third["envelope"]]
    deleted = await writer.change("delete", third, policy_basis="no longer needed")
    for more in ({}, {"version_id": first["version_id"]}, {"as_of": {"ledger_sequence": 2}}):
        assert (await door.refused("read", scope_id=SCOPE, object_id="obj:x", **more))["code"] == "object_deleted"
    history = await door.ok("inspect_history", scope_id=SCOPE, object_id="obj:x")
    assert [version["canonical_content"] for version in history["versions"]] == [{"tombstone": True}] * 4
    assert [event["event_type"] for event in history["events"]] == [
        "object_created",
        "object_updated",
        "validation_transitioned",
        "object_deleted",
    ]
    assert history["notes"][deleted["event_id"]] == {"policy_basis": "no longer needed"}
    tombstones = await door.ok(
        "query", scope_id=SCOPE, query={"kind": "structured", "filters": {"availability_state": ["deleted"]}}
    )
    assert [item["envelope"] for item in tombstones["items"]] == [deleted["envelope"]]
    assert await door.ok("verify_ledger", scope_id=SCOPE) == {
        "scope_id": SCOPE,
        "ok": True,
        "entries": 6,
        "versions": 5,
        "erased_versions": 3,
        "first_problem": None,
        "problems": [],
        "head_hash": (await door.ok("verify_ledger", scope_id=SCOPE))["head_hash"],
        "anchors": [],
    }


async def test_relationships_and_promotions_are_read_and_verified(writer: Writer, door: Door) -> None:
    one, two = await writer.create("one"), await writer.create("two")
    joined = {"source_object_id": one["object_id"], "target_object_id": two["object_id"]}
    made = await writer.ok(
        "relate",
        **joined,
        relationship_type="supports",
        directionality="directed",
        canonical_content={"w": 1.50},
        provenance=PROVENANCE,
        policy_basis="review",
    )
    about = {"relationship_id": made["relationship_id"], "expected_version_id": made["version_id"]}
    changed = await writer.ok("relate", **about, canonical_content=None, provenance=PROVENANCE)
    for answer in (made, changed):
        found = await door.ok(
            "read", scope_id=SCOPE, relationship_id=made["relationship_id"], version_id=answer["version_id"]
        )
        assert found["envelope"] == answer["envelope"]
    memory = await writer.create({"task_ref": "task:t", "content": 1}, object_type="working_memory")
    promoted = await writer.ok(
        "promote",
        source_object_id=memory["object_id"],
        expected_version_id=memory["version_id"],
        target_object_type="decision",
        target_canonical_content="decided",
        provenance=PROVENANCE,
    )
    new = promoted["object"]
    assert (await door.ok("read", scope_id=SCOPE, object_id=new["object_id"]))["envelope"] == new["envelope"]
    history = await door.ok("inspect_history", scope_id=SCOPE, object_id=memory["object_id"])
    assert [event["event_type"] for event in history["events"]] == [
        "object_created",
        "lifecycle_transitioned",
        "working_memory_promoted",
    ]
    assert history["versions"][-1]["version_id"] == promoted["source"]["version_id"]
    edge = await door.ok("inspect_history", scope_id=SCOPE, relationship_id=promoted["relationship_id"])
    assert [event["event_type"] for event in edge["events"]] == ["relationship_created"]
    gone = {"relationship_id": made["relationship_id"], "expected_version_id": changed["version_id"]}
    deleted = await writer.ok("delete", **gone, policy_basis="asked")
    history = await door.ok("inspect_history", scope_id=SCOPE, relationship_id=made["relationship_id"])
    assert [version["sequence"] for version in history["versions"]] == [1, 2, 3]
    assert {version["source_object_id"] for version in history["versions"]} == {one["object_id"]}
    assert history["versions"][-1] == deleted["envelope"]
    found = await door.ok("query", scope_id=SCOPE, query={**ALL, "filters": {"relationship_type": ["derived_from"]}})
    assert [item["envelope"]["relationship_id"] for item in found["items"]] == [promoted["relationship_id"]]
    assert (await door.ok("verify_ledger", scope_id=SCOPE))["ok"] is True


async def test_paging_while_many_write(writer: Writer, door: Door) -> None:
    """P153, M061: a walk sees exactly what was there at its start, and no page repeats an object."""
    made = [await writer.create({"n": index}) for index in range(40)]
    stop = asyncio.Event()

    async def churn(seed: int) -> None:
        mine = made[seed::4]
        while not stop.is_set():
            for place, one in enumerate(mine):
                mine[place] = await writer.change("update", one, canonical_content={"n": -1}, provenance=PROVENANCE)
                await writer.create("new")

    writers = [asyncio.create_task(churn(seed)) for seed in range(4)]
    for _ in range(5):
        seen: list[str] = []
        positions = set()
        cursor: dict[str, str] = {}
        while True:
            call: dict[str, Any] = {
                "query": {"kind": "structured", "trust": "all"},
                "pagination": {"limit": 7, **cursor},
            }
            found = await door("query", scope_id=SCOPE, **call)
            document = orjson.loads(found.body)
            positions.add(found.headers["Pamspec-As-Of-Sequence"])
            seen += [item["envelope"]["version_id"] for item in document["items"]]
            if document["next_cursor"] is None:
                break
            cursor = {"cursor": document["next_cursor"]}
        assert len(positions) == 1
        position = int(positions.pop())
        assert len(seen) == len(set(seen))
        past = {"kind": "structured", "trust": "all", "as_of": {"ledger_sequence": position}}
        again = await door.ok("query", scope_id=SCOPE, query=past, pagination={"limit": 1000})
        assert [item["envelope"]["version_id"] for item in again["items"]] == seen
    stop.set()
    await asyncio.gather(*writers)
    assert (await door.ok("verify_ledger", scope_id=SCOPE))["ok"] is True


@pytest.fixture(params=["America/Los_Angeles", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """This process lives in another time zone meanwhile."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = str(request.param)
    time.tzset()
    yield str(request.param)
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


async def test_zones_change_nothing(zone: str, database: Database, writer: Writer, door: Door) -> None:
    """M073: neither the process's zone nor the database's shows in answers, filters or conflicts."""
    conn = await asyncpg.connect(database.dsn)
    await conn.execute(f"ALTER DATABASE \"{database.name}\" SET timezone TO 'Pacific/Chatham'")
    await conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'pamspec_query'")
    await conn.close()
    first = await writer.create("old", object_id="obj:x", observed_at="2026-03-01T09:00:00+05:30")
    second = await writer.change("update", first, canonical_content="new", provenance=PROVENANCE)
    envelope = (await door.ok("read", scope_id=SCOPE, object_id="obj:x"))["envelope"]
    assert envelope == second["envelope"]
    assert envelope["observed_at"] == "2026-03-01T03:30:00.000000Z"
    assert envelope["recorded_at"].endswith("Z")
    for text in ("2026-03-01T03:30:00Z", "2026-02-28T19:30:00-08:00"):
        where = {"field": "observed_at", "op": "eq", "value": text}
        found = await door.ok("query", scope_id=SCOPE, query={"kind": "structured", "trust": "all", "where": where})
        assert len(found["items"]) == 1
    past = await door.ok(
        "read", scope_id=SCOPE, object_id="obj:x", as_of={"recorded_at": first["envelope"]["recorded_at"]}
    )
    assert past["envelope"] == first["envelope"]


async def test_a_policy_is_shown_as_it_is_and_as_it_was(writer: Writer, door: Door) -> None:
    policies: list[Any] = [{"object_types": {"deny": ["task"]}}, {}, {"retention": {"default": {"ttl_seconds": 60}}}]
    for version, policy in enumerate(policies):
        await writer.ok("update_scope", policy=policy, expected_policy_version=version, policy_basis=f"basis {version}")
        found = await door.ok("get_scope", scope_id=SCOPE)
        assert (found["scope"]["policy"], found["policy_version"]) == (policy, version + 1)
    shown: list[Any] = []
    page: dict[str, Any] = {"limit": 2}
    while page:
        answer = await door.ok("list_policy_versions", scope_id=SCOPE, pagination=page)
        shown += answer["versions"]
        page = {"limit": 2, "cursor": answer["next_cursor"]} if answer["next_cursor"] else {}
    assert [(one["policy_version"], one["policy"], one["policy_basis"]) for one in shown] == [
        (3, policies[2], "basis 2"),
        (2, policies[1], "basis 1"),
        (1, policies[0], "basis 0"),
    ]
    assert shown[0]["changed_at"] > shown[2]["changed_at"]
    assert {one["actor_id"] for one in shown} == {"agent:reader"}
