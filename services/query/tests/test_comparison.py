"""compare_snapshots: what two sealed snapshots of a scope show differently, against their own answers."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from services.query.tests.door import Conn, Door
from services.query.tests.seeds import Scope
from services.query.tests.test_snapshots import ALL, seal
from services.query.tests.writing import PROVENANCE, SCOPE, Writer

STATES = ("lifecycle_state", "availability_state", "retention_state", "validation_state")
BOTH: dict[str, Any] = {**ALL, "filters": {"object_type": "any", "relationship_type": "any"}}


async def compared(door: Door, base: str, other: str, limit: int = 1000) -> dict[str, list[Any]]:
    """All pages of a comparison, in one."""
    whole: dict[str, list[Any]] = {"added": [], "removed": [], "changed": []}
    cursor: dict[str, str] = {}
    while True:
        page = await door.ok(
            "compare_snapshots", base_snapshot_id=base, other_snapshot_id=other, pagination={"limit": limit, **cursor}
        )
        for name, items in whole.items():
            items += page[name]
        assert sum(len(page[name]) for name in whole) <= limit
        if page["next_cursor"] is None:
            return whole
        cursor = {"cursor": page["next_cursor"]}


def named(item: dict[str, Any]) -> str:
    return str(item.get("object_id") or item["relationship_id"])


async def contents(door: Door, snapshot_id: str) -> dict[str, Any]:
    """Everything that a snapshot shows, by id."""
    page = {"limit": 1000}
    found = await door.ok("query", scope_id=SCOPE, snapshot_id=snapshot_id, query=BOTH, pagination=page)
    assert found["next_cursor"] is None
    return {named(item["envelope"]): item["envelope"] for item in found["items"]}


async def expected(door: Door, base: str, other: str) -> dict[str, dict[str, Any]]:
    """The comparison as it follows from what the two snapshots show."""
    left, right = await contents(door, base), await contents(door, other)
    changed = {}
    for name in left.keys() & right.keys():
        before, after = left[name], right[name]
        if before["version_id"] != after["version_id"]:
            changed[name] = {
                "versions": after["sequence"] - before["sequence"],
                "states": {s: {"from": before[s], "to": after[s]} for s in STATES if before[s] != after[s]},
            }
    return {
        "added": {name: right[name]["version_id"] for name in right.keys() - left.keys()},
        "removed": {name: left[name]["version_id"] for name in left.keys() - right.keys()},
        "changed": changed,
    }


def shape(found: dict[str, list[Any]]) -> dict[str, dict[str, Any]]:
    return {
        "added": {named(item): item["version_id"] for item in found["added"]},
        "removed": {named(item): item["version_id"] for item in found["removed"]},
        "changed": {named(i): {"versions": i["versions"], "states": i["states"]} for i in found["changed"]},
    }


async def test_a_comparison_tells_versions_and_states(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for name in ("obj:same", "obj:content", "obj:state", "obj:gone"):
        scope.put(name, 1)
    edge = scope.put("rel:edge", 1, kind="r", object_type="part_of")
    await seal(seeding, scope, "snap:base")
    scope.put("obj:content", 2)
    last = scope.put("obj:content", 3)
    scope.put("obj:state", 1, validation_state="disputed")
    scope.put("obj:gone", None, availability_state="deleted")
    new = scope.put("obj:new", 1)
    again = scope.put("rel:edge", 2, kind="r", object_type="part_of", lifecycle_state="archived")
    await seal(seeding, scope, "snap:other")
    scope.put("obj:same", "later than both")
    await scope.flush(seeding)
    found = await compared(door, "snap:base", "snap:other")
    assert found["added"] == [
        {
            "object_id": "obj:new",
            "version_id": new.version_id,
            "sequence": 1,
            **{name: new.span[name] for name in STATES},
        }
    ]
    assert found["removed"] == []
    assert [named(item) for item in found["changed"]] == ["obj:content", "obj:state", "obj:gone", "rel:edge"]
    content, state, gone, relationship = found["changed"]
    assert (content["versions"], content["states"]) == (2, {})
    assert content["other"] == {"version_id": last.version_id, "sequence": 3}
    assert state["states"] == {"validation_state": {"from": "corroborated", "to": "disputed"}}
    assert gone["states"] == {"availability_state": {"from": "available", "to": "deleted"}}
    assert relationship["base"] == {"version_id": edge.version_id, "sequence": 1}
    assert relationship["other"] == {"version_id": again.version_id, "sequence": 2}
    assert relationship["states"] == {"lifecycle_state": {"from": "active", "to": "archived"}}
    back = await compared(door, "snap:other", "snap:base")
    assert [named(item) for item in back["removed"]] == ["obj:new"]
    assert back["added"] == []
    assert [item["versions"] for item in back["changed"]] == [-2, -1, -1, -1]
    assert back["changed"][1]["states"] == {"validation_state": {"from": "disputed", "to": "corroborated"}}
    assert await compared(door, "snap:base", "snap:base") == {"added": [], "removed": [], "changed": []}


async def test_a_comparison_follows_from_what_the_snapshots_show(writer: Writer, door: Door) -> None:
    """Whole and explicit snapshots, in either order, on pages of any size, while the scope goes on."""
    dice = random.Random(11)
    heads: list[Any] = []
    names: list[str] = []
    for step in range(6):
        for _ in range(8):
            if len(heads) < 4 or dice.random() < 0.4:
                heads.append(await writer.create({"n": step}))
                continue
            place = dice.randrange(len(heads))
            if dice.random() < 0.2:
                await writer.change("delete", heads.pop(place), policy_basis="test")
            else:
                content = {"n": dice.random()}
                heads[place] = await writer.change(
                    "update", heads[place], canonical_content=content, provenance=PROVENANCE
                )
        members = dice.sample([head["object_id"] for head in heads], 3)
        for name, of in ((f"snap:all{step}", {}), (f"snap:some{step}", {"included_object_ids": members})):
            await writer.ok("seal_snapshot", snapshot_id=name, **of)
            names.append(name)
    for _ in range(40):
        base, other = dice.choice(names), dice.choice(names)
        found = await compared(door, base, other, dice.choice([1, 2, 5, 1000]))
        assert shape(found) == await expected(door, base, other), (base, other)


async def test_equal_requests_have_equal_bytes_whatever_is_written_later(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for name in ("obj:a", "obj:b", "obj:c"):
        scope.put(name, 1)
    await seal(seeding, scope, "snap:base")
    scope.put("obj:a", 2)
    await seal(seeding, scope, "snap:other", "obj:a", "obj:b")
    call = {"base_snapshot_id": "snap:base", "other_snapshot_id": "snap:other"}
    before = await door("compare_snapshots", **call)
    scope.put("obj:a", None, availability_state="deleted")
    scope.put("obj:b", 2)
    await scope.flush(seeding)
    after = await door("compare_snapshots", **call)
    assert after.body == before.body
    assert [named(item) for item in orjson.loads(after.body)["removed"]] == ["obj:c"]
    assert after.headers["Pamspec-As-Of-Sequence"] == "4"


async def test_what_cannot_be_compared_is_refused(seeding: Conn, door: Door) -> None:
    scope, second, foreign = Scope(SCOPE), Scope("workspace:b"), Scope("workspace:c", tenant_id="tenant:other")
    for one, name in ((scope, "snap:a"), (second, "snap:b"), (foreign, "snap:c")):
        one.put("obj:x", 1)
        await seal(seeding, one, name)

    async def refused(base: str, other: str, **more: Any) -> tuple[str, Any]:
        error = await door.refused("compare_snapshots", base_snapshot_id=base, other_snapshot_id=other, **more)
        return error["code"], error["details"].get("reason")

    for missing in ("snap:b", "snap:c", "snap:none"):
        assert await refused("snap:a", missing) == ("snapshot_not_found", None)
        assert await refused(missing, "snap:a") == ("snapshot_not_found", None)
    assert await refused("snap:a", "snap:a", scope_id="workspace:b") == ("snapshot_not_found", None)
    page = {"limit": 1, "cursor": "x"}
    assert (await refused("snap:a", "snap:a", pagination=page))[0] == "invalid_request"


async def test_snapshots_are_listed_in_pages_or_found_by_id(seeding: Conn, door: Door) -> None:
    scope, second, foreign = Scope(SCOPE), Scope("workspace:b"), Scope("workspace:c", tenant_id="tenant:other")
    scope.put("obj:x", 1)
    for name in ("snap:c", "snap:a", "snap:b"):
        await seal(seeding, scope, name)
    await seal(seeding, second, "snap:other", "obj:x")
    await seal(seeding, foreign, "snap:foreign")

    async def listed(**call: Any) -> tuple[list[str], Any]:
        found = await door.ok("list_snapshots", **call)
        return [item["snapshot"]["snapshot_id"] for item in found["snapshots"]], found["next_cursor"]

    names, cursor = await listed(scope_id=SCOPE, pagination={"limit": 2})
    assert names == ["snap:a", "snap:b"]
    page = {"limit": 2, "cursor": cursor}
    assert await listed(scope_id=SCOPE, pagination=page) == (["snap:c"], None)
    assert await listed(snapshot_id="snap:other") == (["snap:other"], None)
    assert await listed(snapshot_id="snap:a", scope_id=SCOPE) == (["snap:a"], None)
    for wrong in (
        {"snapshot_id": "snap:foreign"},
        {"snapshot_id": "snap:none"},
        {"snapshot_id": "snap:other", "scope_id": SCOPE},
    ):
        assert (await door.refused("list_snapshots", **wrong))["code"] == "snapshot_not_found"
    assert (await door.refused("list_snapshots", scope_id="workspace:c"))["code"] == "scope_not_found"
    assert (await door.refused("list_snapshots"))["code"] == "invalid_request"


@pytest.mark.parametrize("limit", [1, 3])
async def test_pages_of_members_hold_what_one_page_holds(seeding: Conn, door: Door, limit: int) -> None:
    scope = Scope(SCOPE)
    for number in range(9):
        scope.put(f"obj:{number}", 1)
    await seal(seeding, scope, "snap:base", *(f"obj:{n}" for n in range(6)))
    for number in range(0, 9, 2):
        scope.put(f"obj:{number}", 2)
    await seal(seeding, scope, "snap:other", *(f"obj:{n}" for n in range(3, 9)))
    whole = await compared(door, "snap:base", "snap:other")
    assert await compared(door, "snap:base", "snap:other", limit) == whole
    assert shape(whole) == await expected(door, "snap:base", "snap:other")
