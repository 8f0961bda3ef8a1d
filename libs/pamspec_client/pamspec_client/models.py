"""Answers as typed documents.

Invariant: nothing that the service sends is lost. Every document keeps its bytes in `raw`; members that this version
does not know are in `extra`. Content is decoded on access, with integers of any size and floats as Python parses them;
`content_bytes` gives the JSON text itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from pamspec_client.errors import PamspecError, ProtocolError, refusal

if TYPE_CHECKING:
    from pamspec_client.documents import (
        Actor,
        AvailabilityState,
        Channel,
        Integrity,
        LifecycleState,
        Provenance,
        QualitySignals,
        RetentionState,
        ValidationState,
    )
else:
    # Decoded as they come, so that members and words of a later version stay.
    Actor = Provenance = Integrity = QualitySignals = dict[str, Any]
    LifecycleState = AvailabilityState = RetentionState = ValidationState = Channel = str

D = TypeVar("D", bound="Document")

NOTHING = msgspec.Raw()
"""A member that did not come."""


class Document(msgspec.Struct, kw_only=True, dict=True):
    """A JSON object of the service."""

    @classmethod
    def of(cls: type[D], raw: bytes | msgspec.Raw) -> D:
        """The document in these bytes; ProtocolError when they hold no such document."""
        data = bytes(raw)
        try:
            found = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ProtocolError(f"no {cls.__name__} came: {error}") from None
        found.__dict__["raw"] = data
        return found

    @property
    def raw(self) -> bytes:
        """The document as it came; empty for one that was made here."""
        data: bytes = self.__dict__.get("raw", b"")
        return data

    @property
    def extra(self) -> dict[str, Any]:
        """The members that this version of the client does not know."""
        known = {field.encode_name for field in msgspec.structs.fields(self)}
        document = json.loads(self.raw or b"{}")
        return {name: value for name, value in document.items() if name not in known}


class Envelope(Document, kw_only=True):
    """One version of an object or a relationship (PAMSPEC P34-P55); it never changes, except by an erasure."""

    version_id: str
    scope_id: str
    sequence: int
    """Counts the versions of this one object: 1, 2, 3."""
    canonical_content: Annotated[msgspec.Raw, "JSON text; use `content`"] = msgspec.Raw(b"null")
    spec_version: str = ""
    object_id: str | None = None
    relationship_id: str | None = None
    delegation_id: str | None = None
    object_type: str | None = None
    schema_id: str | None = None
    relationship_type: str | None = None
    source_object_id: str | None = None
    target_object_id: str | None = None
    target_scope_id: str | None = None
    directionality: str | None = None
    lifecycle_state: LifecycleState = "active"
    availability_state: AvailabilityState = "available"
    retention_state: RetentionState = "retained"
    validation_state: ValidationState = "unverified"
    observed_at: str | None = None
    asserted_at: str | None = None
    valid_from: str | None = None
    valid_until: str | None = None
    committed_at: str = ""
    recorded_at: str = ""
    actor: Actor
    provenance: Provenance
    relationship_refs: list[str] | None = None
    integrity: Integrity | None = None
    quality_signals: QualitySignals | None = None

    @property
    def content(self) -> Any:
        """The content as a Python value; of an erased version `{"tombstone": True}`."""
        return json.loads(bytes(self.canonical_content))

    @property
    def content_bytes(self) -> bytes:
        """The content as JSON text, every number token as it was written."""
        return bytes(self.canonical_content)


class Event(Document, kw_only=True):
    """A ledger entry (PAMSPEC P143); `sequence` is the scope's ledger sequence."""

    event_id: str
    operation_id: str
    scope_id: str
    event_type: str
    recorded_at: str
    sequence: int
    actor: Actor
    object_id: str | None = None
    relationship_id: str | None = None
    version_id: str | None = None
    payload: dict[str, Any] = {}

    @property
    def envelope(self) -> Envelope | None:
        """The version of the event, where the subscription includes content."""
        found: Envelope | None = self.__dict__.get("envelope")
        return found

    def with_envelope(self, envelope: Envelope | None) -> Event:
        """This event, together with its version."""
        self.__dict__["envelope"] = envelope
        return self


