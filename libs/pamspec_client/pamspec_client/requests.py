"""What each operation takes: the keyword arguments of the client's methods, named as in the service's contract.

A keyword that is None is left out, except `canonical_content` and `target_canonical_content`, where None is the
JSON value null.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Required, TypeAlias, TypedDict

from pamspec_client.documents import (
    Actor,
    AsOf,
    Channel,
    Delivery,
    Dimension,
    Directionality,
    EventFilter,
    Expression,
    Integrity,
    LifecycleState,
    Ordering,
    Provenance,
    QualitySignals,
    RedactionTarget,
    SourceEvent,
    ValidationState,
    VersionRange,
    Webhook,
)

Time: TypeAlias = datetime | str
"""An aware datetime, or RFC 3339 text with an offset."""
Content: TypeAlias = Any
"""Any JSON value, or `RawJson` for JSON text."""


class Common(TypedDict, total=False):
    """What every operation takes."""

    operation_id: str
    """Name of this execution; minted once per call, and the same in every retry of it."""
    actor: Actor
    delegation_id: str
    evaluation_run_id: str
    ledger_epoch: int
    wait_ms: int
    """How long the service may wait for a floor, an event or a busy scope, 0 to 30,000 ms."""


class Writing(Common, total=False):
    """What every write takes besides."""

    idempotency_key: str
    """The same key with the same content answers the first outcome again; minted once per call."""


class Reading(Common, total=False):
    """What every read takes besides."""

    min_sequence: int
    """Version floor: no answer from a state older than this ledger sequence (contract K2)."""


class CreateFields(Writing, total=False):
    """A create without its scope."""

    object_type: Required[str]
    canonical_content: Required[Content]
    provenance: Required[Provenance]
    object_id: str
    schema_id: str
    lifecycle_state: LifecycleState
    availability_state: Literal["available"]
    retention_state: Literal["retained"]
    validation_state: ValidationState
    observed_at: Time
    asserted_at: Time
    valid_from: Time
    valid_until: Time
    relationship_refs: list[str]
    integrity: Integrity
    quality_signals: QualitySignals
    source_event: SourceEvent
    expected_absent: bool


class UpdateFields(Writing, total=False):
    """An update without its scope; what is not named stays as it is."""

    object_id: Required[str]
    expected_version_id: Required[str]
    provenance: Required[Provenance]
    canonical_content: Content
    restore_version_id: str
    schema_id: str
    observed_at: Time
    asserted_at: Time
    valid_from: Time
    valid_until: Time
    relationship_refs: list[str]
    integrity: Integrity
    quality_signals: QualitySignals
    source_event: SourceEvent


class TransitionFields(Writing, total=False):
    """A transition without its scope; of one object or one relationship."""

    object_id: str
    relationship_id: str
    expected_version_id: Required[str]
    dimension: Required[Dimension]
    target_state: Required[str]
    policy_basis: Required[str]
    provenance: Provenance
    canonical_content: Content


class RedactFields(Writing, total=False):
    """A redaction without its scope; of one object or one relationship."""

    object_id: str
    relationship_id: str
    expected_version_id: Required[str]
    policy_basis: Required[str]
    redaction_target: Required[RedactionTarget]
    version_ids: list[str]
    """Erase exactly these versions; without it every version up to the expected one."""
    provenance: Provenance


class DeleteFields(Writing, total=False):
    """A delete without its scope; of one object or one relationship."""

    object_id: str
    relationship_id: str
    expected_version_id: Required[str]
    policy_basis: Required[str]
    provenance: Provenance


class RelateFields(Writing, total=False):
    """A relationship without its scope: a new one, or with relationship_id and expected_version_id its next version."""

    provenance: Required[Provenance]
    relationship_id: str
    expected_version_id: str
    source_object_id: str
    target_object_id: str
    target_scope_id: str
    relationship_type: str
    directionality: Directionality
    canonical_content: Content
    lifecycle_state: LifecycleState
    availability_state: Literal["available"]
    retention_state: Literal["retained"]
    validation_state: ValidationState
    observed_at: Time
    asserted_at: Time
    valid_from: Time
    valid_until: Time
    integrity: Integrity
    policy_basis: str


class PromoteFields(Writing, total=False):
    """A promotion without its scope."""

    source_object_id: Required[str]
    expected_version_id: Required[str]
    target_object_type: Required[str]
    target_canonical_content: Required[Content]
    provenance: Required[Provenance]
    target_object_id: str
    target_schema_id: str
    target_lifecycle_state: LifecycleState
    target_validation_state: ValidationState


class CreateRequest(CreateFields, total=False):
    """Write the first version of an object."""

    scope_id: Required[str]


class UpdateRequest(UpdateFields, total=False):
    """Write the next version of an object."""

    scope_id: Required[str]


class TransitionRequest(TransitionFields, total=False):
    """Move one state dimension."""

    scope_id: Required[str]


class RedactRequest(RedactFields, total=False):
    """Erase content, whole or in part, and past versions."""

    scope_id: Required[str]


class DeleteRequest(DeleteFields, total=False):
    """Write the final tombstone and erase the content."""

    scope_id: Required[str]


class RelateRequest(RelateFields, total=False):
    """Join two objects, or change how they are joined."""

    scope_id: Required[str]


class PromoteRequest(PromoteFields, total=False):
    """Make an object of working memory, which it supersedes."""

    scope_id: Required[str]


class CreateItem(CreateFields, total=False):
    """A create in a batch."""

    operation: Required[Literal["create"]]
    scope_id: str


class UpdateItem(UpdateFields, total=False):
    """An update in a batch."""

    operation: Required[Literal["update"]]
    scope_id: str


class TransitionItem(TransitionFields, total=False):
    """A transition in a batch."""

    operation: Required[Literal["transition"]]
    scope_id: str


class RedactItem(RedactFields, total=False):
    """A redaction in a batch."""

    operation: Required[Literal["redact"]]
    scope_id: str


class DeleteItem(DeleteFields, total=False):
    """A delete in a batch."""

    operation: Required[Literal["delete"]]
    scope_id: str


class RelateItem(RelateFields, total=False):
    """A relate in a batch."""

    operation: Required[Literal["relate"]]
    scope_id: str


class PromoteItem(PromoteFields, total=False):
    """A promote in a batch."""

    operation: Required[Literal["promote"]]
    scope_id: str


BatchItem: TypeAlias = CreateItem | UpdateItem | TransitionItem | RedactItem | DeleteItem | RelateItem | PromoteItem


class BatchRequest(Writing, total=False):
    """Several writes in their order; atomic: all or nothing."""

    scope_id: Required[str]
    items: Required[list[BatchItem]]
    atomic: bool


class ReadRequest(Reading, total=False):
    """One version: the current one, a named one, or that of a past position."""

    scope_id: Required[str]
    object_id: str
    relationship_id: str
    version_id: str
    snapshot_id: str
    as_of: AsOf


class QueryFields(Reading, total=False):
    """A query without its page."""

    scope_id: Required[str]
    query: Required[Expression]
    ordering: Ordering
    snapshot_id: str
    embedding_space_id: str
    explain_ranking: bool
    fields: list[str]
    exact: bool


class QueryRequest(QueryFields, total=False):
    """One page of a query: `limit` items (1 to 1,000) from `cursor` on."""

    limit: int
    cursor: str | None


class QueryPages(QueryFields, total=False):
    """All pages of a query, `page_size` items each."""

    page_size: int


class HistoryFields(Reading, total=False):
    """History of an object or a relationship, or a range of the scope's ledger, without its page."""

    scope_id: Required[str]
    object_id: str
    relationship_id: str
    after_sequence: int
    to_sequence: int
    event_classes: list[str]
    version_range: VersionRange
    snapshot_id: str


