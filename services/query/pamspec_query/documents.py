"""The request documents of the read operations, decoded once from their bytes.

Invariant: a member that is unknown, null or of another type is invalid_request that names the member; nothing is
ignored (PAMSPEC P123, S26).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from pamspec_common.errors import InvalidRequest
from pamspec_common.ids import Id, is_id
from pamspec_common.instants import Instant

MAX_LIMIT = 1000
MAX_SEQUENCE = 2**63 - 2

Lifecycle = Literal["scratch", "candidate", "active", "superseded", "deprecated", "archived"]
Availability = Literal["available", "partially_redacted", "redacted", "deleted"]
Retention = Literal["retained", "expired", "pending_deletion", "legal_hold"]
Validation = Literal["unverified", "corroborated", "disputed", "rejected"]
Any_ = Literal["any"]
Position = Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQUENCE)]
Sequence = Annotated[int, msgspec.Meta(ge=1, le=MAX_SEQUENCE)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
Words = Annotated[list[Word], msgspec.Meta(max_length=1000)]
WaitMs = Annotated[int, msgspec.Meta(ge=0, le=30_000)]

EnvelopeField = Literal[
    "spec_version",
    "object_id",
    "relationship_id",
    "delegation_id",
    "version_id",
    "scope_id",
    "object_type",
    "schema_id",
    "canonical_content",
    "relationship_type",
    "source_object_id",
    "target_object_id",
    "target_scope_id",
    "directionality",
    "granting_actor",
    "delegated_actor",
    "granted_operations",
    "granted_object_types",
    "granted_object_ids",
    "policy_basis",
    "not_before",
    "not_after",
    "revocable",
    "usage_limit",
    "lifecycle_state",
    "availability_state",
    "retention_state",
    "validation_state",
    "observed_at",
    "asserted_at",
    "valid_from",
    "valid_until",
    "committed_at",
    "recorded_at",
    "sequence",
    "actor",
    "provenance",
    "relationship_refs",
    "integrity",
    "quality_signals",
]
Fields = Annotated[list[EnvelopeField], msgspec.Meta(min_length=1)]

EventClass = Literal[
    "object_created",
    "object_updated",
    "provenance_updated",
    "lifecycle_transitioned",
    "availability_transitioned",
    "retention_transitioned",
    "validation_transitioned",
    "relationship_created",
    "relationship_updated",
    "object_redacted",
    "object_deleted",
    "working_memory_promoted",
    "tool_invoked",
    "tool_completed",
    "embedding_generated",
    "index_rebuilt",
    "access_denied",
    "subscription_opened",
    "subscription_closed",
    "delegation_granted",
    "delegation_revoked",
    "delegation_exercised",
]


class Attestation(msgspec.Struct, forbid_unknown_fields=True):
    """What an actor's own maker says about it."""

    agent_manifest_ref: str | None = None
    manifest_digest: str | None = None
    manifest_digest_algorithm: str | None = None
    attestation_authority: str | None = None
    attestation_method: str | None = None
    signature: str | None = None
    signature_algorithm: str | None = None
    issued_at: Instant | None = None
    not_before: Instant | None = None
    not_after: Instant | None = None
    capabilities_declared: list[str] | None = None
    did_ref: str | None = None

    def __post_init__(self) -> None:
        names = self.capabilities_declared or []
        if len(set(names)) != len(names):
            raise ValueError("One capability is named twice")


class Actor(msgspec.Struct, forbid_unknown_fields=True):
    """The actor that a body names."""

    actor_id: Id
    actor_kind: str
    display_name: str | None = None
    on_behalf_of_actor_id: Id | None = None
    delegation_id: Id | None = None
    attestation: Attestation | None = None


class Pagination(msgspec.Struct, forbid_unknown_fields=True):
    """A page: its size and where it starts."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT)]
    cursor: Annotated[str, msgspec.Meta(min_length=1, max_length=16_384)] | None = None


class AsOf(msgspec.Struct, forbid_unknown_fields=True):
    """A past position: what was known then, and what held then."""

    recorded_at: Instant | None = None
    valid_at: Instant | None = None
    ledger_sequence: Position | None = None


class Common(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields that every operation may carry."""

    operation_id: Id | None = None
    idempotency_key: Key | None = None
    actor: Actor | None = None
    min_sequence: Position | None = None
    wait_ms: WaitMs = 0
    ledger_epoch: Annotated[int, msgspec.Meta(ge=1)] | None = None
    delegation_id: Id | None = None
    evaluation_run_id: Id | None = None


class Scoped(Common, kw_only=True):
    """An operation within one scope (PAMSPEC P10)."""

    scope_id: Id


class Read(Scoped, kw_only=True):
    """read (P109)."""

    object_id: Id | None = None
    relationship_id: Id | None = None
    version_id: Id | None = None
    snapshot_id: Id | None = None
    fields: Fields | None = None
    as_of: AsOf | None = None


