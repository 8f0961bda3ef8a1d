"""query: filters, defaults, the where tree, temporal bases, ordering and pages."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import orjson

from pamspec_cli.servers.databases import Database
from pamspec_common.instants import wire
from services.query.tests.door import Conn, Door, limited
from services.query.tests.seeds import START, Scope

SCOPE = "workspace:a"


async def names(door: Door, query: dict[str, Any] | None = None, **more: Any) -> list[str]:
    """The ids of a page, without their scheme."""
    found = await door.ok("query", scope_id=SCOPE, query={"kind": "structured", **(query or {})}, **more)
    return [_name(item) for item in found["items"]]


def _name(item: dict[str, Any]) -> str:
    envelope = item["envelope"]
    return str(envelope.get("object_id") or envelope["relationship_id"]).partition(":")[2]


async def walk(door: Door, limit: int, **call: Any) -> list[list[str]]:
    """All pages of a query."""
    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        document = {"scope_id": SCOPE, "pagination": {"limit": limit, **cursor}, **call}
        answer = await door.raw("query", orjson.dumps(document))
        assert answer.status == 200, answer.body
        found = orjson.loads(answer.body)
        pages.append([_name(item) for item in found["items"]])
        if found["next_cursor"] is None:
            return pages
        cursor = {"cursor": found["next_cursor"]}


def flat(pages: Sequence[Sequence[str]]) -> list[str]:
    return [name for page in pages for name in page]


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


def eq(field: str, value: Any) -> dict[str, Any]:
    return {"field": field, "op": "eq", "value": value}


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


VALUES: dict[str, Any] = {
    "str": "alpha",
    "upper": "Beta",
    "int": 7,
    "float": 7.5,
    "big": 2**70,
    "true": True,
    "false": False,
    "null": None,
    "list": ["alpha", 7, None],
    "nested": {"deep": ["x"]},
    "time": "2026-03-01T09:00:00Z",
    "wild": "a%b_c",
    "missing": ...,
}
NUMBERS, TEXTS = {"int", "float", "big"}, {"str", "upper", "time", "wild"}
EVERYTHING = set(VALUES)
CASES: list[tuple[str, Any, set[str]]] = [
    ("eq", "alpha", {"str"}),
    ("eq", 7, {"int"}),
    ("eq", 7.0, {"int"}),
    ("eq", 2**70, {"big"}),
    ("eq", True, {"true"}),
    ("eq", None, {"null"}),
    ("ne", "alpha", EVERYTHING - {"str"}),
    ("ne", None, EVERYTHING - {"null"}),
    ("in", ["alpha", 7, None], {"str", "int", "null"}),
    ("nin", ["alpha", 7, None], EVERYTHING - {"str", "int", "null"}),
    ("gt", 7, {"float", "big"}),
    ("gte", 7, NUMBERS),
    ("lt", 7.5, {"int"}),
    ("lte", 7.5, {"int", "float"}),
    ("lt", 2**70, {"int", "float"}),
    ("gt", "Beta", {"str", "wild"}),
    ("gte", "2026", TEXTS),
    ("lt", "a", {"upper", "time"}),
    ("lte", "2026-03-01T09:00:00Z", {"time"}),
    ("exists", True, EVERYTHING - {"missing"}),
    ("exists", False, {"missing"}),
    ("contains", "alpha", {"str", "list"}),
    ("contains", 7, {"list"}),
    ("contains", None, {"list"}),
    ("contains", "%", {"wild"}),
    ("contains", "_", {"wild"}),
    ("contains", {"deep": ["x"]}, {"nested"}),
    ("contains", ["alpha", 7], {"list"}),
    ("starts_with", "a", {"str", "wild"}),
    ("starts_with", "a%", {"wild"}),
    ("starts_with", "", TEXTS),
]
REFUSED: list[tuple[list[Any], list[Any]]] = [
    (["gt", "gte", "lt", "lte"], [None, True, [], {}, ["a"]]),
    (["eq", "ne"], [[], {}, ["a"], {"$ne": None}]),
    (["in", "nin"], ["alpha", 7, None, [], {}, [["a"]], [{}], [1] * 1001, ["a\0"]]),
    (["exists"], [None, 1, "true", []]),
    (["starts_with"], [None, 1, True, []]),
    (["eq", "ne", "gt", "contains", "starts_with"], ["\0"]),
    (["contains"], [{"a\0": 1}]),
    (["regex", "like", "", "EQ", "$ne", None, 7, ["eq"]], [1]),
]


async def test_every_operator_on_every_type(seeding: Conn, door: Door) -> None:
    """M064: the correct rows, or invalid_request."""
    scope = Scope(SCOPE)
    for name, value in VALUES.items():
        scope.put(f"obj:{name}", {} if value is ... else {"v": value, "w": [{"v/~x": value}]})
    await scope.flush(seeding)
    for op, value, expected in CASES:
        for field in ("content:/v", "content:/w/0/v~1~0x"):
            where = {"field": field, "op": op, "value": value}
            assert set(await names(door, {"where": where})) == expected, where
            inverse = {"not": [where]}
            assert set(await names(door, {"where": inverse})) == EVERYTHING - expected, inverse
    for op, value in [pair for operators, values in REFUSED for pair in itertools.product(operators, values)]:
        where = {"field": "content:/v", "op": op, "value": value}
        error = await door.refused("query", scope_id=SCOPE, query={"kind": "structured", "where": where})
        assert error["code"] == "invalid_request", where


async def test_envelope_fields(seeding: Conn, door: Door) -> None:
    """P147: every member, with or without a column, erasable ones too."""
    scope = Scope(SCOPE)
    scope.put(
        "obj:a",
        1,
        object_type="claim",
        schema_id="https://example.com/s",
        observed_at=START,
        valid_from=START,
        provenance={"source_ref": "mail:7", "source_confidence": 0.75, "evidence_refs": ["file:1", "file:2"]},
        actor={"actor_id": "agent:writer", "actor_kind": "agent", "display_name": "Wren"},
        metadata={"quality_signals": {"assessed_confidence": 0.5, "verification_method_id": "m%1"}},
        private={"integrity": {"digest": "abc", "algorithm": "sha-256"}},
    )
    scope.put("obj:b", 2, metadata={"quality_signals": {"verification_method_id": "a\0b"}})
    await scope.flush(seeding)
    at = START.isoformat()
    for field, op, value in [
        ("object_id", "starts_with", "obj:a"),
        ("version_id", "eq", scope.versions[0].version_id),
        ("object_type", "in", ["claim", "task"]),
        ("schema_id", "contains", "example"),
        ("schema_id", "exists", True),
        ("actor.actor_id", "eq", "agent:writer"),
        ("actor.display_name", "starts_with", "Wr"),
        ("observed_at", "eq", at),
        ("observed_at", "in", [at]),
        ("valid_from", "lte", at),
        ("recorded_at", "lt", wire(START + timedelta(milliseconds=2))),
        ("ledger_sequence", "lt", 2),
        ("quality_signals.assessed_confidence", "gte", 0.5),
        ("quality_signals.verification_method_id", "contains", "%"),
        ("provenance.source_ref", "eq", "mail:7"),
        ("provenance.source_confidence", "gt", 0.7),
        ("provenance.evidence_refs", "contains", "file:2"),
        ("integrity.digest", "eq", "abc"),
        ("integrity.algorithm", "in", ["sha-256"]),
    ]:
        where = {"field": field, "op": op, "value": value}
        assert await names(door, {"where": where}) == ["a"], where
        assert await names(door, {"where": {"not": [where]}}) == ["b"], where
    assert await names(door, {"where": eq("observed_at", None)}) == ["b"]
    assert await names(door, {"where": eq("sequence", 1)}) == ["b", "a"]
    assert await names(door, {"where": eq("scope_id", SCOPE)}) == ["a"]
    assert await names(
        door, {"where": {"and": [eq("object_id", "obj:a"), {"or": [eq("sequence", 2), eq("sequence", 1)]}]}}
    ) == ["a"]
    scope.erase("obj:a", [1])
    await scope.flush(seeding)
    assert await names(door, {"where": eq("provenance.source_ref", "mail:7")}) == []


ODD_TREES: list[Any] = [
    eq("objectid", 1),
    eq("scope_id; DROP", 1),
    eq("content", 1),
    eq("content:a", 1),
    eq("content:/~2", 1),
    eq("content:/\0", 1),
    eq("payload:/to", 1),
    eq("sequence", 1.5),
    eq("sequence", True),
    eq("sequence", "1"),
    eq("sequence", 2**63),
    eq("lifecycle_state", "alive"),
    eq("object_id", "a\0"),
    eq("observed_at", "2026-01-01"),
    {"field": "lifecycle_state", "op": "gt", "value": "active"},
    {"field": "sequence", "op": "contains", "value": "1"},
    {"field": "observed_at", "op": "starts_with", "value": "2026"},
    {"field": "relationship_refs", "op": "eq", "value": "rel:1"},
    {"field": "object_id", "op": "eq"},
    {"field": "object_id", "op": "eq", "value": "x", "more": 1},
    {"and": []},
    {"or": {}},
    {"and": [eq("sequence", 1)], "or": [eq("sequence", 1)]},
    {"xor": [eq("sequence", 1)]},
    {},
    [],
    "object_id = 1",
    None,
]


async def test_odd_trees_are_refused(seeding: Conn, door: Door) -> None:
    await Scope(SCOPE).flush(seeding)
    for where in ODD_TREES:
        error = await door.refused("query", scope_id=SCOPE, query={"kind": "structured", "where": where})
        assert error["code"] == "invalid_request", where


async def test_trees_are_bounded(seeding: Conn, door: Door) -> None:
    """S20: depth 8, and the limit is named."""
    scope = Scope(SCOPE)
    scope.put("obj:x", 1)
    await scope.flush(seeding)
    tree: dict[str, Any] = eq("sequence", 1)
    for _ in range(7):
        tree = {"and": [tree]}
    assert await names(door, {"where": tree}) == ["x"]
    error = await door.refused("query", scope_id=SCOPE, query={"kind": "structured", "where": {"and": [tree]}})
    assert error["details"]["limit"] == 8
    wide = {"or": [eq("sequence", n) for n in range(201)]}
    error = await door.refused("query", scope_id=SCOPE, query={"kind": "structured", "where": wide})
    assert error["details"]["limit"] == 200


async def test_pointers_mean_what_rfc_6901_says(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:list", {"v": ["first", "last"]})
    scope.put("obj:map", {"v": {"-1": "first", "01": "first", "0": "first", "": "first"}})
    scope.put("obj:scalar", "first")
    await scope.flush(seeding)
    assert await names(door, {"where": eq("content:/v/0", "first")}) == ["map", "list"]
    for token in ("-1", "01", ""):
        assert await names(door, {"where": eq(f"content:/v/{token}", "first")}) == ["map"]
        other = {"not": [eq(f"content:/v/{token}", "first")]}
        assert await names(door, {"where": other}) == ["scalar", "list"]
    assert await names(door, {"where": eq("content:", "first")}) == ["scalar"]


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


async def test_ordering(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    hours = {"a": 2, "b": None, "c": 1, "d": 2, "e": None}
    for name, hour in hours.items():
        observed = None if hour is None else START + timedelta(hours=hour)
        scope.put(f"obj:{name}", 1, observed_at=observed, object_type="claim" if name < "c" else "task")
    await scope.flush(seeding)
    by = [{"field": "observed_at"}]
    expected = {
        ("asc",): ["c", "d", "a", "e", "b"],
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
            seen += [_name(item) for item in document["items"]]
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
    assert [_name(item) for item in second["items"]] == ["0"]
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
    assert [_name(item) for item in wider["items"]] == ["b", "a"]
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


async def test_what_is_not_offered_says_so(seeding: Conn, door: Door) -> None:
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
    assert await code({"kind": "hybrid", "text": "x", "modes": ["lexical"]}) == "invalid_request"
    assert await code(plain, traverse={"from": ["obj:x"]}) == "invalid_request"
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
