"""Ranked queries and positions: floors that wait for the index, dropped indexes, past states."""

from __future__ import annotations

import asyncio

from services.query.tests.asking import SCOPE, item_name, names
from services.query.tests.door import Conn, Door
from services.query.tests.indexed import LEXICAL, index, lexical, mark
from services.query.tests.seeds import Scope


async def test_a_floor_waits_for_the_index_too(seeding: Conn, door: Door) -> None:
    """K1-K3: below its floor an index is never asked, and the answer says how far it is."""
    scope = Scope(SCOPE)
    scope.put("obj:a", {"text": "rain"})
    await scope.flush(seeding)
    await index(seeding, scope)
    scope.put("obj:b", {"text": "rain"})
    await scope.flush(seeding)
    for wait_ms in (0, 50):
        floor = {"min_sequence": 2, "wait_ms": wait_ms}
        error = await door.refused("query", scope_id=SCOPE, query=lexical("rain"), **floor)
        assert (error["code"], error["details"]["reason"], error["retryable"]) == (
            "service_unavailable",
            "index_lag",
            True,
        )
        assert error["details"]["watermark"] == 1
        assert error["details"]["watermarks"] == {LEXICAL: 1}
    assert len(await names(door, lexical("rain"), min_sequence=1)) == 1
    error = await door.refused("query", scope_id=SCOPE, query=lexical("rain"), min_sequence=3)
    assert error["details"]["reason"] == "stale_session"
    await index(seeding, scope)
    assert len(await names(door, lexical("rain"), min_sequence=2, wait_ms=30_000)) == 2
    first = await door.ok("query", scope_id=SCOPE, query=lexical("rain"), pagination={"limit": 1})
    await mark(seeding, scope, LEXICAL, 0)
    later = {"limit": 1, "cursor": first["next_cursor"]}
    assert len(await names(door, lexical("rain"), min_sequence=2, pagination=later)) == 1, "a cursor names its own"


async def test_a_floor_is_answered_as_soon_as_the_index_reaches_it(seeding: Conn, door: Door) -> None:
    """K1: whoever waits gets what was indexed while it waited; others wait beside it for their own floors."""
    scope = Scope(SCOPE)
    scope.put("obj:a", {"text": "rain"})
    scope.put("obj:b", {"text": "rain"})
    await scope.flush(seeding)
    await index(seeding, scope, [scope.heads["obj:a"]])
    await mark(seeding, scope, LEXICAL, 1)
    waiting = asyncio.create_task(names(door, lexical("rain"), min_sequence=2, wait_ms=30_000))
    canonical = await names(door, min_sequence=2, wait_ms=30_000)
    assert canonical == ["b", "a"], "what needs no index waits for none"
    await index(seeding, scope)
    assert await waiting == ["b", "a"]


async def test_an_index_that_was_dropped_is_at_nothing(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:a", {"text": "rain"})
    await scope.flush(seeding)
    found = await door.ok("query", scope_id=SCOPE, query=lexical("rain"))
    assert (found["items"], found["index"]["watermark"]) == ([], 0)
    error = await door.refused("query", scope_id=SCOPE, query=lexical("rain"), min_sequence=1)
    assert error["details"]["reason"] == "index_lag"


async def test_the_default_states_are_named_as_the_reason(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:a", {"text": "rain"}, validation_state="unverified")
    await scope.flush(seeding)
    await index(seeding, scope)
    assert "hint" in await door.ok("query", scope_id=SCOPE, query=lexical("rain"))
    assert "hint" not in await door.ok("query", scope_id=SCOPE, query=lexical("snow"))
    assert await names(door, lexical("rain", trust="working")) == ["a"]


async def test_past_positions_and_snapshots_rank_what_is_still_so(seeding: Conn, door: Door) -> None:
    """P120, P149: of a past position the index knows what has not changed since, and the answer says so."""
    scope = Scope(SCOPE)
    scope.put("obj:a", {"text": "rain"})
    scope.put("obj:b", {"text": "rain"})
    scope.put("obj:b", {"text": "rain again"})
    scope.put("obj:c", {"text": "rain"})
    await scope.flush(seeding)
    await index(seeding, scope)
    query = lexical("rain", as_of={"ledger_sequence": 2})
    found = await door.ok("query", scope_id=SCOPE, query=query)
    assert [item_name(item) for item in found["items"]] == ["a"]
    assert found["index"]["approximate"] is True
    assert found["index"]["filters_applied"]["ledger_sequence"] == 2
