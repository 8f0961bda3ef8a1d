"""A valid request of each operation with every member that its contract has, and values to put in their places."""

from __future__ import annotations

from typing import Any

from services.write.tests.writer import Document

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
