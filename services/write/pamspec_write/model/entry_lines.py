"""Entries as an import reads them: typed as far as storing them needs, and checked against what the service writes.

Invariant: what passes is what this service could have written: of the one byte form, with every digest over its bytes,
content that is strict JSON within the limits, and no member that its contract does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
import orjson

from pamspec_common import contracts, strict_json
from pamspec_common.documents import Availability, Lifecycle, Retention, Sequence, Validation
from pamspec_common.envelope import DIGEST_MEMBERS
from pamspec_common.events import EventType
from pamspec_common.ids import Id
from pamspec_common.ledger import keyed_digest, version_digest
from pamspec_common.transfer import EntryLine, OperationPart, VersionPart, bytes_or_none
from pamspec_write.documents.parts import MAX_CONTENT

COMPANIONS = frozenset({"tool_invoked", "tool_completed", "working_memory_promoted"})
"""Events of a commit that name a version which another entry brought."""
ERASING = frozenset({"object_redacted", "object_deleted"})
_MAX_VERSION_SEQ = 2**31 - 1
_KINDS = {"object_id": "o", "relationship_id": "r", "delegation_id": "d"}

Word = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
Time = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z\Z")]
VersionSeq = Annotated[int, msgspec.Meta(ge=1, le=_MAX_VERSION_SEQ)]


class _ActorIds(msgspec.Struct, forbid_unknown_fields=True):
    actor_id: Id
    actor_kind: Word
    on_behalf_of_actor_id: Id | None = None
    delegation_id: Id | None = None


class Range(msgspec.Struct, forbid_unknown_fields=True):
    """Versions of an object, both ends included."""

    from_sequence: VersionSeq
    to_sequence: VersionSeq


class Facts(msgspec.Struct):
    """What a payload says of the version that its event tells of."""

    version_digest: str | None = None
    version_sequence: int | None = None
    lifecycle_state: str | None = None
    availability_state: str | None = None
    retention_state: str | None = None
    validation_state: str | None = None
    erased: list[Range] = []
    subscription_id: Id | None = None
    delegation_id: Id | None = None


class Event(msgspec.Struct, forbid_unknown_fields=True):
    """An event, typed as far as storing it needs."""

    event_id: Id
    operation_id: Id
    scope_id: Id
    event_type: EventType
    recorded_at: Time
    sequence: Sequence
    actor: _ActorIds
    payload: Facts
    object_id: Id | None = None
    relationship_id: Id | None = None
    version_id: Id | None = None

    @property
    def subject_id(self) -> str | None:
        """What its ledger row is found by."""
        payload = self.payload
        return self.object_id or self.relationship_id or payload.subscription_id or payload.delegation_id


class _Provenance(msgspec.Struct):
    provenance_id: Id
    actor: _ActorIds
    recorded_at: Time


class Metadata(msgspec.Struct):
    """A version's metadata, typed as far as storing it needs; its members are those of an envelope."""

    spec_version: Literal["0.1.0-draft"]
    version_id: Id
    scope_id: Id
    lifecycle_state: Lifecycle
    availability_state: Availability
    retention_state: Retention
    validation_state: Validation
    committed_at: Time
    recorded_at: Time
    sequence: VersionSeq
    actor: _ActorIds
    provenance: _Provenance
    object_id: Id | None = None
    relationship_id: Id | None = None
    delegation_id: Id | None = None
    object_type: Word | None = None
    relationship_type: Word | None = None
    schema_id: Word | None = None
    observed_at: Time | None = None
    asserted_at: Time | None = None
    valid_from: Time | None = None
    valid_until: Time | None = None
    source_object_id: Id | None = None
    target_object_id: Id | None = None
    target_scope_id: Id | None = None
    directionality: Literal["directed", "bidirectional", "undirected"] | None = None
    content_digest: str | None = None
    private_digest: str | None = None

    @property
    def kind(self) -> str:
        """o, r or d: an object, a relationship or a delegation."""
        return "o" if self.object_id is not None else "r" if self.relationship_id is not None else "d"

    @property
    def subject_id(self) -> str:
        """The id of what it is a version of."""
        return self.object_id or self.relationship_id or self.delegation_id or ""

    @property
    def named(self) -> str:
        """The type that it is found by."""
        return self.object_type or self.relationship_type or "delegation"