class Outcome(Document, kw_only=True):
    """What a write answers."""

    version_id: str
    scope_id: str
    sequence: int
    ledger_sequence: int
    event_id: str
    operation_id: str
    envelope_raw: msgspec.Raw = msgspec.field(name="envelope")
    object_id: str | None = None
    relationship_id: str | None = None
    erasure_id: str | None = None

    @property
    def envelope(self) -> Envelope:
        """The version that was written."""
        return Envelope.of(self.envelope_raw)

    @property
    def replayed(self) -> bool:
        """Whether this is the first outcome of a request that had been carried out before."""
        return bool(self.__dict__.get("replayed", False))


class Superseding(msgspec.Struct, kw_only=True):
    """The version that ended the working memory which was promoted."""

    version_id: str
    sequence: int


class Promotion(Document, kw_only=True):
    """What a promote answers."""

    object_raw: msgspec.Raw = msgspec.field(name="object")
    source: Superseding
    relationship_id: str
    """derived_from, from the new object to the working memory."""
    event_ids: list[str]

    @property
    def object(self) -> Outcome:
        """The new object, as a create would have answered it."""
        return Outcome.of(self.object_raw)

    @property
    def replayed(self) -> bool:
        """Whether this is the first outcome of a request that had been carried out before."""
        return bool(self.__dict__.get("replayed", False))


class _Probe(Document, kw_only=True):
    """What an answer in a batch is: an error, a promotion, or the outcome of another write."""

    error: msgspec.Raw = NOTHING
    object: msgspec.Raw = NOTHING


def _written(raw: bytes | msgspec.Raw) -> Outcome | Promotion | PamspecError:
    probe = _Probe.of(raw)
    error = refusal(json.loads(bytes(raw))) if bytes(probe.error) else None
    if error is not None:
        return error
    return Promotion.of(raw) if bytes(probe.object) else Outcome.of(raw)


class BatchOutcome(Document, kw_only=True):
    """What a batch answers: one result for each item, in the order of the request."""

    operation_id: str
    results_raw: list[msgspec.Raw] = msgspec.field(name="results")

    @property
    def results(self) -> list[Outcome | Promotion | PamspecError]:
        """An outcome or an error for each item, of a promote a Promotion; errors are not raised here."""
        return [_written(raw) for raw in self.results_raw]


class QueryItem(Document, kw_only=True):
    """One item of a query: an envelope, or the projection that was asked for."""

    envelope_raw: msgspec.Raw = msgspec.field(name="envelope", default=NOTHING)
    projection_raw: msgspec.Raw = msgspec.field(name="projection", default=NOTHING)
    score: float | None = None
    explanation: dict[str, Any] | None = None

    @property
    def envelope(self) -> Envelope:
        """The version; ProtocolError when a projection was asked for."""
        if not bytes(self.envelope_raw):
            raise ProtocolError("this item is a projection: read `projection`")
        return Envelope.of(self.envelope_raw)

    @property
    def projection(self) -> dict[str, Any] | None:
        """The members that `fields` named, or None."""
        if not bytes(self.projection_raw):
            return None
        found: dict[str, Any] = json.loads(bytes(self.projection_raw))
        return found


class QueryPage(Document, kw_only=True):
    """A page of a query; `hint` says why it is empty when the default filters made it so."""

    items_raw: list[msgspec.Raw] = msgspec.field(name="items")
    next_cursor: str | None = None
    hint: str | None = None
    index: dict[str, Any] | None = None

    @property
    def items(self) -> list[QueryItem]:
        """The items in the order of the query."""
        return [QueryItem.of(raw) for raw in self.items_raw]


class HistoryPage(Document, kw_only=True):
    """A page of history: ledger entries in order, their versions, and erasable notes by event_id."""

    versions_raw: list[msgspec.Raw] = msgspec.field(name="versions")
    events_raw: list[msgspec.Raw] = msgspec.field(name="events")
    notes: dict[str, dict[str, Any]] = {}
    next_cursor: str | None = None

    @property
    def versions(self) -> list[Envelope]:
        """The versions of the events on this page, oldest first."""
        return [Envelope.of(raw) for raw in self.versions_raw]

    @property
    def events(self) -> list[Event]:
        """The ledger entries."""
        return [Event.of(raw) for raw in self.events_raw]


class Operation(Document, kw_only=True):
    """What became of an operation: committed, in_progress, failed or unknown (final: it can no longer happen)."""

    state: str
    operation_id: str | None = None
    outcome_raw: msgspec.Raw = msgspec.field(name="outcome", default=NOTHING)

    @property
    def outcome(self) -> Outcome | Promotion | PamspecError | dict[str, Any] | None:
        """The first answer: an Outcome or Promotion where it is one, else the document; the error of a failed one."""
        if bytes(self.outcome_raw) in (b"", b"null"):
            return None
        document: dict[str, Any] = json.loads(bytes(self.outcome_raw))
        error = refusal(document)
        if error is not None:
            return error
        if "event_ids" in document:
            return Promotion.of(self.outcome_raw)
        return Outcome.of(self.outcome_raw) if "version_id" in document else document


