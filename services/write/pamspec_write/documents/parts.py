"""The parts that the request documents share; what would enter an object is decoded by itself."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pamspec_common.documents import Actor, CommonFields, Key
from pamspec_common.ids import Id
from pamspec_common.instants import Instant

MAX_CONTENT = 1024 * 1024

Score = Annotated[float, msgspec.Meta(ge=0, le=1)]
NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
Basis = Annotated[str, msgspec.Meta(min_length=1, pattern=r"^[^\x00]*\Z")]
"""Why a change is allowed: a text that a column of texts can hold."""
MaybeRaw = msgspec.Raw | msgspec.UnsetType
"""A part that is decoded by itself; `Raw | None` would decode nothing but null."""


class Provenance(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    activity: Annotated[str, msgspec.Meta(min_length=1)]
    provenance_id: Id | None = None
    source_ref: str | None = None
    actor: Actor | None = None
    evidence_refs: list[str] | None = None
    observed_at: Instant | None = None
    recorded_at: Instant | None = None
    transformation_parent: str | None = None
    source_confidence: Score | None = None
    integrity_ref: str | None = None


class QualitySignals(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    assessed_confidence: Score | None = None
    contradiction_score: Score | None = None
    staleness_score: Score | None = None
    evidence_strength: Score | None = None
    source_diversity: Score | None = None
    last_verified_at: Instant | None = None
    last_verified_by_actor_id: Id | None = None
    verification_method_id: str | None = None
    assessed_at: Instant | None = None
    assessed_by_actor_id: Id | None = None


class Integrity(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    digest: NonEmpty | None = None
    algorithm: NonEmpty | None = None
    canonicalization_profile: NonEmpty | None = None
    signature: str | None = None
    ledger_ref: str | None = None


class SourceEvent(msgspec.Struct, forbid_unknown_fields=True):
    source: Key
    id: Key


class Common(CommonFields, kw_only=True):
    """The fields that every operation may carry; the actor is decoded by itself."""

    scope_id: Id
    actor: MaybeRaw = msgspec.UNSET