class HistoryRequest(HistoryFields, total=False):
    """One page of history: `limit` entries (1 to 1,000) from `cursor` on."""

    limit: int
    cursor: str | None


class HistoryPages(HistoryFields, total=False):
    """All pages of history, `page_size` entries each."""

    page_size: int


class GetOperationRequest(Common, total=False):
    """By operation_id, or by operation and idempotency_key."""

    scope_id: Required[str]
    operation: str
    idempotency_key: str


class CreateScopeRequest(Writing, total=False):
    """Make a scope; the same document again answers the same."""

    scope_id: Required[str]
    scope_kind: str
    parent_scope_id: str
    policy: dict[str, Any]


class GetScopeRequest(Reading, total=False):
    """One scope."""

    scope_id: Required[str]


class UpdateScopeRequest(Writing, total=False):
    """Another policy for a scope, whole."""

    scope_id: Required[str]
    policy: Required[dict[str, Any]]
    expected_policy_version: Required[int]
    policy_basis: Required[str]


class ScopedPageRequest(Reading, total=False):
    """A page of what a scope has."""

    scope_id: Required[str]
    limit: int
    cursor: str | None


class PlaceHoldRequest(Writing, total=False):
    """A legal hold over a scope, or over the objects of a type."""

    scope_id: Required[str]
    policy_basis: Required[str]
    object_type: str


class ReleaseHoldRequest(Writing, total=False):
    """The end of a legal hold."""

    scope_id: Required[str]
    hold_id: Required[str]
    policy_basis: Required[str]


class ListHoldsRequest(ScopedPageRequest, total=False):
    """A page of a scope's legal holds."""

    include_released: bool


class RegisterSchemaRequest(Writing, total=False):
    """A JSON Schema that content with this schema_id has to keep, for good."""

    scope_id: Required[str]
    schema_id: Required[str]
    schema: Required[dict[str, Any] | bool]


class GetSchemaRequest(Reading, total=False):
    """A registered schema."""

    scope_id: Required[str]
    schema_id: Required[str]


class DeterministicClock(TypedDict, total=False):
    """The clock of an evaluation run."""

    clock_ref: Required[str]
    start_at: Required[Time]
    tick_ms: int