class ScopeDocument(Document, kw_only=True):
    """A scope."""

    scope_id: str
    scope_kind: str = ""
    parent_scope_id: str | None = None
    policy: dict[str, Any] | None = None
    policy_version: int = 0
    """0 where the scope has no policy; a page of scopes shows neither."""


class ScopePage(Document, kw_only=True):
    """A page of the scopes that the actor can see, by scope_id."""

    scopes_raw: list[msgspec.Raw] = msgspec.field(name="scopes")
    next_cursor: str | None = None

    @property
    def scopes(self) -> list[ScopeDocument]:
        """The scopes."""
        return [ScopeDocument.of(raw) for raw in self.scopes_raw]


class RunClock(msgspec.Struct, kw_only=True):
    """The clock that a snapshot gives to its evaluation run."""

    clock_ref: str
    start_at: str
    tick_ms: int = 1


class Snapshot(msgspec.Struct, kw_only=True):
    """A sealed snapshot: a scope at one position, or some of its objects and relationships there."""

    snapshot_id: str
    scope_id: str
    created_at: str
    ledger_sequence_high_watermark: int
    created_by_actor_id: str | None = None
    included_object_ids: list[str] | None = None
    """What belongs; None where all of the scope does."""
    included_embedding_space_ids: list[str] | None = None
    deterministic_clock: RunClock | None = None
    deterministic_rng_seed: int | None = None
    evaluation_run_id: str | None = None
    digest: str | None = None


class Sealed(Document, kw_only=True):
    """The answer to seal_snapshot."""

    snapshot: Snapshot
    ledger_epoch: int
    operation_id: str


class SnapshotEntry(msgspec.Struct, kw_only=True):
    """A snapshot with the epoch of its position."""

    snapshot: Snapshot
    ledger_epoch: int


class SnapshotPage(Document, kw_only=True):
    """A page of a scope's snapshots, by snapshot_id."""

    snapshots: list[SnapshotEntry]
    next_cursor: str | None = None


class VersionAt(msgspec.Struct, kw_only=True):
    """Which version a snapshot shows."""

    version_id: str
    sequence: int


class ShownOnce(VersionAt, kw_only=True):
    """A version that one snapshot alone shows."""

    lifecycle_state: str
    availability_state: str
    retention_state: str
    validation_state: str
    object_id: str | None = None
    relationship_id: str | None = None


class Moved(msgspec.Struct, kw_only=True):
    """A state that differs."""

    from_: str = msgspec.field(name="from")
    to: str


class ShownTwice(msgspec.Struct, kw_only=True):
    """What two snapshots show at different versions."""

    base: VersionAt
    other: VersionAt
    versions: int
    """How many versions the other is ahead of the base; negative where the base is the later one."""
    states: dict[str, Moved]
    object_id: str | None = None
    relationship_id: str | None = None


class Comparison(Document, kw_only=True):
    """A page of what two snapshots show differently, in ledger order."""

    added: list[ShownOnce]
    removed: list[ShownOnce]
    changed: list[ShownTwice]
    next_cursor: str | None = None


class Closed(msgspec.Struct, kw_only=True):
    """The end of a subscription."""

    reason: str
    last_delivered_sequence: int


class Subscribed(Document, kw_only=True):
    """An opened subscription."""

    subscription_id: str
    start_sequence: int
    ledger_epoch: int
    channel_ref: str
    channel: Channel
    include_content: bool
    subscription: dict[str, Any]
    operation_id: str = ""


class SubscriptionEntry(Document, kw_only=True):
    """A subscription and its durable cursor `next_after_sequence`."""

    subscription: dict[str, Any]
    channel: Channel
    include_content: bool
    next_after_sequence: int
    ledger_epoch: int
    closed: Closed | None = None


class SubscriptionPage(Document, kw_only=True):
    """A page of subscriptions, by subscription_id."""

    subscriptions_raw: list[msgspec.Raw] = msgspec.field(name="subscriptions")
    next_cursor: str | None = None

    @property
    def subscriptions(self) -> list[SubscriptionEntry]:
        """The subscriptions."""
        return [SubscriptionEntry.of(raw) for raw in self.subscriptions_raw]


