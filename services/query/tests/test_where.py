"""The where tree: every operator on every type, every field, and everything that is refused."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

from pamspec_common.instants import wire
from services.query.tests.asking import SCOPE, eq, names
from services.query.tests.door import Conn, Door
from services.query.tests.seeds import START, Scope

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
        private={
            "quality_signals": {"assessed_confidence": 0.5, "verification_method_id": "m%1"},
            "integrity": {"digest": "abc", "algorithm": "sha-256"},
        },
    )
    scope.put("obj:b", 2, private={"quality_signals": {"verification_method_id": "a\0b"}})
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
    assert await names(door, {"where": eq("scope_id", SCOPE)}) == ["b", "a"]
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


NUMBERS_AS_WRITTEN = [
    *(
        "0e99999",
        "-0e9999",
        "0e999999999",
        "1e-9999",
        "1e-99999999999",
        "-0.0",
        "1e308",
        "5e-324",
        "1E+5",
        "0.1e1",
        "1e400",
    ),
    *("9" * 1000, "-" + "9" * 1000, "9" * 1001, "0." + "1" * 400, "1e-0400"),
]
ODD_TEXTS = [
    "",
    " ",
    "\\",
    "'",
    '"',
    "$1",
    "%s",
    "{}",
    "\u2028",
    "\ufffe",
    "\U0001f600",
    "e\u0301",
    "\x7f",
    "a" * 100_000,
]


async def test_odd_values_are_answered_or_refused(seeding: Conn, door: Door) -> None:
    """M064, M068: whatever the number's token or the text, never an internal error."""
    scope = Scope(SCOPE)
    for index, text in enumerate(ODD_TEXTS):
        scope.put(f"obj:{index}", {"v": text, text: 1})
    await scope.flush(seeding)
    for token in NUMBERS_AS_WRITTEN:
        for op, value in (("eq", token), ("gt", token), ("in", f"[{token}]"), ("contains", token), ("exists", token)):
            where = f'{{"field":"content:/v","op":"{op}","value":{value}}}'
            body = f'{{"scope_id":"{SCOPE}","query":{{"kind":"structured","where":{where}}}}}'
            assert (await door.raw("query", body.encode())).status in (200, 400), where
    for index, text in enumerate(ODD_TEXTS):
        assert await names(door, {"where": eq("content:/v", text)}) == [str(index)]
        pointer = text.replace("~", "~0").replace("/", "~1")
        assert str(index) in await names(door, {"where": {"field": f"content:/{pointer}", "op": "eq", "value": 1}})
        for field, op in (("object_id", "contains"), ("actor.display_name", "eq"), ("content:/v", "starts_with")):
            await names(door, {"where": {"field": field, "op": op, "value": text}})
