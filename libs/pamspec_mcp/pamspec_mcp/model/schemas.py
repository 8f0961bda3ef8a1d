"""The contracts' schemas as hosts of models take them.

Invariant: a tool's schema describes, it decides nothing; what a call may contain is judged by the operation's owner. It
stands alone (no reference leaves it), its root is an object without alternatives, which several model providers demand,
and it has no `actor`: who calls is the session's principal.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pamspec_common import contracts
from pamspec_common.contracts.components import Components, resolve

_COMMON = "pamspec:schema:request"
_ANSWER_DEPTH = 2
_ORNAMENTS = frozenset(("title", "examples"))
_SELDOM = frozenset(
    (
        "operation_id",
        "delegation_id",
        "evaluation_run_id",
        "min_sequence",
        "wait_ms",
        "ledger_epoch",
        "integrity",
        "quality_signals",
        "relationship_refs",
        "source_event",
        "expected_absent",
        "restore_version_id",
        "explain_ranking",
        "rerank",
        "exact",
        "count",
        "snapshot_id",
        "asserted_at",
        "observed_at",
    )
)
TRUNCATED: dict[str, Any] = {
    "type": "object",
    "description": "Stands alone where the answer is too large for one result: a part of its JSON text.",
    "properties": {
        "part": {"type": "string"},
        "from": {"type": "integer", "description": "Where the part begins, in characters."},
        "of": {"type": "integer", "description": "How many characters there are."},
        "cursor": {"type": ["string", "null"], "description": "For pamspec.continue; null after the last part."},
        "next_cursor": {"type": "string", "description": "For the next page of the operation itself."},
    },
}


@cache
def input_schema(operation: str, *, brief: bool = False) -> dict[str, Any]:
    """What the tool of an operation takes. KeyError for an operation that nobody knows.

    A brief one leaves out what an agent that remembers seldom sends, and does not say that there is no more.
    """
    schemas = dict(contracts.schemas())
    schemas[_COMMON] = _without_actor(schemas[_COMMON])
    identifier = f"pamspec:operation:{operation}:request"
    components = Components(schemas, "#/$defs/")
    properties, required = _members(schemas, schemas[identifier], identifier)
    root: dict[str, Any] = {"type": "object", "properties": {}}
    for name, (part, home) in properties.items():
        if not brief or name in required or name not in _SELDOM:
            root["properties"][name] = _slim(components.rewrite(part, home))
    if required:
        root["required"] = sorted(required)
    if not brief:
        root["additionalProperties"] = False
    collected = {name: _slim(part) for name, part in components.collected().items()}
    if collected:
        root["$defs"] = collected
    return root


@cache
def output_schema(operation: str) -> dict[str, Any]:
    """What the tool of an operation answers: its members to a depth, none of them required, for an error or a part
    of a large answer may stand there instead."""
    schemas = contracts.schemas()
    identifier = f"pamspec:operation:{operation}:answer"
    properties, _ = _members(schemas, schemas[identifier], identifier)
    members = {name: _shallow(schemas, part, home, _ANSWER_DEPTH) for name, (part, home) in properties.items()}
    return {"type": "object", "properties": {**members, "error": {"type": "object"}, "truncated": TRUNCATED}}


def _slim(part: Any) -> Any:
    """The same without titles and examples, which cost a model more than they tell it."""
    if isinstance(part, list):
        return [_slim(one) for one in part]
    if not isinstance(part, dict):
        return part
    kept = {key: value for key, value in part.items() if not (key in _ORNAMENTS and isinstance(value, str | list))}
    return {key: _slim(value) for key, value in kept.items()}


def takes_actor(operation: str) -> bool:
    """Whether `actor` is a subject of the operation, not who calls."""
    part = contracts.schemas()[f"pamspec:operation:{operation}:request"]
    return "actor" in part.get("properties", {})


def _without_actor(schema: Mapping[str, Any]) -> dict[str, Any]:
    common = schema["$defs"]["common_fields"]
    properties = {name: part for name, part in common["properties"].items() if name != "actor"}
    return {**schema, "$defs": {**schema["$defs"], "common_fields": {**common, "properties": properties}}}


Members = dict[str, tuple[Any, str]]
"""The parts of a schema by member, each with the $id in which its references are meant."""


def _members(schemas: Mapping[str, Any], part: Mapping[str, Any], home: str) -> tuple[Members, set[str]]:
    """Every member that an object may have, and those that all alternatives demand."""
    members: Members = {}
    required = set(part.get("required", ()))
    reference = part.get("$ref")
    if isinstance(reference, str):
        whole = reference if reference[0] != "#" else home + reference
        below, needed = _members(schemas, resolve(schemas, whole), whole.partition("#")[0])
        members |= below
        required |= needed
    for one in part.get("allOf", ()):
        below, needed = _members(schemas, one, home)
        members |= below
        required |= needed
    for keyword in ("anyOf", "oneOf"):
        alternatives = [_members(schemas, one, home) for one in part.get(keyword, ())]
        for below, _ in alternatives:
            members = below | members
        if alternatives:
            required |= set.intersection(*(needed for _, needed in alternatives))
    members |= {name: (inner, home) for name, inner in part.get("properties", {}).items()}
    return members, required & members.keys()


def _shallow(schemas: Mapping[str, Any], part: Any, home: str, depth: int) -> dict[str, Any]:
    """The kind of a member of an answer, without what an earlier or later version could add to it."""
    described: dict[str, Any] = {}
    while isinstance(part, Mapping):
        described = {key: part[key] for key in ("description", "type", "enum", "const") if key in part} | described
        reference = part.get("$ref")
        if not isinstance(reference, str):
            break
        whole = reference if reference[0] != "#" else home + reference
        part, home = resolve(schemas, whole), whole.partition("#")[0]
    if not isinstance(part, Mapping) or depth <= 1:
        return described
    if described.get("type") == "object" and part.get("properties"):
        below, _ = _members(schemas, part, home)
        described["properties"] = {name: _shallow(schemas, one, at, depth - 1) for name, (one, at) in below.items()}
    if described.get("type") == "array" and "items" in part:
        described["items"] = _shallow(schemas, part["items"], home, depth - 1)
    return described
