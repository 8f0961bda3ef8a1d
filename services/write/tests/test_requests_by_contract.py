"""The decoder and the contracts accept and refuse the same requests: thousands of changes of one member each."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson
import pytest

from pamspec_common import contracts
from pamspec_common.authorization.rights import Rights
from pamspec_common.delegation.grants import Chain, Grant, Party, Terms
from pamspec_common.documents import Actor
from pamspec_common.errors import InvalidObject, InvalidRequest, PamspecError
from pamspec_common.principal import RIGHT_ASSERT_ACTOR, RIGHT_SERVICE, Principal
from pamspec_common.scope_policy import parse_policy
from pamspec_write.documents import REQUESTS as COMMANDS
from pamspec_write.documents.decoding import decode
from pamspec_write.documents.scopes import CreateScope
from pamspec_write.documents.service import Batch, GetOperation
from pamspec_write.handlers.access import Access
from pamspec_write.handlers.admission.acting import actor_of
from pamspec_write.handlers.admission.batches import admit_batch
from pamspec_write.handlers.admission.commands import admit, parse
from pamspec_write.handlers.lookup import check_request
from pamspec_write.model.facts import ScopeRef
from pamspec_write.model.grants import GrantRef
from services.write.tests.writer import Document, rights_with

PRINCIPAL = Principal("tenant:t", "agent:a", "agent", frozenset({RIGHT_ASSERT_ACTOR, RIGHT_SERVICE}))
TIME = "2026-03-01T09:30:00.000000Z"
COMMON: Document = {
    "scope_id": "scope:1",
    "operation_id": "op:1",
    "idempotency_key": "key",
    "min_sequence": 1,
    "wait_ms": 5,
    "ledger_epoch": 1,
    "evaluation_run_id": "run:1",
    "delegation_id": "dlg:1",
    "actor": {
        "actor_id": "agent:a",
        "actor_kind": "agent",
        "display_name": "A",
        "on_behalf_of_actor_id": "human:b",
        "attestation": {"issued_at": TIME, "capabilities_declared": ["read"], "manifest_digest": "00"},
    },
}
PROVENANCE: Document = {
    "activity": "heard",
    "provenance_id": "prov:1",
    "source_ref": "mail",
    "evidence_refs": ["a"],
    "observed_at": TIME,
    "recorded_at": TIME,
    "transformation_parent": "ver:0",
    "source_confidence": 0.5,
    "integrity_ref": "x",
    "actor": {"actor_id": "agent:a", "actor_kind": "agent"},
}
DETAILS: Document = {
    "schema_id": "https://schemas.example.com/a",
    "observed_at": TIME,
    "asserted_at": TIME,
    "valid_from": TIME,
    "valid_until": TIME,
    "integrity": {
        "digest": "d",
        "algorithm": "a",
        "canonicalization_profile": "c",
        "signature": "s",
        "ledger_ref": "l",
    },
    "quality_signals": {
        "assessed_confidence": 0.5,
        "contradiction_score": 0,
        "staleness_score": 1,
        "evidence_strength": 0.1,
        "source_diversity": 0.2,
        "last_verified_at": TIME,
        "last_verified_by_actor_id": "agent:a",
        "verification_method_id": "m",
        "assessed_at": TIME,
        "assessed_by_actor_id": "agent:a",
    },
    "relationship_refs": ["rel:1"],
    "source_event": {"source": "mail", "id": "1"},
    "provenance": PROVENANCE,
}
CREATE = {
    **COMMON,
    **DETAILS,
    "object_type": "claim",
    "canonical_content": {"a": 1},
    "object_id": "obj:1",
    "lifecycle_state": "active",
    "availability_state": "available",
    "retention_state": "retained",
    "validation_state": "unverified",
    "expected_absent": True,
}
# Every part is tried in depth in a create; the others take it as a whole.
COMMON = {**COMMON, "actor": {"actor_id": "agent:a", "actor_kind": "agent"}}
PROVENANCE = {"activity": "heard"}
DETAILS = {**DETAILS, "integrity": {}, "quality_signals": {}, "relationship_refs": [], "provenance": PROVENANCE}
UPDATE = {**COMMON, **DETAILS, "object_id": "obj:1", "expected_version_id": "ver:1", "canonical_content": 1}
SUBJECT = {"object_id": "obj:1", "expected_version_id": "ver:1", "policy_basis": "p", "provenance": PROVENANCE}
TRANSITION = {**COMMON, **SUBJECT, "dimension": "lifecycle", "target_state": "archived"}
RESTORE = {**TRANSITION, "dimension": "availability", "target_state": "available", "canonical_content": 1}
OF_RELATIONSHIP = {name: value for name, value in TRANSITION.items() if name != "object_id"} | {
    "relationship_id": "rel:1"
}
REDACT = {**COMMON, **SUBJECT, "redaction_target": {"whole": True}, "version_ids": ["ver:0"]}
CUT = {**COMMON, **SUBJECT, "redaction_target": {"paths": ["/a", "/b~1c/0"]}}
DELETE = {**COMMON, **SUBJECT}
RELATED: Document = {
    name: value
    for name, value in DETAILS.items()
    if name not in ("schema_id", "quality_signals", "relationship_refs", "source_event")
} | {"canonical_content": {"weight": 1}, "directionality": "directed", "policy_basis": "p"}
RELATE = {
    **COMMON,
    **RELATED,
    "relationship_id": "rel:1",
    "source_object_id": "obj:1",
    "target_object_id": "obj:2",
    "target_scope_id": "scope:2",
    "relationship_type": "supports",
    "lifecycle_state": "active",
    "availability_state": "available",
    "retention_state": "retained",
    "validation_state": "unverified",
}
PROMOTE = {
    **COMMON,
    "source_object_id": "obj:1",
    "expected_version_id": "ver:1",
    "target_object_type": "claim",
    "target_canonical_content": {"a": 1},
    "provenance": PROVENANCE,
    "target_object_id": "obj:2",
    "target_schema_id": "https://schemas.example.com/a",
    "target_lifecycle_state": "active",
    "target_validation_state": "unverified",
}
RESTORE_VERSION = {name: value for name, value in UPDATE.items() if name != "canonical_content"} | {
    "restore_version_id": "ver:0"
}
RELATE_AGAIN = {**COMMON, **RELATED, "relationship_id": "rel:1", "expected_version_id": "ver:1"}
OPENED = {
    **COMMON,
    "event_type": "subscription_opened",
    "payload": {"subscription_id": "sub:1", "channel": "poll", "count": 1},
}
EMBEDDED = {
    **COMMON,
    "event_type": "embedding_generated",
    "object_id": "obj:1",
    "version_id": "ver:1",
    "payload": {"object_type": "claim", "embedding_space_id": "space:1", "index_id": "index:1"},
}
LOOK_BY_ID = {name: value for name, value in COMMON.items() if name != "idempotency_key"}
LOOK_BY_KEY = {name: value for name, value in COMMON.items() if name != "operation_id"} | {"operation": "create"}
SCOPE = {**COMMON, "scope_kind": "workspace", "parent_scope_id": "scope:0"}
SEAL = {
    **COMMON,
    "snapshot_id": "snap:1",
    "sealed": True,
    "included_object_ids": ["obj:1"],
    "deterministic_clock": {"clock_ref": "clock:1", "start_at": TIME, "tick_ms": 5},
    "deterministic_rng_seed": 7,
}
SMALL = {"operation": "delete", "object_id": "obj:1", "expected_version_id": "ver:1", "policy_basis": "p"}
CREATED = {"operation": "create", "object_type": "claim", "canonical_content": 1, "provenance": PROVENANCE}
BATCH = {**COMMON, "atomic": False, "items": [CREATED, SMALL]}
GRANT = {
    **COMMON,
    "granting_actor": {"actor_id": "agent:a", "actor_kind": "agent"},
    "delegated_actor": {"actor_id": "agent:b", "actor_kind": "agent", "display_name": "B"},
    "granted_operations": ["read", "update"],
    "granted_object_types": ["claim"],
    "granted_object_ids": ["obj:1"],
    "target_scope_id": "scope:2",
    "policy_basis": "p",
    "not_before": TIME,
    "not_after": TIME,
    "revocable": True,
    "usage_limit": 5,
    "redelegation_depth": 1,
    "validation_state": "unverified",
    "integrity": {},
    "provenance": PROVENANCE,
}
CHECK = {**COMMON, "operation": "read", "object_id": "obj:1", "object_type": "claim"}

POLICY: Document = {
    "overrides": [
        {"dimension": "lifecycle", "from": "archived", "to": "active", "roles": ["reviewer"]},
        {"dimension": "availability", "from": "redacted", "to": "available"},
    ],
    "object_types": {"allow": ["claim", "com.example.*"], "deny": ["com.example.private.note"]},
    "retention": {"default": {"ttl_seconds": 60}, "by_type": {"claim": {"ttl_seconds": 60}, "task": {}}},
    "evaluation_runs": ["run:1", "eval:*"],
    "cross_scope": {
        "relate_to": [{"scope_id": "scope:2", "relationship_types": ["supports", "com.*"]}],
        "accept_from": [{"scope_id": "scope:2"}],
        "traverse_from": [{"scope_id": "scope:2"}],
    },
}
REQUESTS = [
    ("create_scope", {**COMMON, "scope_kind": "agent", "parent_scope_id": "scope:2", "policy": POLICY}),
    ("register_schema", {**COMMON, "schema_id": "https://x.example/s", "schema": {"type": "object"}}),
    ("place_hold", {**COMMON, "object_type": "claim", "policy_basis": "matter:1"}),
    ("release_hold", {**COMMON, "hold_id": "hold:1", "policy_basis": "matter:1"}),
    ("update_scope", {**COMMON, "policy": POLICY, "expected_policy_version": 1, "policy_basis": "policy:p"}),
    ("create", CREATE),
    ("update", UPDATE),
    ("transition", TRANSITION),
    ("transition", RESTORE),
    ("transition", OF_RELATIONSHIP),
    ("redact", REDACT),
    ("redact", CUT),
    ("delete", DELETE),
    ("relate", RELATE),
    ("relate", RELATE_AGAIN),
    ("promote", PROMOTE),
    ("update", RESTORE_VERSION),
    ("record_event", OPENED),
    ("record_event", EMBEDDED),
    ("get_operation", LOOK_BY_ID),
    ("get_operation", LOOK_BY_KEY),
    ("create_scope", SCOPE),
    ("batch", BATCH),
    ("seal_snapshot", SEAL),
    ("grant_delegation", GRANT),
    ("revoke_delegation", {**COMMON, "policy_basis": "p", "expected_version_id": "ver:1", "provenance": PROVENANCE}),
    ("check_delegation", {**CHECK, "consume": False}),
    ("exercise_delegation", {**CHECK, "count": 2}),
]
NAMES = [f"{operation}-{number}" for number, (operation, _) in enumerate(REQUESTS)]

# One of each JSON type, ids and times that are almost right, and the borders of the limits.
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1,
    1.5,
    30_001,
    "",
    "word",
    "archived",
    "available",
    "deleted",
    "urn:x",
    "urn:x\n",
    "urn:é",
    "urn:a b",
    "a:" + "b" * 253,
    "a:" + "b" * 254,
    "k" * 255,
    "k" * 256,
    "a\tb",
    "a\x00b",
    "com.example.thing",
    "https://types.example.com/a b",
    "2026-01-01T00:00:00+05:30",
    "2026-01-01 00:00:00Z",
    "2026-01-01T00:00:00+0530",
    "2026-01-01T00:00:60Z",
    "2026-01-01",
    "0001-01-01T00:00:00+01:00",
    [],
    [1],
    ["rel:2"],
    ["rel:2", None],
    ["/a", "/~01/"],
    ["/a~"],
    [""],
    {},
    {"a": 1},
    {"activity": "x"},
    {"actor_id": "agent:a", "actor_kind": "agent"},
]


def _changes(document: Any) -> Iterator[tuple[str, Any]]:
    """The document with one member changed, removed or added, at any depth; content is the client's own affair.

    Members within members share the values among them.
    """
    for number, path in enumerate(_members(document)):
        values = VALUES if len(path) == 1 else VALUES[number % 2 :: 2]
        for value in [*values, ...]:
            changed = copy.deepcopy(document)
            holder = changed
            for step in path[:-1]:
                holder = holder[step]
            if value is ...:
                del holder[path[-1]]
            else:
                holder[path[-1]] = value
            yield f"{'.'.join(map(str, path))} = {value!r:.60}", changed
    for path in [(), *(path for path in _members(document) if isinstance(_at(document, path), dict))]:
        changed = copy.deepcopy(document)
        _at(changed, path)["unknown"] = 1
        yield f"{'.'.join(map(str, path))}.unknown", changed


def _members(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path and path[-1] in ("canonical_content", "target_canonical_content"):
        return
    steps = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for step, value in steps:
        yield (*path, step)
        yield from _members(value, (*path, step))


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


async def _resolve(principal: Principal, scope_id: str) -> ScopeRef:
    return ScopeRef(1, principal.tenant_id, scope_id, "t", "s", 0)


async def _rights(principal: Principal, actor: Actor, scope: ScopeRef | None) -> Rights:
    return rights_with(frozenset({"admin"}))


async def _grant(principal: Principal, delegation_id: str, actor_id: str) -> tuple[GrantRef, Chain]:
    scope = await _resolve(principal, "scope:1")
    party = Party(principal.actor_id, principal.actor_kind)
    terms = Terms(frozenset(["read"]), datetime.min, datetime.max)
    grant = Grant(delegation_id, 1, "scope:1", 1, "scope:1", party, principal.actor_id, party, terms)
    return GrantRef(principal.tenant_id, delegation_id, ((1, delegation_id),), scope, scope, (scope,)), (grant,)


async def _unknown_spaces(principal: Principal, named: list[str]) -> list[str]:
    return []


ACCESS = Access(_resolve, _rights, _rights, _grant, _unknown_spaces)


async def _error(operation: str, body: bytes) -> PamspecError | None:
    """The refusal that a request gets before any look at the store."""
    try:
        document = parse(body)
        if operation == "batch":
            batch = await admit_batch(document, body, PRINCIPAL, None, ACCESS)
            refused = [orjson.loads(item.body)["error"] for item in batch.refused.values()]
            return next((_of(error) for error in refused), None)
        if operation == "get_operation":
            request = decode(GetOperation, body)
            check_request(request)
            actor_of(PRINCIPAL, request, document)
        elif operation == "create_scope":
            scope = decode(CreateScope, body)
            actor_of(PRINCIPAL, scope, document)
            if scope.policy is not None:
                parse_policy(scope.policy)
        else:
            await admit(operation, document, body, PRINCIPAL, None, ACCESS)
    except PamspecError as error:
        return error
    return None


def _of(error: Document) -> PamspecError:
    kinds = {"invalid_request": InvalidRequest, "invalid_object": InvalidObject}
    return kinds.get(error["code"], PamspecError)(error["message"])


def _beyond(change: str, error: PamspecError) -> bool:
    """What the contract leaves open and the service does not take."""
    name = change.split(" = ")[0].rpartition(".")[2]
    return (
        name in ("object_type", "target_object_type")
        or "object_types.allow" in change
        or change.startswith("schema.")
        or (name.endswith("actor_id") and "255" in error.message)
        or "years 1 to 9999" in error.message
        or "at most 250 characters" in error.message
        or (name in ("object_id", "version_id", "event_type") and "must say" in error.message)
        or (name in ("version_id", "event_type") and "version_id is" in error.message)
    )


def test_each_valid_request_is_valid() -> None:
    for operation, document in REQUESTS:
        contracts.check(f"pamspec:operation:{operation}:request", document)


@pytest.mark.parametrize(("operation", "document"), REQUESTS, ids=NAMES)
async def test_service_and_contract_agree(operation: str, document: Document) -> None:
    assert await _error(operation, orjson.dumps(document)) is None
    validator = contracts.request_validator(operation)
    differences: list[str] = []
    for change, changed in _changes(document):
        if operation == "batch" and change.startswith("items.0."):
            continue
        error = await _error(operation, orjson.dumps(changed))
        allowed = validator.is_valid(changed)
        if allowed and isinstance(error, InvalidRequest | InvalidObject) and not _beyond(change, error):
            differences.append(f"{change}: refused: {error.message}")
        if not allowed and error is None:
            differences.append(f"{change}: accepted")
    assert not differences, "\n".join(differences)


def test_every_member_of_the_contract_is_tried() -> None:
    """A member that the contract gains must be gained here, and by the decoder."""
    for operation in (
        "create",
        "update",
        "transition",
        "redact",
        "delete",
        "relate",
        "promote",
        "record_event",
        "get_operation",
        "create_scope",
        "update_scope",
        "register_schema",
        "place_hold",
        "release_hold",
        "grant_delegation",
        "revoke_delegation",
        "check_delegation",
        "exercise_delegation",
        "batch",
    ):
        known = set().union(*(set(document) for name, document in REQUESTS if name == operation))
        decoder = {
            "get_operation": GetOperation,
            "create_scope": CreateScope,
            "batch": Batch,
            **COMMANDS,
        }[operation]
        contract = set(_properties(contracts.schema(f"pamspec:operation:{operation}:request")))
        assert set(decoder.__struct_fields__) == contract
        assert contract - known <= _UNTRIED.get(operation, set())


_UNTRIED = {
    "redact": {"relationship_id"},
    "delete": {"relationship_id"},
}


def _properties(schema: Any) -> Iterator[str]:
    """The members that a request may have by a schema and those that it refers to."""
    yield from schema.get("properties", {})
    parts = [*schema.get("allOf", ())]
    if "$ref" in schema:
        parts.append(schema)
    for part in parts:
        reference = part.get("$ref")
        if reference is None:
            continue
        identifier, _, pointer = reference.partition("#")
        target: Any = contracts.schema(identifier) if identifier else _root(schema)
        for step in filter(None, pointer.split("/")):
            target = target[step]
        yield from _properties(target)


def _root(schema: Any) -> Any:
    return contracts.schema(schema["$id"])


@pytest.mark.parametrize("operation", ["create", "batch"])
@pytest.mark.parametrize("secret", ["SECRET-123"])
async def test_messages_repeat_no_value(operation: str, secret: str) -> None:
    """No value that was sent stands in an error: it may be content in the wrong place."""
    base = CREATE if operation == "create" else BATCH
    for path in _members(base):
        changed = copy.deepcopy(base)
        _at(changed, path[:-1])[path[-1]] = secret
        error = await _error(operation, orjson.dumps(changed))
        if error is not None:
            assert secret not in error.message
            assert secret.encode() not in error.body("op:1")