class SealSnapshotRequest(Writing, total=False):
    """A view of a scope as it is now; evaluation_run_id names the run that it is for."""

    scope_id: Required[str]
    snapshot_id: str
    included_object_ids: list[str]
    """Only these objects and relationships; all of the scope without it."""
    included_embedding_space_ids: list[str]
    deterministic_clock: DeterministicClock
    deterministic_rng_seed: int


class ListSnapshotsRequest(Reading, total=False):
    """The snapshots of a scope, or one by its id."""

    scope_id: str
    snapshot_id: str
    limit: int
    cursor: str | None


class CompareSnapshotsRequest(Reading, total=False):
    """What the other snapshot shows differently from the base; both of one scope."""

    base_snapshot_id: Required[str]
    other_snapshot_id: Required[str]
    scope_id: str
    limit: int
    cursor: str | None


class LedgerRequest(Reading, total=False):
    """The ledger of one scope."""

    scope_id: Required[str]


class ProofRequest(Reading, total=False):
    """What is to be proved: that an entry is in the ledger, that an earlier checkpoint's is its beginning, or both."""

    scope_id: Required[str]
    sequence: int
    from_size: int
    """The size of the earlier checkpoint."""


class PageRequest(Reading, total=False):
    """A page of what has no other condition."""

    limit: int
    cursor: str | None


class SubscribeRequest(Writing, total=False):
    """Open a durable subscription; without after_sequence it delivers what is written from now on."""

    scope_id: Required[str]
    filter: EventFilter
    after_sequence: int
    delivery: Delivery
    channel: Channel
    include_content: bool
    webhook: Webhook


class UnsubscribeRequest(Writing, total=False):
    """End a subscription for good."""

    subscription_id: Required[str]
    scope_id: str


class PollRequest(Common, total=False):
    """Fetch events; passing after_sequence acknowledges everything up to it (at least once)."""

    subscription_id: Required[str]
    scope_id: str
    after_sequence: int
    max: int


class AckRequest(Common, total=False):
    """Acknowledge up to `sequence`, or these `sequences`."""

    subscription_id: Required[str]
    scope_id: str
    sequence: int
    sequences: list[int]


class ResetRequest(Common, total=False):
    """Put the cursor anywhere."""

    subscription_id: Required[str]
    scope_id: str
    after_sequence: Required[int]


class ListParkedRequest(Common, total=False):
    """Where a webhook stands still."""

    subscription_id: Required[str]
    scope_id: str


class ReplayRequest(Common, total=False):
    """Try a failing webhook at once; with `skip`, pass over the parked event of that `sequence`."""

    subscription_id: Required[str]
    scope_id: str
    sequence: int
    skip: bool


class ListDeliveriesRequest(PageRequest, total=False):
    """The attempts to deliver a webhook, the newest first."""

    subscription_id: Required[str]
    scope_id: str


class RotateWebhookSecretRequest(Common, total=False):
    """A new secret; the earlier ones sign beside it for `overlap_s` seconds, a day by default."""

    subscription_id: Required[str]
    scope_id: str
    overlap_s: int


class ListSubscriptionsRequest(PageRequest, total=False):
    """The subscriptions of one scope or of all, or one by its id."""

    scope_id: str
    subscription_id: str


class GrantDelegationRequest(Writing, total=False):
    """Let another actor carry out operations, for a time; with delegation_id pass on what is granted by it."""

    scope_id: Required[str]
    delegated_actor: Required[Actor]
    granted_operations: Required[list[str]]
    policy_basis: Required[str]
    not_before: Required[Time]
    not_after: Required[Time]
    granting_actor: Actor
    granted_object_types: list[str]
    granted_object_ids: list[str]
    target_scope_id: str
    revocable: bool
    usage_limit: int
    redelegation_depth: int
    validation_state: ValidationState
    integrity: Integrity
    provenance: Provenance


class RevokeDelegationRequest(Writing, total=False):
    """End a grant, and what was passed on under it."""

    delegation_id: Required[str]  # type: ignore[misc]
    policy_basis: Required[str]
    scope_id: str
    expected_version_id: str
    provenance: Provenance


class ExplainDelegationRequest(Common, total=False):
    """A use of a grant; `actor` is whose use it would be, the principal's own without it."""

    delegation_id: Required[str]  # type: ignore[misc]
    operation: Required[str]
    scope_id: str
    object_id: str
    object_type: str


class CheckDelegationRequest(ExplainDelegationRequest, total=False):
    """The same; unless `consume` is False the check is a use of the grant."""

    consume: bool
    idempotency_key: str


class ListDelegationsRequest(PageRequest, total=False):
    """The grants that the actor gave or has; for auditors and administrators all."""

    scope_id: str
    granting_actor_id: str
    delegated_actor_id: str
    in_force: bool


class ExportRequest(Common, total=False):
    """A scope as one file."""

    scope_id: Required[str]
    embeddings: Literal["none", "reference", "include"]
    min_sequence: int


class Remap(TypedDict):
    """Where a file goes instead of a scope of its own name."""

    scope_id: str


class ImportRequest(Writing, total=False):
    """A file into a new or empty scope."""

    scope_id: str
    remap: Remap
    on_conflict: Literal["refuse", "skip"]
