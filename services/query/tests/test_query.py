"""query: the default, filters, what is not offered, and equal bytes."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from pamspec_cli.servers.databases import Database
from services.query.tests.asking import SCOPE, eq, names
from services.query.tests.door import Conn, Door, limited
from services.query.tests.seeds import Scope


async def test_default_is_trusted_retrieval_newest_first(seeding: Conn, door: Door) -> None:
    """P157, S17: the default, its short forms, and what lifts one state alone."""
    scope = Scope(SCOPE)
    scope.put("obj:trusted", 1)
    states: list[tuple[str, dict[str, Any]]] = [
        ("scratch", {"lifecycle_state": "scratch"}),
        ("archived", {"lifecycle_state": "archived"}),
        ("partly", {"availability_state": "partially_redacted"}),
        ("expired", {"retention_state": "expired"}),
        ("unverified", {"validation_state": "unverified"}),
        ("disputed", {"validation_state": "disputed"}),
        ("rejected", {"validation_state": "rejected"}),
    ]
    for name, state in states:
        scope.put(f"obj:{name}", 1, **state)
    scope.put("obj:second", 1)
    scope.put("obj:deleted", 1)
    scope.put("obj:deleted", availability_state="deleted")
    await scope.flush(seeding)
    assert await names(door) == ["second", "trusted"]
    assert await names(door, {"trust": "trusted"}) == ["second", "trusted"]
    assert await names(door, {"trust": "working"}) == ["second", "disputed", "unverified", "partly", "trusted"]
    partly = {"trust": "working", "filters": {"validation_state": "any"}}
    assert await names(door, partly) == ["second", "rejected", "disputed", "unverified", "partly", "trusted"]
    assert len(await names(door, {"trust": "all"})) == 10
    assert await names(door, {"filters": {"lifecycle_state": ["scratch", "archived"]}}) == ["archived", "scratch"]
    assert await names(door, {"filters": {"availability_state": "any"}}) == ["deleted", "second", "partly", "trusted"]
    assert await names(door, {"filters": {"availability_state": ["deleted"]}}) == ["deleted"]
    assert await names(door, {"filters": {"lifecycle_state": []}}) == []


async def test_the_default_says_when_it_hides_everything(seeding: Conn, door: Door) -> None:
    scope, empty = Scope(SCOPE), Scope("workspace:empty")
    scope.put("obj:x", 1, validation_state="unverified")
    await scope.flush(seeding)
    await empty.flush(seeding)
    found = await door.ok("query", scope_id=SCOPE, query={"kind": "structured"})
    assert found["items"] == []
    assert "query.trust" in found["hint"]
    for query in (
        {"filters": {"object_type": ["claim"]}},
        {"trust": "trusted"},
        {"where": {"field": "object_id", "op": "eq", "value": "obj:y"}},
    ):
        assert "hint" not in await door.ok("query", scope_id=SCOPE, query={"kind": "structured", **query})
    assert "hint" not in await door.ok("query", scope_id="workspace:empty", query={"kind": "structured"})


async def test_a_hint_that_takes_too_long_is_left_out(seeding: Conn, door: Door, database: Database) -> None:
    scope = Scope(SCOPE)
    for index in range(300):
        scope.put(f"obj:{index}", {"text": "x" * 200_000}, validation_state="unverified")
    await scope.flush(seeding)
    where = {"or": [{"field": "content:/text", "op": "contains", "value": f"{n}"} for n in range(100)]}
    async with limited(database, door.principal, hint_timeout_ms=1) as strict:
        found = await strict.ok("query", scope_id=SCOPE, query={"kind": "structured", "where": where})
        assert found == {"items": [], "next_cursor": None}
        assert await strict.ok("query", scope_id=SCOPE, query={"kind": "structured", "trust": "all"})


async def test_filters(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    claim = scope.put("obj:claim", 1, object_type="claim")
    scope.put("obj:task", 1, object_type="task")
    scope.put("rel:a", 1, kind="r", object_type="supports")
    scope.put("rel:b", 1, kind="r", object_type="part_of")
    scope.put("dlg:a", 1, kind="d", object_type="delegation")
    await scope.flush(seeding)
    assert await names(door, {"filters": {"object_type": ["claim"]}}) == ["claim"]
    assert await names(door, {"filters": {"object_type": ["claim", "task", "claim"]}}) == ["task", "claim"]
    assert await names(door, {"filters": {"object_type": "any"}}) == ["task", "claim"]
    assert await names(door, {"filters": {"object_type": []}}) == []
    assert await names(door, {"filters": {"object_type": ["Claim", "cl%", "cl_im"]}}) == []
    assert await names(door, {"filters": {"provenance_id": [claim.span["provenance_id"]]}}) == ["claim"]
    assert await names(door, {"filters": {"relationship_type": ["supports"]}}) == ["a"]
    assert await names(door, {"filters": {"relationship_type": "any"}}) == ["b", "a"]
    both = {"relationship_type": ["part_of"], "object_type": ["task"]}
    assert await names(door, {"filters": both}) == ["b", "task"]
    assert await names(door, {"filters": both, "where": eq("relationship_type", "part_of")}) == ["b"]
    assert await names(door, {"where": eq("relationship_type", "claim")}) == []


ODD: list[Any] = [{"$ne": None}, {"": {}}, [{"$ne": None}], 7, None, [None], [["a"]], "x' OR 1=1--", [1]]


async def test_odd_filter_values_never_widen(seeding: Conn, door: Door) -> None:
    """M016."""
    scope = Scope(SCOPE)
    scope.put("obj:x", 1)
    await scope.flush(seeding)
    for name, value in itertools.product(("object_type", "lifecycle_state", "provenance_id", "relationship_type"), ODD):
        error = await door.refused("query", scope_id=SCOPE, query={"kind": "structured", "filters": {name: value}})
        assert error["code"] == "invalid_request", (name, value)
    for value in ODD:
        if isinstance(value, dict | list):
            query = {"kind": "structured", "where": eq("object_id", value)}
            assert (await door.refused("query", scope_id=SCOPE, query=query))["code"] == "invalid_request", value
    assert await names(door, {"where": eq("object_id", "x' OR 1=1--")}) == []
    assert await names(door, {"filters": {"object_type": ["x' OR 1=1--", "$.**", "%"]}}) == []


async def test_equal_state_gives_equal_bytes(seeding: Conn, door: Door) -> None:
    """P154-P156, S17."""
    scope = Scope(SCOPE)
    for index in range(30):
        scope.put(f"obj:{index}", {"b": index, "a": [1.50, None]}, object_type="claim")
    await scope.flush(seeding)
    where = {"or": [{"field": "content:/b", "op": "lt", "value": 20}, eq("content:/a/1", None)]}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("query", {"query": {"kind": "structured", "where": where}, "pagination": {"limit": 7}}),
        ("query", {"query": {"kind": "structured"}, "fields": ["object_id", "canonical_content"]}),
        ("read", {"object_id": "obj:3"}),
        ("inspect_history", {"object_id": "obj:3"}),
    ]
    for operation, call in calls:
        bodies = await asyncio.gather(*(door(operation, scope_id=SCOPE, **call) for _ in range(5)))
        assert len({one.body for one in bodies}) == 1
    assert b'"canonical_content":{"a":[1.5,null],"b":3}' in (await door("read", scope_id=SCOPE, object_id="obj:3")).body


async def test_what_cannot_be_answered_is_refused(seeding: Conn, door: Door) -> None:
    """S25, P120-P123: never silently ignored."""
    scope = Scope(SCOPE)
    scope.put("obj:x", 1)
    await scope.flush(seeding)

    async def code(query: dict[str, Any], **more: Any) -> str:
        return str((await door.refused("query", scope_id=SCOPE, query=query, **more))["code"])

    plain = {"kind": "structured"}
    assert await code(plain, snapshot_id="snap:1") == "snapshot_not_found"
    assert await code(plain, embedding_space_id="space:1") == "embedding_space_mismatch"
    assert await code({"kind": "semantic", "text": "x"}) == "invalid_request"
    assert await code({"kind": "semantic", "text": "x"}, embedding_space_id="space:1") == "embedding_space_mismatch"
    assert await code({"kind": "hybrid", "text": "x"}) == "invalid_request"
    assert await code({"kind": "hybrid", "text": "x", "modes": ["graph"]}) == "invalid_request"
    assert await code(plain, explain_ranking=True) == "invalid_request"
    assert await code(plain, delegation_id="dlg:1") == "object_not_found"
    for text in ("(((", "AND OR NOT", ":*", "C:\\x\\y.py", "", "x" * 200_000):
        assert await code({"kind": "structured", "text": text}) == "invalid_request"
    assert await code({"kind": "structured", "vector": [1.0]}) == "invalid_request"
    assert await code({"kind": "sql"}) == "invalid_request"
    assert await code({}) == "invalid_request"
    assert await code({**plain, "limit": 5}) == "invalid_request"
    assert await code(plain, sort="name") == "invalid_request"
    assert await names(door, exact=True, explain_ranking=False) == ["x"]


async def test_a_scan_that_takes_too_long_names_its_fields(seeding: Conn, door: Door, database: Database) -> None:
    scope = Scope(SCOPE)
    for index in range(3000):
        scope.put(f"obj:{index}", {"text": "x" * 50_000 if index % 50 == 0 else "x", "n": index})
    await scope.flush(seeding)
    slow = {
        "or": [
            {"field": f"content:/text{'' if n % 2 else 'x'}", "op": "contains", "value": f"y{n}"} for n in range(150)
        ]
    }
    async with limited(database, door.principal, query_timeout_ms=20) as strict:
        error = await strict.refused("query", scope_id=SCOPE, query={"kind": "structured", "where": slow})
        assert error["code"] == "invalid_request"
        assert error["details"]["fields"] == ["content:/text", "content:/textx"]
    assert await names(door) != []
