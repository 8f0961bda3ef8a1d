"""The service and the contracts accept and refuse the same requests: each member changed, removed and added to."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from pamspec_common import contracts
from services.query.tests.door import Conn, Door
from services.query.tests.indexed import LEXICAL, mark
from services.query.tests.seeds import Scope

Document = dict[str, Any]

TIME = "2026-03-01T09:30:00.000000Z"
COMMON: Document = {
    "scope_id": "workspace:a",
    "operation_id": "op:1",
    "idempotency_key": "key",
    "min_sequence": 1,
    "wait_ms": 0,
    "ledger_epoch": 1,
    "evaluation_run_id": "run:1",
    "actor": {
        "actor_id": "agent:reader",
        "actor_kind": "agent",
        "display_name": "A",
        "on_behalf_of_actor_id": "human:b",
        "attestation": {"issued_at": TIME, "capabilities_declared": ["read"], "manifest_digest": "00"},
    },
}
WHERE: Document = {
    "and": [
        {"or": [{"field": "object_type", "op": "eq", "value": "claim"}]},
        {"not": [{"field": "content:/a", "op": "in", "value": [1, "x"]}]},
        {"field": "observed_at", "op": "exists", "value": True},
        {"field": "actor.actor_id", "op": "starts_with", "value": "agent:"},
    ]
}
STATES: Document = {
    "lifecycle_state": ["active"],
    "availability_state": "any",
    "retention_state": ["retained"],
    "validation_state": ["corroborated", "unverified"],
}
REQUESTS: dict[str, tuple[str, Document]] = {
    "read": ("read", {"object_id": "obj:x", "fields": ["object_id", "sequence"], "as_of": {"ledger_sequence": 1}}),
    "read a version": ("read", {"object_id": "obj:x", "version_id": "ver:1"}),
    "read a relationship": ("read", {"relationship_id": "rel:x", "as_of": {"recorded_at": TIME, "valid_at": TIME}}),
    "query": (
        "query",
        {
            "query": {
                "kind": "structured",
                "filters": {**STATES, "object_type": ["claim"], "provenance_id": "any", "relationship_type": ["x"]},
                "where": WHERE,
                "trust": "all",
                "as_of": {"valid_at": TIME},
            },
            "pagination": {"limit": 10},
            "ordering": {"by": [{"field": "observed_at", "direction": "desc"}], "tie_break": ["object_id"]},
            "fields": ["object_id"],
            "explain_ranking": False,
            "exact": True,
        },
    ),
    "query a time": (
        "query",
        {
            "query": {
                "kind": "temporal",
                "temporal_basis": "observed_at",
                "range": {"from": TIME, "to": "2027-01-01T00:00:00Z"},
            }
        },
    ),
    "query by words": (
        "query",
        {
            "query": {"kind": "hybrid", "text": "x", "modes": ["lexical"], "trust": "all"},
            "ordering": {"profile": "relevance", "tie_break": ["object_id"]},
            "rerank": False,
            "explain_ranking": True,
        },
    ),
    "query a sequence": ("query", {"query": {"kind": "temporal", "temporal_basis": "sequence", "range": {"from": 1}}}),
    "inspect_history": (
        "inspect_history",
        {
            "object_id": "obj:x",
            "after_sequence": 0,
            "to_sequence": 5,
            "event_classes": ["object_created"],
            "version_range": {"from_sequence": 1, "to_sequence": 2},
            "pagination": {"limit": 10},
        },
    ),
    "history of a range": ("inspect_history", {"after_sequence": 0}),
    "list_snapshots": ("list_snapshots", {"snapshot_id": "snap:a", "pagination": {"limit": 10}}),
    "list_erasures": ("list_erasures", {"erasure_id": "erasure:a", "state": "open", "pagination": {"limit": 10}}),
    "snapshots of a scope": ("list_snapshots", {}),
    "assemble": (
        "assemble",
        {
            "query": {"kind": "structured", "trust": "working"},
            "ordering": {"by": [{"field": "sequence", "direction": "asc"}]},
            "snapshot_id": "snap:a",
            "traverse": {"from": ["obj:x"]},
            "rerank": False,
            "exact": False,
            "budget": {"max_tokens": 100, "max_items": 5},
            "instruction_types": ["procedure"],
        },
    ),
    "compare_snapshots": (
        "compare_snapshots",
        {"base_snapshot_id": "snap:a", "other_snapshot_id": "snap:b", "pagination": {"limit": 10}},
    ),
    "get_scope": ("get_scope", {}),
    "list_scopes": ("list_scopes", {"pagination": {"limit": 10}}),
    "verify_ledger": ("verify_ledger", {}),
    "get_checkpoint": ("get_checkpoint", {}),
    "prove_ledger": ("prove_ledger", {"sequence": 1, "from": 1}),
}
VALUES: list[Any] = [
    *(None, True, 0, -1, 7, 1001, 2**64, 1.5, "", "x", "obj:x", "obj:x\n", "a" * 300, "any", "2026-01-01", TIME, "\0"),
    *([], [1], ["x"], ["obj:x", "obj:x"], [None], {}, {"a": 1}, {"and": []}, {"actor_id": "agent:reader"}),
]


def changes(document: Any) -> Iterator[tuple[str, Any]]:
    """The document with one member changed, removed or added, at any depth."""
    for path in members(document):
        for value in [*VALUES, ...]:
            changed = copy.deepcopy(document)
            holder = at(changed, path[:-1])
            if value is ...:
                del holder[path[-1]]
            else:
                holder[path[-1]] = value
            yield f"{'.'.join(map(str, path))} = {value!r:.60}", changed
    for path in [(), *(path for path in members(document) if isinstance(at(document, path), dict))]:
        changed = copy.deepcopy(document)
        at(changed, path)["unknown"] = 1
        yield f"{'.'.join(map(str, path))}.unknown", changed


def members(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    steps = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for step, value in steps:
        yield (*path, step)
        yield from members(value, (*path, step))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


BEYOND = (
    "field names no field",
    "is compared with",
    "cannot be compared by",
    "cannot be ordered by",
    "cannot be looked for",
    "takes a text or a number",
    "compares with a text",
    "a time is RFC 3339",
    "from must lie before to",
    "is a ledger sequence for that basis",
    "lies beyond the scope's ledger",
    "The ledger ends at",
    "belongs to an earlier ledger epoch",
    "names its basis",
    "belong to the kind",
    "belongs to the kind",
    "is one of",
    "names two record positions",
    "names two things",
    "looks for words",
    "say what to look for",
    "leave one of them out",
    "<= 9223372036854775806",
)
"""What a schema cannot say: which values go with which field, and what the scope's ledger holds."""


