"""Counts agree with walks and tables, say what they are, and belong to one walk."""

from __future__ import annotations

from typing import Any

from pamspec_cli.servers.databases import Database
from services.query.tests.asking import SCOPE, eq, flat, item_name, walk
from services.query.tests.door import Conn, Door, limited
from services.query.tests.seeds import Scope

STRUCTURED = {"kind": "structured"}


async def test_counts_walks_and_tables_agree(seeding: Conn, door: Door) -> None:
    """M060, M071: after creations, updates, deletions and expiry, for objects and relationships."""
    scope = Scope(SCOPE)
    for index in range(137):
        scope.put(f"obj:{index}", {"n": index % 3}, validation_state="corroborated" if index % 2 else "unverified")
    for index in range(40):
        scope.put(f"obj:{index}", {"n": 9}, lifecycle_state="archived" if index % 4 == 0 else "active")
    for index in range(100, 110):
        scope.put(f"obj:{index}", availability_state="deleted")
    for index in range(110, 115):
        scope.put(f"obj:{index}", {"n": 1}, retention_state="expired")
    for index in range(7):
        scope.put(f"rel:{index}", None, kind="r", object_type="supports", metadata={"target_object_id": f"obj:{index}"})
    await scope.flush(seeding)
    sql = "SELECT count(*) FROM core.version_span WHERE to_seq = 9223372036854775807 AND kind = 'o' AND "
    for query, condition in (
        ({"trust": "all"}, "true"),
        ({"trust": "all", "where": eq("content:/n", 9)}, """content @> '{"n": 9}'"""),
        ({"trust": "all", "filters": {"availability_state": ["deleted"]}}, "availability_state = 'deleted'"),
        ({"trust": "all", "filters": {"retention_state": ["expired"]}}, "retention_state = 'expired'"),
        ({"trust": "all", "filters": {"lifecycle_state": ["archived"]}}, "lifecycle_state = 'archived'"),
        (
            {},
            "lifecycle_state = 'active' AND availability_state = 'available' AND retention_state = 'retained'"
            " AND validation_state = 'corroborated'",
        ),
    ):
        expected = await seeding.fetchval(sql + condition)
        asked = {**STRUCTURED, **query}
        assert len(flat(await walk(door, 10, query=asked))) == expected, query
        for count in ("bounded", "exact"):
            found = await door.ok("query", scope_id=SCOPE, query=asked, count=count, pagination={"limit": 1})
            assert found["count"] == {"exact": True, "value": expected}, query
    related = {**STRUCTURED, "filters": {"relationship_type": "any"}}
    assert (await door.ok("query", scope_id=SCOPE, query=related, count="exact"))["count"]["value"] == 7
    assert "count" not in await door.ok("query", scope_id=SCOPE, query=STRUCTURED)


async def test_a_walk_keeps_the_count_of_its_first_page(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for index in range(9):
        scope.put(f"obj:{index}", 1)
    await scope.flush(seeding)
    call: dict[str, Any] = {"scope_id": SCOPE, "query": STRUCTURED, "count": "bounded"}
    page = await door.ok("query", pagination={"limit": 4}, **call)
    seen = [item_name(item) for item in page["items"]]
    while page["next_cursor"] is not None:
        scope.put(None, 1)
        await scope.flush(seeding)
        page = await door.ok("query", pagination={"limit": 4, "cursor": page["next_cursor"]}, **call)
        assert page["count"] == {"exact": True, "value": 9}
        seen += [item_name(item) for item in page["items"]]
    assert len(seen) == 9
    past = {**STRUCTURED, "as_of": {"ledger_sequence": 5}}
    assert (await door.ok("query", scope_id=SCOPE, query=past, count="exact"))["count"]["value"] == 5


async def test_a_count_that_takes_too_long_names_what_to_narrow(database: Database, seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for index in range(12_000):
        scope.put(f"obj:{index}", {"text": f"{index} " * 20})
    await scope.flush(seeding)
    slow = {**STRUCTURED, "where": {"field": "content:/text", "op": "contains", "value": "nowhere"}}
    async with limited(database, door.principal, query_timeout_ms=5) as hurried:
        error = await hurried.refused("query", scope_id=SCOPE, query=slow, count="exact")
    assert error["code"] == "invalid_request"
    assert error["details"]["fields"] == ["content:/text"]
    found = await door.ok("query", scope_id=SCOPE, query=STRUCTURED, count="bounded", pagination={"limit": 1})
    assert found["count"] == {"exact": False, "value": 10_000}
    refused: list[Any] = [True, 5, "all", None, []]
    for wrong in refused:
        error = await door.refused("query", scope_id=SCOPE, query=STRUCTURED, count=wrong)
        assert error["code"] == "invalid_request", wrong


async def test_what_is_deleted_is_found_by_nothing(seeding: Conn, door: Door) -> None:
    """M036: not by its content, its words, its relationships or a count, in any trust but by its state."""
    scope = Scope(SCOPE)
    scope.put("obj:near", {"token": "kept"})
    scope.put("obj:gone", {"token": "Zq7secret"})
    ends = {"source_object_id": "obj:near", "target_object_id": "obj:gone"}
    scope.put("rel:x", None, kind="r", object_type="supports", metadata=ends)
    await scope.flush(seeding)
    searches: list[dict[str, Any]] = [
        {"where": eq("content:/token", "Zq7secret")},
        {"where": {"field": "content:/token", "op": "contains", "value": "Zq7"}},
        {"where": {"field": "content:", "op": "contains", "value": {"token": "Zq7secret"}}},
        {"where": {"field": "content:/token", "op": "in", "value": ["Zq7secret"]}},
    ]

    async def found() -> list[int]:
        totals = [
            (await door.ok("query", scope_id=SCOPE, query={**STRUCTURED, "trust": "all", **query}, count="exact"))[
                "count"
            ]
            for query in searches
        ]
        reached = {"traverse": {"from": ["obj:near"]}, "query": {**STRUCTURED, "trust": "all"}}
        total = await door.ok("query", scope_id=SCOPE, count="exact", **reached)
        return [one["value"] for one in [*totals, total["count"]]]

    assert await found() == [1, 1, 1, 1, 1]
    scope.put("obj:gone", availability_state="deleted")
    await scope.flush(seeding)
    assert await found() == [0, 0, 0, 0, 0]


async def test_a_cursor_is_its_principals(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for index in range(4):
        scope.put(f"obj:{index}", 1)
    await scope.flush(seeding)
    first = await door.ok("query", scope_id=SCOPE, query=STRUCTURED, pagination={"limit": 2})
    page = {"limit": 2, "cursor": first["next_cursor"]}
    for other in (door.as_("agent:other"), door.as_("agent:reader", tenant_id="tenant:other")):
        error = await other.refused("query", scope_id=SCOPE, query=STRUCTURED, pagination=page)
        assert error["code"] in ("invalid_request", "scope_not_found")
        assert "items" not in error
    error = await door.as_("agent:other").refused("query", scope_id=SCOPE, query=STRUCTURED, pagination=page)
    assert (error["code"], error["details"]["field"]) == ("invalid_request", "pagination.cursor")
    assert len((await door.ok("query", scope_id=SCOPE, query=STRUCTURED, pagination=page))["items"]) == 2