class Filters(msgspec.Struct, forbid_unknown_fields=True):
    """The draft's filters; "any" lifts a default."""

    object_type: Words | Any_ | None = None
    provenance_id: Words | Any_ | None = None
    relationship_type: Words | Any_ | None = None
    lifecycle_state: list[Lifecycle] | Any_ | None = None
    availability_state: list[Availability] | Any_ | None = None
    retention_state: list[Retention] | Any_ | None = None
    validation_state: list[Validation] | Any_ | None = None


class Range(msgspec.Struct, forbid_unknown_fields=True):
    """A half-open range of the temporal basis."""

    from_: Any = msgspec.field(name="from", default=None)
    to: Any = None


TemporalBasis = Literal["observed_at", "asserted_at", "valid_time", "committed_at", "recorded_at", "sequence"]


class Expression(msgspec.Struct, forbid_unknown_fields=True):
    """What a query asks."""

    kind: Literal["structured", "temporal", "semantic", "hybrid"]
    text: str | None = None
    vector: list[Any] | None = None
    modes: list[Literal["lexical", "vector", "graph"]] | None = None
    filters: Filters | None = None
    where: Any = msgspec.UNSET
    trust: Literal["trusted", "working", "all"] | None = None
    temporal_basis: TemporalBasis | None = None
    as_of: AsOf | None = None
    range: Range | None = None


class OrderBy(msgspec.Struct, forbid_unknown_fields=True):
    """One key of an ordering."""

    field: str
    direction: Literal["asc", "desc"] = "asc"


class Ordering(msgspec.Struct, forbid_unknown_fields=True):
    """An ordering profile."""

    by: Annotated[list[OrderBy], msgspec.Meta(min_length=1, max_length=8)] | None = None
    tie_break: Annotated[list[str], msgspec.Meta(min_length=1, max_length=8)] | None = None


class Query(Scoped, kw_only=True):
    """query (P120-P123)."""

    query: Expression
    pagination: Pagination | None = None
    ordering: Ordering | None = None
    snapshot_id: Id | None = None
    embedding_space_id: Id | None = None
    explain_ranking: bool = False
    traverse: dict[str, Any] | None = None
    fields: Fields | None = None
    exact: bool = False


class VersionRange(msgspec.Struct, forbid_unknown_fields=True):
    """A range of an object's own version sequences, both ends included."""

    from_sequence: Sequence | None = None
    to_sequence: Sequence | None = None


class InspectHistory(Scoped, kw_only=True):
    """inspect_history (P124)."""

    object_id: Id | None = None
    relationship_id: Id | None = None
    after_sequence: Position | None = None
    to_sequence: Position | None = None
    event_classes: Annotated[list[EventClass], msgspec.Meta(min_length=1)] | None = None
    version_range: VersionRange | None = None
    snapshot_id: Id | None = None
    pagination: Pagination | None = None


class GetScope(Scoped, kw_only=True):
    """get_scope."""


class ListScopes(Common, kw_only=True):
    """list_scopes."""

    scope_id: Id | None = None
    pagination: Pagination | None = None


class VerifyLedger(Scoped, kw_only=True):
    """verify_ledger."""


T = TypeVar("T", bound=Common)
_PLACE = re.compile(r" - at `\$\.?([^`]*)`")
_OPEN = {"where", "traverse"}


def decode(kind: type[T], document: Any) -> T:
    """A document of `kind` from a parsed body; InvalidRequest names the member that does not fit."""
    if not isinstance(document, dict):
        raise InvalidRequest("The body is not a JSON object; send one operation document.")
    _refuse_nulls(document, "")
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as problem:
        raise _refused(str(problem)) from None


def _refused(problem: str) -> InvalidRequest:
    place = _PLACE.search(problem)
    path = place[1] if place else ""
    expected = _PLACE.sub("", problem).replace("LosslessFloat", "float")
    if expected.startswith("Invalid enum value"):
        expected = "Not one of the words that stand here"
    return InvalidRequest(f"{expected} (field {path or 'of the document'}).", details={"field": path})


def _refuse_nulls(document: dict[str, Any], path: str) -> None:
    for name, value in document.items():
        if value is None:
            raise InvalidRequest(f"{path}{name} is null; leave it out instead.", details={"field": f"{path}{name}"})
        if isinstance(value, dict) and name not in _OPEN:
            _refuse_nulls(value, f"{path}{name}.")


def holds_nul(value: Any) -> bool:
    """Whether a NUL character stands anywhere in a parsed value; the store's indexes hold none."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any("\0" in name or holds_nul(below) for name, below in value.items())
    if isinstance(value, list):
        return any(map(holds_nul, value))
    return False


def own_operation_id(document: Any) -> str | None:
    """The operation_id of a body that may be wrong elsewhere."""
    found = document.get("operation_id") if isinstance(document, dict) else None
    return found if is_id(found) else None