@pytest.fixture
async def scope(seeding: Conn) -> Scope:
    """A scope that every request here names."""
    found = Scope("workspace:a")
    found.put("obj:x", 1, object_type="claim")
    await found.flush(seeding)
    await mark(seeding, found, LEXICAL, found.last_seq)
    return found


@pytest.mark.parametrize("name", REQUESTS)
async def test_service_and_contract_agree(scope: Scope, door: Door, name: str) -> None:
    door = door.as_("agent:reader", "assert_actor")
    operation, members_of = REQUESTS[name]
    document = {**COMMON, **members_of}
    validator = contracts.request_validator(operation)
    assert validator.is_valid(document)
    # No relay runs here, so nothing is signed and a proof has to wait.
    expected = 503 if operation == "prove_ledger" else 200
    assert (await door(operation, **document)).status in (expected, 404)
    differences: list[str] = []
    for change, changed in changes(document):
        answer = await door.raw(operation, json.dumps(changed).encode())
        allowed = validator.is_valid(changed)
        refused = answer.status == 400
        message = orjson.loads(answer.body)["error"]["message"] if refused else ""
        assert answer.status != 500, change
        if allowed and refused and not any(reason in message for reason in BEYOND):
            differences.append(f"{change}: refused: {message}")
        if not allowed and not refused:
            differences.append(f"{change}: answered {answer.status}")
    assert not differences, "\n".join(differences)