class Unsubscribed(Document, kw_only=True):
    """An ended subscription."""

    subscription_id: str
    closed: Closed
    operation_id: str = ""


class CursorMoved(Document, kw_only=True):
    """Where a subscription's delivery goes on."""

    subscription_id: str
    next_after_sequence: int
    ledger_epoch: int
    operation_id: str = ""


class PollPage(Document, kw_only=True):
    """A page of events; the next poll passes `next_after_sequence`, which acknowledges this page."""

    events_raw: list[msgspec.Raw] = msgspec.field(name="events")
    next_after_sequence: int
    ledger_epoch: int
    closed: Closed | None = None
    envelopes: dict[str, msgspec.Raw] | None = None

    @property
    def events(self) -> list[Event]:
        """The events in ledger order, each with its envelope where the subscription includes content."""
        return [self._joined(Event.of(raw)) for raw in self.events_raw]

    def _joined(self, event: Event) -> Event:
        raw = (self.envelopes or {}).get(event.version_id or "")
        return event.with_envelope(Envelope.of(raw) if raw is not None else None)


class ReadAnswer(Document, kw_only=True):
    """The answer of a read."""

    envelope_raw: msgspec.Raw = msgspec.field(name="envelope")


class ProjectionAnswer(Document, kw_only=True):
    """The answer of a read that names fields."""

    projection_raw: msgspec.Raw = msgspec.field(name="projection")

    @property
    def projection(self) -> dict[str, Any]:
        """The members that were asked for."""
        found: dict[str, Any] = json.loads(bytes(self.projection_raw))
        return found


class ScopeAnswer(Document, kw_only=True):
    """The answer about one scope."""

    scope_raw: msgspec.Raw = msgspec.field(name="scope")
    policy_version: int = 0


class RemappedFrom(Document, kw_only=True):
    """Where a file came from that was imported under another name."""

    scope_id: str
    ledger_id: str


class Imported(Document, kw_only=True):
    """The answer to an import."""

    operation_id: str
    scope_id: str
    imported: bool
    """False where the scope held something else and was to be left as it is."""
    entries: int
    versions: int
    operations: int
    source_events: int
    head_hash: str
    digest: str
    remapped_from: RemappedFrom | None = None

    @property
    def replayed(self) -> bool:
        """Whether the scope held the file already."""
        return bool(self.__dict__.get("replayed", False))


class PolicySet(Document, kw_only=True):
    """A scope's new policy."""

    scope_id: str
    policy: dict[str, Any]
    policy_version: int
    operation_id: str = ""


class PolicyVersion(Document, kw_only=True):
    """A policy that a scope has or had, and who set it."""

    policy_version: int
    policy: dict[str, Any]
    actor_id: str
    operation_id: str
    changed_at: str
    policy_basis: str | None = None
    """None for the policy that the scope was made with."""
    authenticated_as: str | None = None


class PolicyPage(Document, kw_only=True):
    """A page of a scope's policies, the newest first."""

    versions: list[PolicyVersion]
    next_cursor: str | None = None


class HoldPlaced(Document, kw_only=True):
    """A legal hold that was placed or released."""

    hold_id: str
    scope_id: str
    object_type: str | None = None
    placed_at: str | None = None
    released_at: str | None = None
    operation_id: str = ""


class Hold(Document, kw_only=True):
    """A legal hold over a type, or over the whole scope."""

    hold_id: str
    policy_basis: str
    actor_id: str
    operation_id: str
    placed_at: str
    settled: bool
    """Whether the retention of every object shows it already."""
    object_type: str | None = None
    authenticated_as: str | None = None
    released_at: str | None = None
    release_basis: str | None = None
    released_by: str | None = None
    release_operation_id: str | None = None


class HoldPage(Document, kw_only=True):
    """A page of a scope's holds, the oldest first."""

    holds: list[Hold]
    next_cursor: str | None = None


class SchemaRegistered(Document, kw_only=True):
    """A content schema that was registered."""

    scope_id: str
    schema_id: str
    operation_id: str = ""


class RegisteredSchema(Document, kw_only=True):
    """A content schema; its document only where it was asked for by its id."""

    schema_id: str
    digest: str
    actor_id: str
    operation_id: str
    registered_at: str
    authenticated_as: str | None = None
    schema: Any = None


class SchemaPage(Document, kw_only=True):
    """A page of a scope's content schemas by their ids."""

    schemas: list[RegisteredSchema]
    next_cursor: str | None = None
