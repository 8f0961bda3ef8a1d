"""The request documents of the read operations, decoded once from their bytes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from pamspec_common import documents
from pamspec_common.documents import (
    Actor,
    Availability,
    CommonFields,
    Lifecycle,
    Pagination,
    Position,
    Retention,
    Sequence,
    Validation,
)
from pamspec_common.events import EventType
from pamspec_common.ids import Id
from pamspec_common.instants import Instant
from pamspec_common.transfer import Embeddings

Any_ = Literal["any"]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
Words = Annotated[list[Word], msgspec.Meta(max_length=1000)]

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


class AsOf(msgspec.Struct, forbid_unknown_fields=True):
    """A past position: what was known then, and what held then."""

    recorded_at: Instant | None = None
    valid_at: Instant | None = None
    ledger_sequence: Position | None = None


class Common(CommonFields, kw_only=True):
    """The fields that every operation may carry."""

    actor: Actor | None = None


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


Mode = Literal["lexical", "vector", "graph"]
TemporalBasis = Literal["observed_at", "asserted_at", "valid_time", "committed_at", "recorded_at", "sequence"]


class Expression(msgspec.Struct, forbid_unknown_fields=True):
    """What a query asks."""

    kind: Literal["structured", "temporal", "semantic", "hybrid"]
    text: str | None = None
    vector: list[Any] | None = None
    modes: Annotated[list[Mode], msgspec.Meta(min_length=1)] | None = None
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
    profile: Literal["relevance", "recent", "quality", "balanced"] | None = None


class Traverse(msgspec.Struct, forbid_unknown_fields=True):
    """Where to start, and along which relationships to go how far (P151)."""

    from_: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=1000)] = msgspec.field(name="from")
    relationship_types: Annotated[list[Word], msgspec.Meta(min_length=1, max_length=1000)] | None = None
    direction: Literal["outgoing", "incoming", "both"] = "outgoing"
    depth: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1
    paths: bool = False


class Query(Scoped, kw_only=True):
    """query (P120-P123)."""

    query: Expression
    pagination: Pagination | None = None
    ordering: Ordering | None = None
    snapshot_id: Id | None = None
    embedding_space_id: Id | None = None
    explain_ranking: bool = False
    rerank: bool = False
    traverse: Traverse | None = None
    fields: Fields | None = None
    exact: bool = False
    count: Literal["bounded", "exact"] | None = None


class Budget(msgspec.Struct, forbid_unknown_fields=True):
    """How much a context may hold."""

    max_tokens: Annotated[int, msgspec.Meta(ge=50, le=200_000)] = 2000
    max_items: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50


class Assemble(Scoped, kw_only=True):
    """assemble: a query without its page, and what its context is to hold."""

    query: Expression
    ordering: Ordering | None = None
    snapshot_id: Id | None = None
    embedding_space_id: Id | None = None
    rerank: bool = False
    exact: bool = False
    traverse: Traverse | None = None
    budget: Budget | None = None
    min_semantic_score: Any = None
    """A number; as it was written until the model has checked it."""
    instruction_types: Annotated[list[Word], msgspec.Meta(max_length=100)] = msgspec.field(default_factory=list)


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
    event_classes: Annotated[list[EventType], msgspec.Meta(min_length=1)] | None = None
    version_range: VersionRange | None = None
    snapshot_id: Id | None = None
    pagination: Pagination | None = None


class ListSnapshots(Common, kw_only=True):
    """list_snapshots."""

    scope_id: Id | None = None
    snapshot_id: Id | None = None
    pagination: Pagination | None = None


class ListErasures(Common, kw_only=True):
    """list_erasures."""

    scope_id: Id | None = None
    erasure_id: Id | None = None
    state: Literal["open", "closed"] | None = None
    pagination: Pagination | None = None


class ForgetFilter(msgspec.Struct, forbid_unknown_fields=True):
    """What a query would find, whatever its states."""

    filters: Filters | None = None
    where: Any = msgspec.UNSET


class Subject(msgspec.Struct, forbid_unknown_fields=True):
    """Whom, or what, a forget is about: exactly one of these."""

    actor_id: Id | None = None
    source_ref: Annotated[str, msgspec.Meta(min_length=1, max_length=4096, pattern="^[^\\x00]*\\Z")] | None = None
    filter: ForgetFilter | None = None


class Forget(Scoped, kw_only=True):
    """forget."""

    policy_basis: Annotated[str, msgspec.Meta(min_length=1, pattern="^[^\\x00]*\\Z")]
    subject: Subject
    preview_token: Annotated[str, msgspec.Meta(max_length=128)] | None = None


class CompareSnapshots(Common, kw_only=True):
    """compare_snapshots (P231)."""

    base_snapshot_id: Id
    other_snapshot_id: Id
    scope_id: Id | None = None
    pagination: Pagination | None = None


class GetScope(Scoped, kw_only=True):
    """get_scope."""


class ListPolicyVersions(Scoped, kw_only=True):
    """list_policy_versions."""

    pagination: Pagination | None = None


class ListHolds(Scoped, kw_only=True):
    """list_holds."""

    include_released: bool = False
    pagination: Pagination | None = None


class ListReads(Scoped, kw_only=True):
    """list_reads."""

    object_ids: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=1000)]


class GetSchema(Scoped, kw_only=True):
    """get_schema."""

    schema_id: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class ListSchemas(Scoped, kw_only=True):
    """list_schemas."""

    pagination: Pagination | None = None


class ListScopes(Common, kw_only=True):
    """list_scopes."""

    scope_id: Id | None = None
    pagination: Pagination | None = None


class Export(Scoped, kw_only=True):
    """export (P15)."""

    embeddings: Embeddings = "none"


class VerifyLedger(Scoped, kw_only=True):
    """verify_ledger."""


class GetCheckpoint(Scoped, kw_only=True):
    """get_checkpoint."""


class ProveLedger(Scoped, kw_only=True):
    """prove_ledger."""

    sequence: Sequence | None = None
    from_: Sequence | None = msgspec.field(name="from", default=None)


T = TypeVar("T", bound=Common)


def decode(kind: type[T], document: Any) -> T:
    """A document of `kind` from a parsed body; InvalidRequest names the member that does not fit."""
    return documents.decode(kind, document, free=("where",))


def holds_nul(value: Any) -> bool:
    """Whether a NUL character stands anywhere in a parsed value; the store's indexes hold none."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any("\0" in name or holds_nul(below) for name, below in value.items())
    if isinstance(value, list):
        return any(map(holds_nul, value))
    return False
