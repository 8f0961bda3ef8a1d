"""Ordering, cursors and pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import orjson

from services.query.tests.asking import SCOPE, flat, item_name, names, walk
from services.query.tests.door import Conn, Door
from services.query.tests.seeds import START, Scope


async def test_ordering(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    hours = {"a": 2, "b": None, "c": 1, "d": 2, "e": None}
    for name, hour in hours.items():
        observed = None if hour is None else START + timedelta(hours=hour)
        scope.put(f"obj:{name}", 1, observed_at=observed, object_type="claim" if name < "c" else "task")
    await scope.flush(seeding)
    by = [{"field": "observed_at"}]
    expected = {
        ("asc",): ["c", "a", "d", "b", "e"],
        ("desc",): ["d", "a", "c", "e", "b"],
    }
    for (direction,), order in expected.items():
        by = [{"field": "observed_at", "direction": direction}]
        for limit in (1, 2, 3, 5):
            pages = await walk(door, limit, query={"kind": "structured"}, ordering={"by": by})
            assert flat(pages) == order, (direction, limit)
    tie = {"by": [{"field": "object_type", "direction": "desc"}, {"field": "observed_at"}], "tie_break": ["object_id"]}
    for limit in (1, 2, 5):
        assert flat(await walk(door, limit, query={"kind": "structured"}, ordering=tie)) == ["c", "d", "e", "a", "b"]
    walked = flat(await walk(door, 2, query={"kind": "structured"}, ordering={"by": [{"field": "committed_at"}]}))
    assert walked == ["a", "b", "c", "d", "e"], "what is equal follows the direction of the last field"
    vector = {"tie_break": ["sequence", "object_id", "version_id"]}
    assert await names(door, ordering=vector) == ["e", "d", "c", "b", "a"]
    refused: list[Any] = [
        {"by": []},
        {"by": [{"field": "nothing"}]},
        {"by": [{"field": "content:/x"}]},
        {"by": [{"field": "provenance.source_ref"}]},
        {"by": [{"field": "object_id", "direction": "up"}]},
        {"tie_break": ["nothing"]},
        {"tie_break": "object_id"},
        {"profile": "newest"},
        {"profile": "recent"},
        [],
    ]
    for wrong in refused:
        error = await door.refused("query", scope_id=SCOPE, query={"kind": "structured"}, ordering=wrong)
        assert error["code"] == "invalid_request", wrong


async def test_every_object_once_whatever_the_page(seeding: Conn, door: Door) -> None:
    """M060, M061: equal times, odd limits, and a limit above the maximum is an error."""
    scope = Scope(SCOPE, tick=timedelta(0))
    for index in range(1137):
        scope.put(f"obj:{index:04d}", index)
    await scope.flush(seeding)
    newest = [f"{index:04d}" for index in reversed(range(1137))]
    for limit in (1000, 500, 50):
        assert flat(await walk(door, limit, query={"kind": "structured"})) == newest
    same_time = {"by": [{"field": "committed_at"}], "tie_break": ["object_id"]}
    assert flat(await walk(door, 300, query={"kind": "structured"}, ordering=same_time)) == sorted(newest)
    assert len(await names(door)) == 50
    for pagination in (
        {"limit": 5000},
        {"limit": 0},
        {"limit": -1},
        {"limit": "5"},
        {"limit": 1.5},
        {},
        {"limit": True},
    ):
        error = await door.refused("query", scope_id=SCOPE, query={"kind": "structured"}, pagination=pagination)
        assert error["code"] == "invalid_request", pagination
    error = await door.refused("query", scope_id=SCOPE, query={"kind": "structured"}, pagination={"limit": 1001})
    assert "1000" in error["message"]


async def test_pages_stay_at_their_position_while_writers_write(seeding: Conn, door: Door) -> None:
    """P153, M061: creates, updates, deletions and state changes between pages neither skip nor repeat."""
    scope = Scope(SCOPE)
    for index in range(20):
        scope.put(f"obj:{index:02d}", {"n": index}, object_type="claim" if index % 2 else "task")
    await scope.flush(seeding)
    before = await walk(door, 100, query={"kind": "structured"})
    ordered = {"by": [{"field": "object_id"}]}
    for query, ordering in (
        ({"kind": "structured"}, None),
        ({"kind": "structured"}, ordered),
        ({"kind": "structured", "filters": {"object_type": ["claim"]}}, None),
    ):
        extra = {} if ordering is None else {"ordering": ordering}
        expected = flat(await walk(door, 100, query=query, **extra))
        seen: list[str] = []
        cursor: dict[str, str] = {}
        for step in range(100):
            found = await door("query", scope_id=SCOPE, query=query, pagination={"limit": 3, **cursor}, **extra)
            document = orjson.loads(found.body)
            seen += [item_name(item) for item in document["items"]]
            scope.put(None, "new")
            scope.put(f"obj:{(7 * step) % 20:02d}", {"n": -1})
            await scope.flush(seeding)
            if document["next_cursor"] is None:
                break
            cursor = {"cursor": document["next_cursor"]}
        assert seen == expected
    assert len(before[0]) == 20


async def test_what_is_erased_between_pages_is_not_shown(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for index in range(4):
        scope.put(f"obj:{index}", "secret")
    await scope.flush(seeding)
    call: dict[str, Any] = {"scope_id": SCOPE, "query": {"kind": "structured"}}
    first = await door.ok("query", pagination={"limit": 2}, **call)
    scope.put("obj:1", availability_state="deleted")
    scope.put("obj:0", "changed")
    await scope.flush(seeding)
    second = await door.ok("query", pagination={"limit": 2, "cursor": first["next_cursor"]}, **call)
    assert [item_name(item) for item in second["items"]] == ["0"]
    assert second["items"][0]["envelope"]["canonical_content"] == "secret"


async def test_cursors_open_their_own_page_only(seeding: Conn, door: Door) -> None:
    scope, other = Scope(SCOPE), Scope("workspace:b")
    for name in ("a", "b", "c"):
        scope.put(f"obj:{name}", 1)
        other.put(f"obj:{name}", 1)
    await scope.flush(seeding)
    await other.flush(seeding)
    call: dict[str, Any] = {"scope_id": SCOPE, "query": {"kind": "structured"}}
    first = await door("query", operation_id="op:1", pagination={"limit": 1}, **call)
    again = await door("query", operation_id="op:2", pagination={"limit": 1}, **call)
    assert first.body == again.body, "cursors hold no nonce and no time"
    cursor = orjson.loads(first.body)["next_cursor"]
    wider = await door.ok("query", pagination={"limit": 2, "cursor": cursor}, min_sequence=2, **call)
    assert [item_name(item) for item in wider["items"]] == ["b", "a"]
    for wrong in (
        {"scope_id": "workspace:b"},
        {"query": {"kind": "structured", "trust": "all"}},
        {"ordering": {"by": [{"field": "object_id"}]}},
        {"fields": ["object_id"]},
        {"pagination": {"limit": 1, "cursor": cursor[:-2] + "AA"}},
        {"pagination": {"limit": 1, "cursor": "AAAA"}},
        {"pagination": {"limit": 1, "cursor": "ä" * 40}},
        {"pagination": {"limit": 1, "cursor": ""}},
    ):
        error = await door.refused("query", **{**call, "pagination": {"limit": 1, "cursor": cursor}, **wrong})
        assert error["code"] == "invalid_request", wrong
    history = await door.refused(
        "inspect_history", scope_id=SCOPE, after_sequence=0, pagination={"limit": 1, "cursor": cursor}
    )
    assert history["code"] == "invalid_request"
    scope.epoch = 2
    scope.put("obj:d", 1)
    await scope.flush(seeding)
    error = await door.refused("query", pagination={"limit": 1, "cursor": cursor}, **call)
    assert error["details"]["reason"] == "position_outdated"


async def test_a_page_ends_at_its_bytes(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for index in range(12):
        scope.put(f"obj:{index:02d}", "x" * 1_000_000)
    await scope.flush(seeding)
    call: dict[str, Any] = {"scope_id": SCOPE, "query": {"kind": "structured"}, "pagination": {"limit": 100}}
    found = await door("query", **call)
    document = orjson.loads(found.body)
    assert len(found.body) <= 8 * 1024 * 1024
    assert 7 <= len(document["items"]) < 12
    assert document["next_cursor"] is not None
    assert len(flat(await walk(door, 100, query={"kind": "structured"}))) == 12
    light = await door.ok("query", fields=["object_id"], **call)
    assert len(light["items"]) == 12
