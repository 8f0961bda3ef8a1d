"""Relationships: filters on them, and what can be reached along them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from pamspec_common.strict_json import dumps
from services.query.tests.asking import SCOPE, eq, flat, item_name, names, walk
from services.query.tests.door import Conn, Door
from services.query.tests.seeds import Scope, Version
from services.query.tests.test_snapshots import seal


def join(scope: Scope, source: str, target: str, label: str = "supports", **more: Any) -> Version:
    """A relationship `rel:<source>-<target>` of a scope."""
    ends = {
        "source_object_id": f"obj:{source}",
        "target_object_id": f"obj:{target}",
        "directionality": more.pop("directionality", "directed"),
    }
    if "to" in more:
        ends["target_scope_id"] = more.pop("to")
    return scope.put(f"rel:{source}-{target}", None, kind="r", object_type=label, metadata=ends, **more)


def objects(scope: Scope, *letters: str, **more: Any) -> None:
    for letter in letters:
        scope.put(f"obj:{letter}", {"is": letter}, **more)


async def reached(
    door: Door, start: str | list[str], query: dict[str, Any] | None = None, **traverse: Any
) -> list[str]:
    """The names of what is reached, sorted; objects alone unless the query says otherwise."""
    froms = [f"obj:{name}" for name in ([start] if isinstance(start, str) else start)]
    return sorted(await names(door, query, traverse={"from": froms, **traverse}))


@pytest.fixture
def chain() -> Scope:
    """a -> b -> c -> d -> a, b -> e; f alone."""
    scope = Scope(SCOPE)
    objects(scope, "a", "b", "c", "d", "e", "f")
    for source, target in ("ab", "bc", "cd", "da"):
        join(scope, source, target)
    join(scope, "b", "e", "contradicts")
    return scope


async def test_depth_direction_and_types(seeding: Conn, door: Door, chain: Scope) -> None:
    await chain.flush(seeding)
    assert await reached(door, "a") == ["b"]
    assert await reached(door, "a", depth=2) == ["b", "c", "e"]
    assert await reached(door, "a", depth=3) == ["b", "c", "d", "e"]
    assert await reached(door, "a", direction="incoming") == ["d"]
    assert await reached(door, "a", direction="both") == ["b", "d"]
    assert await reached(door, "b", direction="both", depth=2) == ["a", "c", "d", "e"]
    assert await reached(door, "a", depth=2, relationship_types=["supports"]) == ["b", "c"]
    assert await reached(door, "b", relationship_types=["contradicts", "supports"]) == ["c", "e"]
    assert await reached(door, "a", relationship_types=["none"]) == []
    assert await reached(door, ["a", "b"]) == ["c", "e"], "where it starts is left out"
    assert await reached(door, "f", depth=8) == []


async def paths(door: Door, start: str, query: dict[str, Any] | None = None, **traverse: Any) -> dict[str, list[str]]:
    """The steps to each item that is reached."""
    asked = {"kind": "structured", **(query or {})}
    walk = {"from": [f"obj:{start}"], "paths": True, **traverse}
    found = await door.ok("query", scope_id=SCOPE, query=asked, traverse=walk)
    return {
        item_name(item): [item["path"]["from"], *(step["relationship_id"] for step in item["path"]["steps"])]
        for item in found["items"]
    }


async def test_each_item_tells_a_shortest_path(seeding: Conn, door: Door, chain: Scope) -> None:
    join(chain, "a", "d", "knows")
    await chain.flush(seeding)
    assert await paths(door, "a", depth=8) == {
        "b": ["obj:a", "rel:a-b"],
        "c": ["obj:a", "rel:a-b", "rel:b-c"],
        "d": ["obj:a", "rel:a-d"],
        "e": ["obj:a", "rel:a-b", "rel:b-e"],
    }
    assert await paths(door, "a", depth=8, relationship_types=["supports"]) == {
        "b": ["obj:a", "rel:a-b"],
        "c": ["obj:a", "rel:a-b", "rel:b-c"],
        "d": ["obj:a", "rel:a-b", "rel:b-c", "rel:c-d"],
    }
    back = await paths(door, "c", depth=2, direction="incoming")
    assert back == {"b": ["obj:c", "rel:b-c"], "a": ["obj:c", "rel:b-c", "rel:a-b"]}
    one = await paths(door, "a", {"where": eq("object_id", "obj:e")}, depth=8)
    assert one == {"e": ["obj:a", "rel:a-b", "rel:b-e"]}
    walked = await paths(door, "a", {"filters": {"relationship_type": ["contradicts"]}}, depth=2)
    assert walked == {"b-e": ["obj:a", "rel:a-b", "rel:b-e"]}
    plain = await door.ok("query", scope_id=SCOPE, query={"kind": "structured"}, traverse={"from": ["obj:a"]})
    assert all("path" not in item for item in plain["items"])


async def test_a_path_is_of_what_was_valid_then(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    objects(scope, "a", "b", "c")
    join(scope, "a", "c", valid_until=datetime(2024, 1, 1, tzinfo=UTC))
    join(scope, "a", "b")
    join(scope, "b", "c")
    await scope.flush(seeding)
    then, now = ({"as_of": {"valid_at": f"{year}-06-01T00:00:00Z"}} for year in (2023, 2025))
    assert (await paths(door, "a", then, depth=2))["c"] == ["obj:a", "rel:a-c"]
    assert (await paths(door, "a", now, depth=2))["c"] == ["obj:a", "rel:a-b", "rel:b-c"]


async def test_cycles_end(seeding: Conn, door: Door, chain: Scope) -> None:
    join(chain, "f", "f")
    await chain.flush(seeding)
    assert await reached(door, "a", depth=8) == ["b", "c", "d", "e"]
    assert await reached(door, "f", depth=8, direction="both") == []


async def test_both_ends_of_what_has_no_direction(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    objects(scope, "a", "b", "c")
    join(scope, "b", "a", directionality="bidirectional")
    join(scope, "c", "b", directionality="undirected")
    await scope.flush(seeding)
    for direction in ("outgoing", "incoming", "both"):
        assert await reached(door, "a", direction=direction, depth=2) == ["b", "c"]


async def test_the_relationships_that_were_walked(seeding: Conn, door: Door, chain: Scope) -> None:
    await chain.flush(seeding)
    related = {"filters": {"relationship_type": "any"}}
    assert await reached(door, "a", related, depth=2) == ["a-b", "b-c", "b-e"]
    both = {"filters": {"relationship_type": ["contradicts"], "object_type": "any"}}
    assert await reached(door, "a", both, depth=2) == ["b", "b-e", "c", "e"]
    assert await names(door, {"where": eq("source_object_id", "obj:b")}) == ["b-e", "b-c"]
    assert await names(door, {"where": eq("target_object_id", "obj:a")}) == ["d-a"]
    by_type = {"where": {"and": [eq("relationship_type", "supports"), eq("directionality", "directed")]}}
    assert await names(door, by_type) == ["d-a", "c-d", "b-c", "a-b"]


@pytest.mark.parametrize(
    ("state", "trust"),
    [
        ({"lifecycle_state": "archived"}, "all"),
        ({"validation_state": "unverified"}, "working"),
        ({"validation_state": "rejected"}, "all"),
        ({"retention_state": "pending_deletion"}, "all"),
    ],
)
async def test_a_relationship_is_walked_when_its_states_pass(
    seeding: Conn, door: Door, state: dict[str, str], trust: str
) -> None:
    """P85-P88: the defaults hold for relationships as for objects."""
    scope = Scope(SCOPE)
    objects(scope, "a", "b")
    join(scope, "a", "b", **state)
    await scope.flush(seeding)
    assert await reached(door, "a") == []
    assert await reached(door, "a", {"trust": trust}) == ["b"]


async def test_what_is_erased_is_not_gone_through(seeding: Conn, door: Door, chain: Scope) -> None:
    chain.put("obj:b", availability_state="deleted")
    await chain.flush(seeding)
    assert await reached(door, "a", {"trust": "all"}, depth=8) == []
    chain.put("obj:c", {"is": "c"}, lifecycle_state="archived")
    await chain.flush(seeding)
    assert await reached(door, "c", depth=2) == ["a", "d"], "an object in another state is gone through"
    assert await reached(door, "d", depth=8, direction="incoming") == [], "but not shown"


async def test_a_past_position(seeding: Conn, door: Door, chain: Scope) -> None:
    await chain.flush(seeding)
    before = chain.last_seq
    chain.put("rel:a-b", None, kind="r", object_type="supports", lifecycle_state="archived",
              metadata={"source_object_id": "obj:a", "target_object_id": "obj:b"})  # fmt: skip
    objects(chain, "g")
    join(chain, "a", "g")
    await chain.flush(seeding)
    assert await reached(door, "a", depth=2) == ["g"]
    assert await reached(door, "a", {"as_of": {"ledger_sequence": before}}, depth=2) == ["b", "c", "e"]
    assert await reached(door, "a", {"as_of": {"ledger_sequence": 6}}, depth=2) == []


async def test_pages_while_relationships_are_written(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    objects(scope, "hub", *(f"{index:02d}" for index in range(20)))
    for index in range(20):
        join(scope, "hub", f"{index:02d}")
    await scope.flush(seeding)
    call: dict[str, Any] = {"query": {"kind": "structured"}, "traverse": {"from": ["obj:hub"]}}
    expected = flat(await walk(door, 100, **call))
    assert len(expected) == 20
    seen: list[str] = []
    cursor: dict[str, str] = {}
    for step in range(10):
        found = await door.ok("query", scope_id=SCOPE, pagination={"limit": 3, **cursor}, count="bounded", **call)
        assert found["count"] == {"exact": True, "value": 20}
        seen += [item_name(item) for item in found["items"]]
        objects(scope, f"new{step}")
        join(scope, "hub", f"new{step}")
        scope.put(f"rel:hub-{step:02d}", None, kind="r", object_type="supports", lifecycle_state="archived",
                  metadata={"source_object_id": "obj:hub", "target_object_id": f"obj:{step:02d}"})  # fmt: skip
        await scope.flush(seeding)
        if found["next_cursor"] is None:
            break
        cursor = {"cursor": found["next_cursor"]}
    assert seen == expected


async def allow(seeding: Conn, scope: Scope, *visitors: str, version: int = 1) -> None:
    """A policy of the scope that lets traversals in."""
    policy = dumps({"cross_scope": {"traverse_from": [{"scope_id": name} for name in visitors]}})
    await seeding.execute(
        "INSERT INTO core.scope_policy VALUES ($1, $2, $3, NULL, 'agent:x', NULL, 'op:1', now())",
        scope.key,
        version,
        policy,
    )


async def across(seeding: Conn, *, tenant: str | None = None) -> tuple[Scope, Scope, Scope]:
    """a:x -> b:y -> c:z, and b:y -> b:w."""
    a, c = Scope(SCOPE), Scope("workspace:c")
    b = Scope("workspace:b") if tenant is None else Scope("workspace:b", tenant)
    objects(a, "x")
    objects(b, "y", "w")
    objects(c, "z")
    join(a, "x", "y", to="workspace:b")
    join(b, "y", "w")
    join(b, "y", "z", to="workspace:c")
    for scope in (a, b, c):
        await scope.flush(seeding)
    return a, b, c


async def test_another_scope_opens_by_its_own_policy_alone(seeding: Conn, door: Door) -> None:
    """P13, P151, P183: the target scope names the scope that the hop comes from."""
    a, b, c = await across(seeding)
    await allow(seeding, a, "workspace:b", "workspace:c")
    assert await reached(door, "x", depth=8) == []
    await allow(seeding, b, "workspace:c")
    assert await reached(door, "x", depth=8) == []
    await allow(seeding, b, SCOPE, version=2)
    assert await reached(door, "x") == ["y"]
    assert await reached(door, "x", depth=8) == ["w", "y"]
    await allow(seeding, c, SCOPE)
    assert await reached(door, "x", depth=8) == ["w", "y"], "the hop comes from b, not from a"
    await allow(seeding, c, "workspace:b", version=2)
    assert await reached(door, "x", depth=8) == ["w", "y", "z"]
    assert await reached(door, "x", depth=2) == ["w", "y", "z"]
    walk = {"from": ["obj:x"], "depth": 2, "paths": True}
    found = await door.ok("query", scope_id=SCOPE, query={"kind": "structured"}, traverse=walk)
    scopes = {item_name(item): [step.get("scope_id") for step in item["path"]["steps"]] for item in found["items"]}
    assert scopes == {"y": ["workspace:b"], "w": ["workspace:b", None], "z": ["workspace:b", "workspace:c"]}
    await allow(seeding, b, version=3)
    assert await reached(door, "x", depth=8) == [], "closed again at once"


async def test_a_scope_of_another_tenant_is_none(seeding: Conn, door: Door) -> None:
    _, b, _ = await across(seeding, tenant="tenant:other")
    await allow(seeding, b, SCOPE)
    assert await reached(door, "x", depth=8) == []


async def test_pages_over_several_scopes(seeding: Conn, door: Door) -> None:
    """Equal ledger sequences of two scopes neither skip nor repeat, and each scope is read at its first position."""
    a, b = Scope(SCOPE), Scope("workspace:b")
    objects(a, "x", *(f"a{index}" for index in range(5)))
    objects(b, *(f"b{index}" for index in range(7)))
    for index in range(5):
        join(a, "x", f"a{index}")
    for index in range(7):
        join(a, "x", f"b{index}", to="workspace:b")
    await a.flush(seeding)
    await b.flush(seeding)
    await allow(seeding, b, SCOPE)
    call: dict[str, Any] = {"query": {"kind": "structured"}, "traverse": {"from": ["obj:x"]}}
    whole = flat(await walk(door, 100, **call))
    assert sorted(whole) == sorted([f"a{index}" for index in range(5)] + [f"b{index}" for index in range(7)])
    for limit in (1, 2, 3):
        assert flat(await walk(door, limit, **call)) == whole
    first = await door.ok("query", scope_id=SCOPE, pagination={"limit": 4}, **call)
    for index in range(7):
        b.put(f"obj:b{index}", "later")
    await b.flush(seeding)
    cursor = first["next_cursor"]
    rest = await door.ok("query", scope_id=SCOPE, pagination={"limit": 100, "cursor": cursor}, **call)
    shown = [item_name(item) for item in first["items"] + rest["items"]]
    assert shown == whole
    contents = {item_name(item): item["envelope"]["canonical_content"] for item in rest["items"]}
    assert "later" not in contents.values()
    await allow(seeding, b, version=2)
    closed = await door.ok("query", scope_id=SCOPE, pagination={"limit": 100, "cursor": cursor}, **call)
    assert all(item["envelope"]["scope_id"] == SCOPE for item in closed["items"]), "rights are those of now"


async def test_too_much_and_wrong(seeding: Conn, door: Door, chain: Scope) -> None:
    await chain.flush(seeding)
    wrong: list[Any] = [
        {},
        {"from": []},
        {"from": "obj:a"},
        {"from": ["not an id"]},
        {"from": ["obj:a"], "depth": 0},
        {"from": ["obj:a"], "depth": 9},
        {"from": ["obj:a"], "depth": 1.5},
        {"from": ["obj:a"], "direction": "up"},
        {"from": ["obj:a"], "relationship_types": []},
        {"from": ["obj:a"], "relationship_types": ["a\0"]},
        {"from": ["obj:a"], "hops": 2},
        ["obj:a"],
    ]
    for traverse in wrong:
        error = await door.refused("query", scope_id=SCOPE, query={"kind": "structured"}, traverse=traverse)
        assert error["code"] == "invalid_request", traverse
        assert "traverse" in orjson.dumps(error["details"]).decode(), traverse
    missing = await door.refused(
        "query", scope_id=SCOPE, query={"kind": "structured"}, traverse={"from": ["obj:a", "obj:nobody"]}
    )
    assert missing["code"] == "object_not_found"


async def test_a_hub_is_refused_with_what_to_do(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    objects(scope, "hub")
    for index in range(10_001):
        join(scope, "hub", f"{index}", "references")
    await scope.flush(seeding)
    error = await door.refused(
        "query", scope_id=SCOPE, query={"kind": "structured"}, traverse={"from": ["obj:hub"], "depth": 8}
    )
    assert error["code"] == "invalid_request"
    assert "relationship_types" in error["message"]
    assert await reached(door, "hub", relationship_types=["supports"]) == []


async def test_at_a_snapshot_only_its_members_are_walked(seeding: Conn, door: Door, chain: Scope) -> None:
    """Neither an object nor a relationship outside a snapshot leads anywhere, and later ones lead nowhere in any."""
    inside = ("obj:a", "obj:b", "obj:d", "rel:a-b", "rel:b-c", "rel:d-a")
    chain.put("obj:g", None, availability_state="deleted")
    await seal(seeding, chain, "snap:whole")
    await seal(seeding, chain, "snap:some", *inside, "obj:g")
    join(chain, "a", "f")
    await chain.flush(seeding)

    async def from_a(snapshot_id: str, **more: Any) -> list[str]:
        query: dict[str, Any] = {"snapshot_id": snapshot_id, "query": {"kind": "structured", "trust": "all"}, **more}
        found = await door.ok("query", scope_id=SCOPE, **query)
        return sorted(item_name(item) for item in found["items"])

    deep = {"from": ["obj:a"], "depth": 4, "direction": "outgoing"}
    assert await from_a("snap:whole", traverse=deep) == ["b", "c", "d", "e"]
    assert await from_a("snap:some", traverse=deep) == ["b"]
    assert await from_a("snap:some", traverse={**deep, "direction": "both"}) == ["b", "d"]
    for outside in ("obj:c", "obj:f"):
        error = await door.refused(
            "query",
            scope_id=SCOPE,
            snapshot_id="snap:some",
            query={"kind": "structured"},
            traverse={**deep, "from": [outside]},
        )
        assert error["code"] == "object_not_found"
    assert await from_a("snap:some", traverse={**deep, "from": ["obj:g"]}) == []
