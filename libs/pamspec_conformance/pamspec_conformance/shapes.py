"""The closed forms of PAMSPEC: which members an envelope, an event and an error have, and what a value may be.

Each function answers the faults of a document, as sentences; none means that it fits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "lifecycle_state": ("scratch", "candidate", "active", "superseded", "deprecated", "archived"),
    "availability_state": ("available", "partially_redacted", "redacted", "deleted"),
    "retention_state": ("retained", "expired", "pending_deletion", "legal_hold"),
    "validation_state": ("unverified", "corroborated", "disputed", "rejected"),
}
VERSION_EVENTS: Final = frozenset(
    [
        "object_created",
        "object_updated",
        "lifecycle_transitioned",
        "availability_transitioned",
        "retention_transitioned",
        "validation_transitioned",
        "relationship_created",
        "relationship_updated",
        "provenance_updated",
        "object_redacted",
        "object_deleted",
    ]
)
"""Events that name the version that they brought (P144)."""
EVENT_TYPES: Final = VERSION_EVENTS | frozenset(
    [
        "embedding_generated",
        "index_rebuilt",
        "access_denied",
        "working_memory_promoted",
        "subscription_opened",
        "subscription_closed",
        "delegation_granted",
        "delegation_revoked",
        "delegation_exercised",
        "tool_invoked",
        "tool_completed",
    ]
)
RETRYABLE: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(
        [
            "invalid_request",
            "invalid_object",
            "unsupported_object_type",
            "object_not_found",
            "scope_not_found",
            "access_denied",
            "policy_denied",
            "duplicate_operation",
            "invalid_state_transition",
            "embedding_space_mismatch",
            "snapshot_not_found",
            "retention_restriction",
            "legal_hold",
            "object_redacted",
            "object_deleted",
        ],
        False,
    ),
    "version_conflict": True,
    "service_unavailable": True,
    "relationship_conflict": None,
    "internal_error": None,
}
"""The 19 codes; None where the case decides (P171)."""

_ID = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[A-Za-z0-9+._:\-/]+")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_VERSION = frozenset(
    [
        "spec_version",
        "version_id",
        "scope_id",
        "canonical_content",
        "lifecycle_state",
        "availability_state",
        "retention_state",
        "validation_state",
        "committed_at",
        "recorded_at",
        "sequence",
        "actor",
        "provenance",
    ]
)
_TEMPORAL = frozenset(["observed_at", "asserted_at", "valid_from", "valid_until"])
_OBJECT = _VERSION | {"object_id", "object_type"}
_OBJECT_ALL = _OBJECT | _TEMPORAL | {"schema_id", "relationship_refs", "integrity", "quality_signals"}
_RELATIONSHIP = _VERSION | frozenset(
    ["relationship_id", "relationship_type", "source_object_id", "target_object_id", "directionality"]
)
_RELATIONSHIP_ALL = _RELATIONSHIP | _TEMPORAL | {"target_scope_id", "policy_basis", "integrity"}
_EVENT = frozenset(["event_id", "operation_id", "scope_id", "event_type", "recorded_at", "sequence", "actor"])
_EVENT_ALL = _EVENT | frozenset(["object_id", "relationship_id", "version_id", "payload"])
_PROVENANCE = frozenset(["provenance_id", "actor", "activity", "recorded_at"])
_PROVENANCE_ALL = _PROVENANCE | frozenset(
    ["source_ref", "evidence_refs", "observed_at", "transformation_parent", "source_confidence", "integrity_ref"]
)
_ACTOR = frozenset({"actor_id", "actor_kind"})
_ACTOR_ALL = _ACTOR | frozenset(["display_name", "on_behalf_of_actor_id", "delegation_id", "attestation"])
_ERROR = frozenset(["code", "message", "retryable", "operation_id", "details"])
_ERROR_ALL = _ERROR | {"policy_rule_id", "correlation_id"}


def envelope_faults(document: Any) -> list[str]:
    """An object's or a relationship's envelope (P34-P55, P71)."""
    relationship = isinstance(document, Mapping) and "relationship_id" in document
    due, allowed = (_RELATIONSHIP, _RELATIONSHIP_ALL) if relationship else (_OBJECT, _OBJECT_ALL)
    faults = _members(document, due, allowed, "the envelope")
    if faults:
        return faults
    own = "relationship_id" if relationship else "object_id"
    faults = [f"{name} is no identifier" for name in (own, "version_id", "scope_id") if not is_id(document[name])]
    faults += [f"{name} is no state of its dimension" for name, all_ in STATES.items() if document[name] not in all_]
    faults += [f"{name} is no RFC 3339 time" for name in ("committed_at", "recorded_at") if not is_time(document[name])]
    if document["spec_version"] != "0.1.0-draft":
        faults.append("spec_version is not 0.1.0-draft")
    if not _counts(document["sequence"]):
        faults.append("sequence is no integer from 1")
    faults += _members(document["actor"], _ACTOR, _ACTOR_ALL, "actor")
    faults += _members(document["provenance"], _PROVENANCE, _PROVENANCE_ALL, "provenance")
    return faults


def event_faults(document: Any) -> list[str]:
    """A ledger event (P143, P144)."""
    faults = _members(document, _EVENT, _EVENT_ALL, "the event")
    if faults:
        return faults
    if document["event_type"] not in EVENT_TYPES:
        faults.append("event_type is none of the 22")
    if not _counts(document["sequence"]):
        faults.append("sequence is no integer from 1")
    if not is_id(document["event_id"]):
        faults.append("event_id is no identifier")
    if not is_time(document["recorded_at"]):
        faults.append("recorded_at is no RFC 3339 time")
    if document["event_type"] in VERSION_EVENTS and not is_id(document.get("version_id")):
        faults.append(f"{document['event_type']} names no version")
    return faults + _members(document["actor"], _ACTOR, _ACTOR_ALL, "the event's actor")


def error_faults(document: Any) -> list[str]:
    """The closed error envelope (P170, P171)."""
    if not isinstance(document, Mapping) or set(document) != {"error"}:
        return ["the body is not exactly one member error"]
    error = document["error"]
    faults = _members(error, _ERROR, _ERROR_ALL, "error")
    if faults:
        return faults
    if error["code"] not in RETRYABLE:
        return ["code is none of the 19"]
    due = RETRYABLE[error["code"]]
    if not isinstance(error["retryable"], bool) or (due is not None and error["retryable"] is not due):
        return [f"retryable of {error['code']} is not {due}"]
    if not isinstance(error["details"], Mapping) or not isinstance(error["message"], str) or not error["message"]:
        return ["details is no object, or message no text"]
    return []


def is_id(value: Any) -> bool:
    """Whether it has the identifiers' pattern."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def is_time(value: Any) -> bool:
    """Whether it is an RFC 3339 time with its offset."""
    return isinstance(value, str) and _TIME.fullmatch(value) is not None


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _members(document: Any, due: frozenset[str], allowed: frozenset[str], what: str) -> list[str]:
    if not isinstance(document, Mapping):
        return [f"{what} is no JSON object"]
    missing, foreign = due - set(document), set(document) - allowed
    faults = [f"{what} lacks {', '.join(sorted(missing))}"] if missing else []
    return faults + ([f"{what} has {', '.join(sorted(foreign))}, which it must not"] if foreign else [])
