"""What writes answer, and the objects and events themselves."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec

from pamspec_client.errors import PamspecError, refusal
from pamspec_client.models.document import (
    NOTHING,
    Actor,
    AvailabilityState,
    Document,
    Integrity,
    LifecycleState,
    Provenance,
    QualitySignals,
    RetentionState,
    ValidationState,
)


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
    payload: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def envelope(self) -> Envelope | None:
        """The version of the event, where the subscription includes content."""
        found: Envelope | None = self.__dict__.get("envelope")
        return found

    def with_envelope(self, envelope: Envelope | None) -> Event:
        """This event, together with its version."""
        self.__dict__["envelope"] = envelope
        return self

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context of the write, where it has one and the event was followed live."""
        found: str | None = self.__dict__.get("traceparent")
        return found

    def with_traceparent(self, traceparent: str | None) -> Event:
        """This event, together with the trace of its write."""
        self.__dict__["traceparent"] = traceparent
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
