"""The request documents of the write operations, decoded once from their bytes.

What is wrong with the shape is invalid_request; what is wrong with something that would enter the object (provenance,
quality_signals) is invalid_object. Content stays the client's bytes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from pamspec_common import contracts, instants
from pamspec_common.contracts.formats import is_date_time, is_uri
from pamspec_common.documents import (
    MAX_KEY,
    STANDARD_TYPES,
    Actor,
    Availability,
    CommonFields,
    Key,
    Lifecycle,
    Retention,
    Validation,
    is_extension_type,
    misfit,
    null_member,
)
from pamspec_common.errors import InvalidObject, InvalidRequest, PamspecError
from pamspec_common.ids import Id
from pamspec_common.instants import Instant, wire

MAX_CONTENT = 1024 * 1024
MAX_BATCH = 1000

Score = Annotated[float, msgspec.Meta(ge=0, le=1)]
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


NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


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


class Create(Common, kw_only=True):
    object_type: str
    canonical_content: msgspec.Raw
    provenance: msgspec.Raw
    lifecycle_state: Lifecycle | None = None
    availability_state: Availability = "available"
    retention_state: Retention = "retained"
    validation_state: Validation = "unverified"
    object_id: Id | None = None
    schema_id: str | None = None
    observed_at: Instant | None = None
    asserted_at: Instant | None = None
    valid_from: Instant | None = None
    valid_until: Instant | None = None
    integrity: MaybeRaw = msgspec.UNSET
    quality_signals: MaybeRaw = msgspec.UNSET
    relationship_refs: list[Id] | None = None
    source_event: SourceEvent | None = None
    expected_absent: bool = False


class Update(Common, kw_only=True):
    object_id: Id
    expected_version_id: Id
    provenance: msgspec.Raw
    canonical_content: MaybeRaw = msgspec.UNSET
    schema_id: str | None = None
    observed_at: Instant | None = None
    asserted_at: Instant | None = None
    valid_from: Instant | None = None
    valid_until: Instant | None = None
    integrity: MaybeRaw = msgspec.UNSET
    quality_signals: MaybeRaw = msgspec.UNSET
    relationship_refs: list[Id] | None = None
    source_event: SourceEvent | None = None
    restore_version_id: Id | None = None


class Transition(Common, kw_only=True):
    expected_version_id: Id
    dimension: str
    target_state: str
    policy_basis: NonEmpty
    object_id: Id | None = None
    relationship_id: Id | None = None
    provenance: MaybeRaw = msgspec.UNSET
    canonical_content: MaybeRaw = msgspec.UNSET


class Delete(Common, kw_only=True):
    expected_version_id: Id
    policy_basis: NonEmpty
    object_id: Id | None = None
    relationship_id: Id | None = None
    provenance: MaybeRaw = msgspec.UNSET


RecordedType = Literal[
    "embedding_generated", "index_rebuilt", "access_denied", "subscription_opened", "subscription_closed"
]


class RecordEvent(Common, kw_only=True):
    event_type: RecordedType
    payload: dict[str, Any]
    object_id: Id | None = None
    version_id: Id | None = None


class Batch(Common, kw_only=True):
    items: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]
    atomic: bool = False


class GetOperation(Common, kw_only=True):
    operation: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z_]*\Z", max_length=64)] | None = None


class CreateScope(Common, kw_only=True):
    scope_kind: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY)] = "workspace"
    parent_scope_id: Id | None = None
    policy: dict[str, Any] | None = None


Request = Create | Update | Transition | Delete | RecordEvent
REQUESTS: dict[str, type[Request]] = {
    "create": Create,
    "update": Update,
    "transition": Transition,
    "delete": Delete,
    "record_event": RecordEvent,
}

T = TypeVar("T")
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decode(kind: type[T], data: bytes | msgspec.Raw, error: type[PamspecError] = InvalidRequest, where: str = "") -> T:
    """A document of `kind`; what does not fit is `error`, with the field's path and what is expected there."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        document: T = decoder.decode(data)
    except msgspec.ValidationError as problem:
        raise misfit(kind, str(problem), error, where) from None
    except msgspec.DecodeError:
        raise error(f"{where or 'The body'} is not a JSON object of the expected form.") from None
    return document


