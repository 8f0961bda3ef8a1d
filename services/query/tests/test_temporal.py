"""Times: their forms, temporal bases and past positions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import orjson

from pamspec_common.instants import wire
from services.query.tests.asking import SCOPE, eq, names
from services.query.tests.door import Conn, Door
from services.query.tests.seeds import START, Scope

TIMES: list[tuple[Any, bool]] = [
    ("2026-03-01T09:00:00Z", True),
    ("2026-03-01T09:00:00.000000Z", True),
    ("2026-03-01T14:30:00+05:30", True),
    ("2026-03-01t09:00:00z", True),
    ("2026-03-01", False),
    ("2026-03-01T09:00:00", False),
    ("2026-03-01T09:00:60Z", False),
    ("0000-01-01T00:00:00Z", False),
    ("9999-12-31T23:59:59-01:00", False),
    ("1772355600", False),
    (1772355600, False),
    (1772355600000, False),
    ("now", False),
]


async def test_forms_of_time(seeding: Conn, door: Door) -> None:
    """M076: RFC 3339 with an offset; everything else is refused."""
    scope = Scope(SCOPE)
    scope.put("obj:x", 1, observed_at=START)
    scope.put("obj:y", 1, observed_at=START + timedelta(microseconds=1))
    await scope.flush(seeding)
    for text, form in TIMES:
        where = eq("observed_at", text)
        span: dict[str, Any] = {"kind": "temporal", "temporal_basis": "observed_at", "range": {"from": text}}
        if form:
            assert await names(door, {"where": where}) == ["x"]
            assert await names(door, span) == ["y", "x"]
            span["range"] = {"from": wire(START - timedelta(hours=1)), "to": text}
            assert await names(door, span) == []
            continue
        for query in ({"kind": "structured", "where": where}, span):
            assert (await door.refused("query", scope_id=SCOPE, query=query))["code"] == "invalid_request", text


async def test_year_9999_is_a_time(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:x", 1)
    await scope.flush(seeding)
    last = "9999-12-31T23:59:59.999999Z"
    assert await names(door, {"where": {"field": "recorded_at", "op": "lt", "value": last}}) == ["x"]
    assert await names(door, {"as_of": {"recorded_at": last}}) == ["x"]


async def test_temporal_bases(seeding: Conn, door: Door) -> None:
    """P152: half-open ranges on a named basis."""
    scope = Scope(SCOPE, tick=timedelta(hours=1))
    day = timedelta(days=1)
    scope.put("obj:a", 1, observed_at=START, asserted_at=START + day, valid_from=START, valid_until=START + day)
    scope.put("obj:b", 1, observed_at=START + day, valid_from=START + day)
    scope.put("obj:c", 1)
    await scope.flush(seeding)

    async def on(basis: str, start: Any = None, end: Any = None) -> list[str]:
        bounds = {name: value for name, value in (("from", start), ("to", end)) if value is not None}
        query: dict[str, Any] = {"kind": "temporal", "temporal_basis": basis}
        return await names(door, query | ({"range": bounds} if bounds else {}))

    at, later = wire(START), wire(START + day)
    assert await on("observed_at", at, later) == ["a"]
    assert await on("observed_at", later) == ["b"]
    assert await on("observed_at", None, at) == []
    assert await on("observed_at") == ["b", "a"]
    assert await on("asserted_at", at) == ["a"]
    assert await on("valid_time", at, later) == ["c", "a"]
    assert await on("valid_time", later) == ["c", "b"]
    assert await on("valid_time", None, later) == ["c", "a"]
    for basis in ("committed_at", "recorded_at"):
        assert await on(basis, wire(START + timedelta(hours=2)), wire(START + timedelta(hours=3))) == ["b"]
    assert await on("sequence", 2, 3) == ["b"]
    for query in (
        {"kind": "temporal"},
        {"kind": "temporal", "range": {"from": at}},
        {"kind": "structured", "temporal_basis": "observed_at"},
        {"kind": "structured", "range": {"from": at}},
        {"kind": "temporal", "temporal_basis": "observed_at", "range": {}},
        {"kind": "temporal", "temporal_basis": "observed_at", "range": {"from": later, "to": at}},
        {"kind": "temporal", "temporal_basis": "observed_at", "range": {"from": at, "to": at}},
        {"kind": "temporal", "temporal_basis": "observed_at", "range": {"from": 1}},
        {"kind": "temporal", "temporal_basis": "sequence", "range": {"from": at}},
        {"kind": "temporal", "temporal_basis": "sequence", "range": {"from": -1}},
        {"kind": "temporal", "temporal_basis": "wall_clock"},
    ):
        assert (await door.refused("query", scope_id=SCOPE, query=query))["code"] == "invalid_request", query


async def test_as_of(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE, tick=timedelta(hours=1))
    scope.put("obj:a", "old", valid_until=START + timedelta(days=1))
    scope.put("obj:b", "b")
    scope.put("obj:a", "new", valid_until=None)
    scope.put("obj:b", availability_state="deleted")
    await scope.flush(seeding)

    async def at(**as_of: Any) -> list[Any]:
        query = {"kind": "structured", "as_of": as_of}
        found = await door("query", scope_id=SCOPE, query=query)
        return [item["envelope"]["canonical_content"] for item in orjson.loads(found.body)["items"]]

    assert await at(ledger_sequence=1) == ["old"]
    assert await names(door, {"as_of": {"ledger_sequence": 1}}, min_sequence=4) == ["a"], "a floor is no position"
    assert await at(ledger_sequence=2) == ["old"], "what was erased since is not shown"
    assert await at(ledger_sequence=0) == []
    assert await at(recorded_at=wire(START + timedelta(hours=2.5))) == ["old"]
    assert await at(recorded_at=wire(START + timedelta(hours=3))) == ["new"]
    assert await at(ledger_sequence=2, valid_at=wire(START + timedelta(days=2))) == []
    assert await at(valid_at=wire(START + timedelta(days=2))) == ["new"]
    error = await door.refused("query", scope_id=SCOPE, query={"kind": "structured", "as_of": {"ledger_sequence": 5}})
    assert error["details"]["reason"] == "position_future"
    tombstones = {"as_of": {"ledger_sequence": 2}, "filters": {"availability_state": "any"}}
    assert await names(door, tombstones) == ["b", "a"]
