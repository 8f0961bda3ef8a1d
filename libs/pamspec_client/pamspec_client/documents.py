"""The shapes of what a caller sends, and of the small documents inside answers.

They are plain dictionaries: what the service adds to one in a later version stays in it.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, Required, TypedDict

LifecycleState = Literal["scratch", "candidate", "active", "superseded", "deprecated", "archived"]
AvailabilityState = Literal["available", "partially_redacted", "redacted", "deleted"]
RetentionState = Literal["retained", "expired", "pending_deletion", "legal_hold"]
ValidationState = Literal["unverified", "corroborated", "disputed", "rejected"]
Dimension = Literal["lifecycle", "availability", "retention", "validation"]
Directionality = Literal["directed", "bidirectional", "undirected"]
Channel = Literal["poll", "sse", "websocket", "nats", "webhook"]
FollowChannel = Literal["poll", "sse", "websocket", "nats"]


class Actor(TypedDict, total=False):
    """Who acts."""

    actor_id: Required[str]
    actor_kind: Required[str]
    display_name: str
    on_behalf_of_actor_id: str
    delegation_id: str
    attestation: dict[str, Any]


class Provenance(TypedDict, total=False):
    """Where a version comes from; `activity` is required, actor and recorded_at are the service's (PAMSPEC P82)."""

    activity: Required[str]
    provenance_id: str
    source_ref: str
    source_confidence: float
    evidence_refs: list[str]
    observed_at: str
    transformation_parent: str
    integrity_ref: str
    actor: Actor
    recorded_at: str


class QualitySignals(TypedDict, total=False):
    """Assessments that never decide by themselves; numbers from 0 to 1 (PAMSPEC P55)."""

    assessed_confidence: float
    contradiction_score: float
    staleness_score: float
    evidence_strength: float
    source_diversity: float
    last_verified_at: str
    last_verified_by_actor_id: str
    verification_method_id: str
    assessed_at: str
    assessed_by_actor_id: str


class Integrity(TypedDict, total=False):
    """A client's own digest or signature of what it sent."""

    digest: str
    algorithm: str
    canonicalization_profile: str
    signature: str
    ledger_ref: str


class SourceEvent(TypedDict):
    """The event outside that caused a write; the pair identifies a replay."""

    source: str
    id: str


class RedactionTarget(TypedDict, total=False):
    """Either `whole` True, or `paths`: JSON Pointers to the parts of the content that go."""

    whole: Literal[True]
    paths: list[str]


class AsOf(TypedDict, total=False):
    """A past position: what was known at recorded_at or ledger_sequence, or what held at valid_at."""

    recorded_at: str
    valid_at: str
    ledger_sequence: int


class Filters(TypedDict, total=False):
    """Values that pass, or "any", which lifts the default of a state."""

    object_type: list[str] | Literal["any"]
    provenance_id: list[str] | Literal["any"]
    relationship_type: list[str] | Literal["any"]
    lifecycle_state: list[LifecycleState] | Literal["any"]
    availability_state: list[AvailabilityState] | Literal["any"]
    retention_state: list[RetentionState] | Literal["any"]
    validation_state: list[ValidationState] | Literal["any"]


class Expression(TypedDict, total=False):
    """What a query asks for."""

    kind: Required[Literal["structured", "temporal", "semantic", "hybrid"]]
    text: str
    vector: list[float]
    modes: list[Literal["lexical", "vector", "graph"]]
    filters: Filters
    where: dict[str, Any]
    trust: Literal["trusted", "working", "all"]
    temporal_basis: Literal["observed_at", "asserted_at", "valid_time", "committed_at", "recorded_at", "sequence"]
    as_of: AsOf
    range: dict[str, Any]


Traverse = TypedDict(
    "Traverse",
    {
        "from": Required[list[str]],
        "relationship_types": list[str],
        "direction": Literal["outgoing", "incoming", "both"],
        "depth": int,
        "paths": bool,
    },
    total=False,
)
"""Only what can be reached from these objects; `paths` tells by which way."""


class Budget(TypedDict, total=False):
    """How much a context may hold: 50 to 200,000 tokens (2,000), of 1 to 200 memories (50)."""

    max_tokens: int
    max_items: int


class OrderBy(TypedDict):
    """One field of an ordering."""

    field: str
    direction: NotRequired[Literal["asc", "desc"]]


class Ordering(TypedDict, total=False):
    """The order of a query's items."""

    by: list[OrderBy]
    tie_break: list[str]
    profile: Literal["relevance", "recent", "quality", "balanced"]


class EventFilter(TypedDict, total=False):
    """An event is delivered when it meets every member; no member, every event."""

    event_classes: list[str]
    object_type: str
    object_id: str
    predicate: dict[str, Any]


class Delivery(TypedDict, total=False):
    """Delivery preferences; times in milliseconds."""

    batching_max_events: int
    batching_max_wait_ms: int
    keepalive_interval_ms: int
    backpressure_policy: Literal["close_on_lag", "block"]


class Webhook(TypedDict):
    """Where the service sends events itself."""

    url: str


class VersionRange(TypedDict, total=False):
    """Versions by their own sequence, both ends included."""

    from_sequence: int
    to_sequence: int