class _Private(msgspec.Struct, forbid_unknown_fields=True):
    provenance: dict[str, Any]
    actor: dict[str, Any] | None = None
    integrity: dict[str, Any] | None = None
    policy_basis: str | None = None
    note: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """The version of an entry."""

    metadata: Metadata
    stored: bytes
    operation_hash: bytes
    salt: bytes | None
    private: bytes | None
    content: bytes | None


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry with what it made."""

    event: Event
    stored: bytes
    entry_hash: bytes
    version: Version | None
    operation: OperationPart | None


class BadLine(Exception):
    """Why a line is refused; the message tells what to do."""


_event = msgspec.json.Decoder(Event)
_metadata = msgspec.json.Decoder(Metadata)
_private = msgspec.json.Decoder(_Private)


def event_of(stored: bytes) -> Event:
    """An event of its bytes."""
    return _event.decode(stored)


def metadata_of(stored: bytes) -> Metadata:
    """A version's metadata of their bytes."""
    return _metadata.decode(stored)


def read_entry(line: EntryLine) -> Entry:
    """The parts of an entry's line; BadLine when they are not of their form."""
    stored = bytes(line.event)
    try:
        event = _event.decode(stored)
        version = None if line.version is None else _read_version(line.version)
    except msgspec.DecodeError:
        raise BadLine("its event or metadata are not of their form; the file was edited.") from None
    return Entry(event, stored, bytes.fromhex(line.entry_hash), version, line.operation)


def _read_version(part: VersionPart) -> Version:
    stored = bytes(part.metadata)
    return Version(
        _metadata.decode(stored),
        stored,
        bytes.fromhex(part.operation_hash),
        None if part.salt is None else bytes.fromhex(part.salt),
        bytes_or_none(part.private),
        bytes_or_none(part.content),
    )


def check_event(entry: Entry) -> None:
    """BadLine unless the event is of the one form, with the ids and members that its type may have."""
    event = entry.event
    document = _in_one_form(entry.stored)
    if document is None or not _is_plain(document["payload"]):
        raise BadLine("the event is not written as the service writes it.")
    payload = document["payload"]
    if not payload.keys() <= _payload_members(event.event_type):
        raise BadLine(f"the payload has a member that {event.event_type} does not have.")
    broken = contracts.events()[event.event_type].broken_presence(document)
    if broken is not None:
        raise BadLine(f"{event.event_type}: {broken}.")
    check_time(event.recorded_at)
    made = event.event_type in _version_events()
    if made != (entry.version is not None):
        raise BadLine("the entry's version is missing." if made else "the entry makes no version.")


def check_version(version: Version, event: Event) -> None:
    """BadLine unless the version is the one that the event tells of, whole or erased."""
    metadata, facts = version.metadata, event.payload
    if version_digest(version.stored) != facts.version_digest:
        raise BadLine("the metadata have another digest than their event says; they were edited.")
    document = _in_one_form(version.stored)
    if document is None or not document.keys() <= _metadata_members():
        raise BadLine("the metadata are not written as the service writes them.")
    if (metadata.version_id, metadata.scope_id, metadata.sequence) != (
        event.version_id,
        event.scope_id,
        facts.version_sequence,
    ):
        raise BadLine("the metadata are those of another version.")
    if len(document.keys() & _KINDS.keys()) != 1 or metadata.subject_id != event.subject_id:
        raise BadLine("the version is of another object than its event.")
    if metadata.kind != "d" and (metadata.object_type is None) == (metadata.relationship_type is None):
        raise BadLine("the version has no type.")
    for name in ("lifecycle_state", "availability_state", "retention_state", "validation_state"):
        if getattr(metadata, name) != getattr(facts, name):
            raise BadLine(f"the version's {name} is not the one of its event.")
    for time in (metadata.committed_at, metadata.observed_at, metadata.asserted_at, metadata.valid_from):
        check_time(time)
    check_time(metadata.valid_until)
    _check_parts(version)


