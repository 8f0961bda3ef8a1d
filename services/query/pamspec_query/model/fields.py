"""The fields of an envelope that conditions and orderings may name, and where each is found.

Invariant: a name that is not here is invalid_request, never ignored (PAMSPEC P147). Members that have a column are
fast; the others are read from the stored JSON of the version, erasable ones from its erasable half, so that an erased
value is found by no condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, LiteralString

from pamspec_common import conditions
from pamspec_common.documents import STATES
from pamspec_common.errors import InvalidRequest

Kind = Literal["text", "state", "time", "integer", "number", "texts"]
Source = Literal["metadata", "private"]


@dataclass(frozen=True, slots=True)
class Field:
    """A member of the envelope: its type, and its column or its place in the stored JSON."""

    name: str
    kind: Kind
    column: LiteralString | None = None
    nullable: bool = False
    states: frozenset[str] = frozenset()
    source: Source = "metadata"
    path: tuple[str, ...] = ()
    unique: bool = False
    """Whether no two versions that are current at one position share a value."""
    row: Literal["o", "r"] | None = None
    """The kind of version that has this member, where it is only one."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A place in the canonical content (RFC 6901)."""

    text: str
    path: tuple[str, ...]

    @property
    def name(self) -> str:
        """The field as it was sent."""
        return f"content:{self.text}"


def _columns() -> list[Field]:
    return [
        Field("object_id", "text", "s.object_id", unique=True, row="o"),
        Field("relationship_id", "text", "s.object_id", unique=True, row="r"),
        Field("version_id", "text", "s.version_id", unique=True),
        Field("object_type", "text", "s.object_type", row="o"),
        Field("relationship_type", "text", "s.object_type", row="r"),
        Field("source_object_id", "text", "s.source_object_id", nullable=True, row="r"),
        Field("target_object_id", "text", "s.target_object_id", nullable=True, row="r"),
        Field("target_scope_id", "text", "s.target_scope_id", nullable=True, row="r"),
        Field("directionality", "text", "s.directionality", nullable=True, row="r"),
        Field("schema_id", "text", "s.schema_id", nullable=True),
        *(Field(name, "state", column, states=frozenset(STATES[name])) for name, column in STATE_COLUMNS.items()),
        Field("actor.actor_id", "text", "s.actor_id"),
        Field("provenance.provenance_id", "text", "s.provenance_id"),
        Field("observed_at", "time", "s.observed_at", nullable=True),
        Field("asserted_at", "time", "s.asserted_at", nullable=True),
        Field("valid_from", "time", "s.valid_from", nullable=True),
        Field("valid_until", "time", "s.valid_until", nullable=True),
        Field("committed_at", "time", "s.committed_at"),
        Field("recorded_at", "time", "s.committed_at"),
        Field("sequence", "integer", "s.version_seq"),
        Field("ledger_sequence", "integer", "s.from_seq", unique=True),
    ]


STATE_COLUMNS: Mapping[str, LiteralString] = {
    "lifecycle_state": "s.lifecycle_state",
    "availability_state": "s.availability_state",
    "retention_state": "s.retention_state",
    "validation_state": "s.validation_state",
}


def _stored(kind: Kind, source: Source, *names: str) -> list[Field]:
    return [Field(name, kind, source=source, path=tuple(name.split("."))) for name in names]


FIELDS: Mapping[str, Field] = {
    field.name: field
    for field in [
        *_columns(),
        *_stored("text", "metadata", "spec_version", "scope_id"),
        *_stored("text", "metadata", "actor.actor_kind", "actor.on_behalf_of_actor_id", "actor.delegation_id"),
        *_stored("texts", "metadata", "relationship_refs"),
        *_stored("number", "private", "quality_signals.assessed_confidence", "quality_signals.contradiction_score"),
        *_stored("number", "private", "quality_signals.staleness_score", "quality_signals.evidence_strength"),
        *_stored("number", "private", "quality_signals.source_diversity"),
        *_stored("text", "private", "quality_signals.last_verified_by_actor_id"),
        *_stored("text", "private", "quality_signals.assessed_by_actor_id", "quality_signals.verification_method_id"),
        *_stored("time", "private", "quality_signals.last_verified_at", "quality_signals.assessed_at"),
        *_stored("text", "private", "actor.display_name", "policy_basis"),
        *_stored("text", "private", "provenance.activity", "provenance.source_ref", "provenance.integrity_ref"),
        *_stored("text", "private", "provenance.transformation_parent"),
        *_stored("texts", "private", "provenance.evidence_refs"),
        *_stored("time", "private", "provenance.observed_at", "provenance.recorded_at"),
        *_stored("number", "private", "provenance.source_confidence"),
        *_stored("text", "private", "integrity.digest", "integrity.algorithm", "integrity.canonicalization_profile"),
        *_stored("text", "private", "integrity.signature", "integrity.ledger_ref"),
    ]
}


def resolve(name: object, where: str) -> Field | Pointer:
    """The field of that name, or the pointer `content:/path`; InvalidRequest when there is none."""
    if not isinstance(name, str):
        raise InvalidRequest(f"{where}.field is not a text; name a field.", details={"field": f"{where}.field"})
    if name.startswith("content:"):
        text = name.removeprefix("content:")
        return Pointer(text, conditions.pointer(text, where))
    found = FIELDS.get(name)
    if found is None:
        raise InvalidRequest(
            f"{where}.field names no field of an envelope; use one of the names in details, or content:/path.",
            details={"field": f"{where}.field", "fields": sorted(FIELDS)},
        )
    return found