def check_schema_id(schema_id: str | None) -> None:
    """Raise InvalidObject for a schema_id that is no URI."""
    if schema_id is not None and not is_uri(schema_id):
        raise InvalidObject("schema_id must be an absolute URI.", details={"field": "schema_id"})


def check_object_type(object_type: str, schema_id: str | None) -> None:
    """Raise InvalidObject unless the type is a standard one, or an extension type with a schema_id (P57)."""
    if object_type in STANDARD_TYPES:
        return
    if not is_extension_type(object_type):
        raise InvalidObject(
            "object_type is neither a standard type nor a reverse-domain name or URI.",
            details={"field": "object_type", "standard_types": sorted(STANDARD_TYPES)},
        )
    if schema_id is None:
        raise InvalidObject("An extension type needs a schema_id.", details={"field": "schema_id"})


def check_event(event: RecordEvent) -> None:
    """Raise InvalidRequest unless the event keeps its type's contract: its ids, and a payload without floats."""
    given = {name: value for name in ("object_id", "version_id") if (value := getattr(event, name)) is not None}
    broken = contracts.events()[event.event_type].broken_presence(given)
    try:
        contracts.check(f"event-payload#/$defs/{event.event_type}", event.payload)
    except contracts.ContractViolation as violation:
        broken = str(violation)
    if any(isinstance(value, float) for value in event.payload.values()):
        broken = "a payload holds integers only"
    if broken is not None:
        raise InvalidRequest(f"{event.event_type}: {broken}.", details={"field": "payload"})


_TIMES = frozenset(
    [
        "observed_at",
        "asserted_at",
        "valid_from",
        "valid_until",
        "recorded_at",
        "last_verified_at",
        "assessed_at",
        "issued_at",
        "not_before",
        "not_after",
    ]
)
_PARTS: dict[str, type[PamspecError]] = {
    "actor": InvalidRequest,
    "source_event": InvalidRequest,
    "provenance": InvalidObject,
    "quality_signals": InvalidObject,
    "integrity": InvalidObject,
}


def check_members(document: dict[str, Any]) -> None:
    """Raise for what the decoder lets pass: null for an optional member, and times of another form than RFC 3339.

    An optional member is left out, never null; only content may be any JSON value.
    """
    for name, value in document.items():
        if name == "canonical_content":
            continue
        _check_member(name, value, InvalidRequest)
        if name in _PARTS and isinstance(value, dict):
            _check_part(name, value, _PARTS[name])


def _check_part(path: str, part: dict[str, Any], error: type[PamspecError]) -> None:
    for name, value in part.items():
        _check_member(f"{path}.{name}", value, error)
        if isinstance(value, dict):
            _check_part(f"{path}.{name}", value, error)


def _check_member(path: str, value: Any, error: type[PamspecError]) -> None:
    if value is None:
        raise null_member(path, error)
    if isinstance(value, str) and path.rpartition(".")[2] in _TIMES and not _is_time(value):
        raise error(
            f"{path} must be an RFC 3339 time with an offset, in the years 1 to 9999 of UTC.", details={"field": path}
        )


def _is_time(text: str) -> bool:
    try:
        instants.parse(text)
    except ValueError:
        return False
    return is_date_time(text)


def plain(document: msgspec.Struct) -> dict[str, Any]:
    """A struct as a JSON document with every instant in the wire form."""
    built: dict[str, Any] = _plain(msgspec.to_builtins(document, builtin_types=(datetime,)))
    return built


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(below) for name, below in value.items()}
    if isinstance(value, datetime):
        return wire(value)
    return value
