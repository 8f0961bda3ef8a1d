"""What an import takes: every line of an export checked as it comes, in its order, before anything is stored.

Invariant: what passes is what this service could have written. The chain holds from its root to the head, every digest
covers its bytes, every line has its one form (so that exporting again gives the same bytes), content is strict JSON
within the limits, and no event carries a member that its contract does not know. A refusal names the line and carries
none of its text.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
import orjson

from pamspec_common import contracts, instants, strict_json
from pamspec_common.documents import Availability, Lifecycle, Retention, Sequence, Validation
from pamspec_common.envelope import DIGEST_MEMBERS, SPEC_VERSION
from pamspec_common.errors import InvalidRequest, PamspecError
from pamspec_common.events import EventType
from pamspec_common.ids import Id, short_hash
from pamspec_common.ledger import entry_hash, genesis, keyed_digest, version_digest
from pamspec_common.scope_policy import parse_policy
from pamspec_common.transfer import (
    FORMAT,
    FORMAT_VERSION,
    MAX_LINE,
    EndLine,
    EntryLine,
    FailureLine,
    Line,
    Manifest,
    OperationPart,
    PolicyLine,
    ScopeLine,
    SnapshotLine,
    Tally,
    VersionPart,
    bytes_or_none,
    decode_line,
    encode_line,
    manifest_digest,
)
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


class _Stage(enum.Enum):
    MANIFEST = "the manifest"
    SCOPE = "the scope"
    ENTRIES = "an entry or the end"
    RULES = "a policy, a snapshot or the end"
    DONE = "nothing"


class Intake:
    """The lines of one file so far: feed them in order, then call `finish`."""

    def __init__(self) -> None:
        self.number = 0
        """The line that is being read, from 1."""
        self.manifest: Manifest | None = None
        self.scope: ScopeLine | None = None
        self.end: EndLine | None = None
        self._stage = _Stage.MANIFEST
        self._tally = Tally(b"")
        self._recorded_at = ""
        self._last_operation_seq = 0
        self._policy_version = 0
        self._snapshot_id = ""

    def feed(self, line: bytes) -> None:
        """Check the next line, without its line feed; InvalidRequest when anything about it does not hold."""
        self.number += 1
        try:
            self._take(line)
        except BadLine as problem:
            raise self.refused(str(problem)) from None
        except PamspecError as problem:
            raise self.refused(problem.message) from None

    def refused(self, why: str) -> InvalidRequest:
        """The refusal of the line that was fed last."""
        return InvalidRequest(f"Line {self.number}: {why} Nothing was imported.", details={"line": self.number})

    def finish(self) -> EndLine:
        """The end of a whole file; InvalidRequest when the file was cut."""
        if self.end is None:
            self.number += 1
            raise self.refused(f"the file ends where {self._stage.value} should stand; it was cut, export again.")
        return self.end

    def _take(self, line: bytes) -> None:
        found = _decoded(line)
        stage = self._stage
        if stage is _Stage.DONE:
            raise BadLine("the export ended before it; import one file at a time.")
        if isinstance(found, FailureLine):
            raise BadLine("the export failed here, as the line tells; export again.")
        if isinstance(found, Manifest) and stage is _Stage.MANIFEST:
            self._take_manifest(found, line)
            return
        if encode_line(found)[:-1] != line:
            raise BadLine("it is not written as the format writes it; a file must not be edited.")
        if isinstance(found, ScopeLine) and stage is _Stage.SCOPE:
            self._take_scope(found, line)
        elif isinstance(found, EntryLine) and stage is _Stage.ENTRIES:
            self._take_entry(found, line)
        elif isinstance(found, PolicyLine | SnapshotLine) and stage in (_Stage.ENTRIES, _Stage.RULES):
            self._stage = _Stage.RULES
            self._take_rule(found)
            self._tally.add(line + b"\n")
        elif isinstance(found, EndLine) and stage in (_Stage.ENTRIES, _Stage.RULES):
            self._take_end(found)
        else:
            raise BadLine(f"here should stand {stage.value}; lines are missing, repeated or in another order.")

    def _take_manifest(self, manifest: Manifest, line: bytes) -> None:
        if manifest.format != FORMAT:
            raise BadLine("this is no PAMSPEC export.")
        if manifest.format_version != FORMAT_VERSION:
            raise BadLine(
                f"the file has format version {manifest.format_version}, this service reads {FORMAT_VERSION};"
                " import it with a service that is as new."
            )
        if manifest.digest != manifest_digest(line):
            raise BadLine("the manifest has another digest; it was edited.")
        if manifest.spec_version != SPEC_VERSION:
            raise BadLine(f"the object model is not {SPEC_VERSION}.")
        if manifest.embeddings.included or manifest.embeddings.spaces:
            raise BadLine("embeddings are not taken; export with embeddings none.")
        self.manifest, self._stage = manifest, _Stage.SCOPE

    def _take_scope(self, scope: ScopeLine, line: bytes) -> None:
        assert self.manifest is not None
        document = strict_json.parse(bytes(scope.document))
        try:
            contracts.check("memory-scope", document)
        except contracts.ContractViolation:
            raise BadLine("the scope's document does not keep its contract.") from None
        if strict_json.dumps(document) != bytes(scope.document) or "policy" in document:
            raise BadLine("the scope's document is not written as the format writes it.")
        if document["scope_id"] != self.manifest.scope_id:
            raise BadLine("the scope is not the one of the manifest.")
        if scope.ledger_epoch != self.manifest.watermark.ledger_epoch:
            raise BadLine("the ledger epoch is not the one of the manifest.")
        self.scope, self._stage = scope, _Stage.ENTRIES
        self._tally = Tally(genesis(bytes.fromhex(scope.ledger_id)))
        self._tally.add(line + b"\n")

    def _take_entry(self, line: EntryLine, raw: bytes) -> None:
        assert self.manifest is not None
        entry = read_entry(line)
        event, tally = entry.event, self._tally
        if event.sequence != tally.sequence + 1:
            raise BadLine(f"here should stand entry {tally.sequence + 1}; lines are missing, repeated or reordered.")
        if entry_hash(tally.head_hash, entry.stored) != entry.entry_hash:
            raise BadLine("its hash does not follow from the entry before it; the event was edited.")
        if event.scope_id != self.manifest.scope_id:
            raise BadLine("the entry is of another scope.")
        if event.recorded_at < self._recorded_at:
            raise BadLine("the entry was recorded before the one in front of it.")
        check_event(entry)
        if entry.version is not None:
            check_version(entry.version, event)
        if entry.operation is not None:
            self._check_operation(entry, entry.operation)
        self._recorded_at = event.recorded_at
        source = entry.operation is not None and entry.operation.source_event is not None
        tally.count(
            event.sequence,
            entry.entry_hash,
            version=entry.version is not None,
            operation=entry.operation is not None,
            source=source,
        )
        tally.add(raw + b"\n")

    def _check_operation(self, entry: Entry, operation: OperationPart) -> None:
        version, event = entry.version, entry.event
        if version is None or operation.operation_id != event.operation_id:
            raise BadLine("the operation is not the one of its entry.")
        if short_hash("operation", operation.actor_id, operation.operation_id) != version.operation_hash:
            raise BadLine("the operation's hash is another one.")
        if operation.last_sequence < event.sequence:
            raise BadLine("the operation ended before its entry.")
        answer = bytes_or_none(operation.answer)
        if answer is not None:
            strict_json.parse(answer)
        _check_time(operation.created_at)
        self._last_operation_seq = max(self._last_operation_seq, operation.last_sequence)

    def _take_rule(self, found: PolicyLine | SnapshotLine) -> None:
        assert self.manifest is not None
        if isinstance(found, SnapshotLine):
            if found.snapshot_id <= self._snapshot_id:
                raise BadLine("a snapshot stands twice, or not in the order of its id.")
            self._snapshot_id = found.snapshot_id
            document = strict_json.parse(bytes(found.document))
            try:
                contracts.check("evaluation-snapshot", document)
            except contracts.ContractViolation:
                raise BadLine("the snapshot does not keep its contract.") from None
            if document["snapshot_id"] != found.snapshot_id or document["scope_id"] != self.manifest.scope_id:
                raise BadLine("the snapshot's document is another's.")
            _check_time(found.created_at)
            return
        self._policy_version += 1
        if self._snapshot_id:
            raise BadLine("policies stand before snapshots.")
        if found.policy_version != self._policy_version:
            raise BadLine(f"here should stand version {self._policy_version} of the policy.")
        policy = strict_json.parse(bytes(found.policy))
        parse_policy(policy)
        if strict_json.canonical(policy) != bytes(found.policy):
            raise BadLine("the policy is not written as the service writes it.")
        _check_time(found.changed_at)

    def _take_end(self, end: EndLine) -> None:
        assert self.manifest is not None
        own = self._tally.end()
        if end.digest != own.digest:
            raise BadLine("the lines before it have another digest; the file was edited or lines are missing.")
        if end != own:
            raise BadLine("its counts or its head are not those of the lines before it.")
        if self._last_operation_seq > end.sequence:
            raise BadLine("an operation ends behind the last entry.")
        if end.sequence < self.manifest.watermark.sequence:
            raise BadLine("the ledger ends before the position of the manifest.")
        self.end, self._stage = end, _Stage.DONE


def _decoded(line: bytes) -> Line:
    if len(line) > MAX_LINE:
        raise BadLine(f"it is longer than {MAX_LINE} bytes.")
    try:
        return decode_line(line)
    except msgspec.ValidationError:
        raise BadLine(_misfit(line)) from None
    except msgspec.DecodeError:
        raise BadLine("it is not one JSON document; the file was cut or edited.") from None


def _misfit(line: bytes) -> str:
    """What is wrong with a line of another form: a newer format says so in its manifest."""
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return "it is not one JSON document; the file was cut or edited."
    if isinstance(document, dict) and document.get("kind") == "manifest":
        version = document.get("format_version")
        if document.get("format") == FORMAT and isinstance(version, int) and version > FORMAT_VERSION:
            return (
                f"the file has format version {version}, this service reads {FORMAT_VERSION};"
                " import it with a service that is as new."
            )
    return "it is no line of this format; the file was edited, or this is no PAMSPEC export."


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
    document = strict_json.parse(entry.stored)
    payload = document["payload"]
    if not _is_plain(payload) or strict_json.dumps(document) != entry.stored:
        raise BadLine("the event is not written as the service writes it.")
    if not payload.keys() <= _payload_members(event.event_type):
        raise BadLine(f"the payload has a member that {event.event_type} does not have.")
    broken = contracts.events()[event.event_type].broken_presence(document)
    if broken is not None:
        raise BadLine(f"{event.event_type}: {broken}.")
    _check_time(event.recorded_at)
    made = event.event_type in _version_events()
    if made != (entry.version is not None):
        raise BadLine("the entry's version is missing." if made else "the entry makes no version.")


def check_version(version: Version, event: Event) -> None:
    """BadLine unless the version is the one that the event tells of, whole or erased."""
    metadata, facts = version.metadata, event.payload
    if version_digest(version.stored) != facts.version_digest:
        raise BadLine("the metadata have another digest than their event says; they were edited.")
    document = strict_json.parse(version.stored)
    if strict_json.canonical(document) != version.stored or not document.keys() <= _metadata_members():
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
        _check_time(time)
    _check_time(metadata.valid_until)
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
    document = strict_json.parse(version.private)
    try:
        _private.decode(version.private)
    except msgspec.ValidationError:
        raise BadLine("the private part has a member that no version has.") from None
    if strict_json.canonical(document) != version.private:
        raise BadLine("the private part is not written as the service writes it.")
    if version.content is not None:
        if len(version.content) > MAX_CONTENT:
            raise BadLine(f"the content is larger than {MAX_CONTENT} bytes.")
        strict_json.parse(version.content)
        if strict_json.compact(version.content) != version.content:
            raise BadLine("the content is not compact.")


def _check_time(text: str | None) -> None:
    if text is None:
        return
    try:
        if instants.wire(instants.parse(text)) == text:
            return
    except ValueError:
        pass
    raise BadLine("a time in it is none, or not in the form of the service.")


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