def _check_parts(version: Version) -> None:
    metadata = version.metadata
    for name, value, digest in (
        ("private", version.private, metadata.private_digest),
        ("content", version.content, metadata.content_digest),
    ):
        if value is None:
            continue
        if version.salt is None or digest != keyed_digest(version.salt, name, value):
            raise BadLine(f"the {name} part has another digest than its metadata say; it was edited.")
    if version.private is None:
        if version.salt is not None or version.content is not None:
            raise BadLine("the version is erased in part only.")
        return
    if version.content is None and metadata.content_digest is not None:
        raise BadLine("the version's content is missing.")
    try:
        _private.decode(version.private)
    except msgspec.ValidationError:
        raise BadLine("the private part has a member that no version has.") from None
    if _in_one_form(version.private) is None:
        raise BadLine("the private part is not written as the service writes it.")
    if version.content is not None:
        if len(version.content) > MAX_CONTENT:
            raise BadLine(f"the content is larger than {MAX_CONTENT} bytes.")
        strict_json.parse(version.content)
        if strict_json.compact(version.content) != version.content:
            raise BadLine("the content is not compact.")


def check_time(text: str | None) -> None:
    """BadLine unless a time, where there is one, is in the form of the service."""
    if text is None:
        return
    try:
        if datetime.fromisoformat(text).isoformat(timespec="microseconds")[:26] + "Z" == text:
            return
    except ValueError:
        pass
    raise BadLine("a time in it is none, or not in the form of the service.")


def _in_one_form(stored: bytes) -> dict[str, Any] | None:
    """The document of bytes that the service has written: compact, members sorted, each once; None for any other.

    Writing again what was read must give the same bytes. One that holds a number which the fast parser would round goes
    the way that keeps each digit.
    """
    try:
        document: dict[str, Any] = orjson.loads(stored)
        if orjson.dumps(document, option=orjson.OPT_SORT_KEYS) == stored:
            return document
    except (orjson.JSONDecodeError, TypeError):
        return None
    document = strict_json.parse(stored)
    return document if strict_json.canonical(document) == stored else None


def _is_plain(value: Any) -> bool:
    """Whether a payload holds texts, integers, booleans, and arrays and objects of these, with ASCII names."""
    if isinstance(value, dict):
        return all(name.isascii() and _is_plain(below) for name, below in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return isinstance(value, str | int)


@cache
def _version_events() -> frozenset[str]:
    """The events that bring a version."""
    return frozenset(
        name
        for name, entry in contracts.events().items()
        if entry.via == "commit" and entry.version == "required" and name not in COMPANIONS
    )


@cache
def _payload_members(event_type: str) -> frozenset[str]:
    return _members(f"pamspec:schema:event-payload#/$defs/{event_type}")


@cache
def _metadata_members() -> frozenset[str]:
    names = ("memory-object", "relationship", "delegation")
    found = frozenset[str]().union(*(_members(f"pamspec:schema:{name}") for name in names))
    return found - {"canonical_content", "integrity"} | set(DIGEST_MEMBERS)


def _members(reference: str) -> frozenset[str]:
    """The names that a schema gives to the members of an object, in whatever it is put together from."""
    part = contracts.resolve(reference)
    identifier = reference.partition("#")[0]
    found = set(part.get("properties", {}))
    below = [part, *part.get("allOf", ()), *part.get("oneOf", ()), *part.get("anyOf", ())]
    for schema in below:
        target = schema.get("$ref")
        if target is not None:
            found |= _members(target if target[0] != "#" else identifier + target)
        elif schema is not part:
            found |= set(schema.get("properties", {}))
    return frozenset(found)
