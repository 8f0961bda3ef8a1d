"""The export format: a scope as lines of JSON, from which it can be built again byte for byte.

    manifest, scope, entry ..., policy ..., schema ..., hold ..., held ..., snapshot ..., end

The schemas of the lines are contracts/schemas/export-*.json.

Everything that may differ between two exports of the same state stands in the manifest; the digest at the end covers
all lines between the two. The stored bytes of events, metadata, private halves and contents stand in their lines as
they are, because the hashes are over these bytes. Invariant: a line has one form, so that writing what was read gives
the same bytes.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import msgspec

from pamspec_common.documents import Position, Retention, Sequence
from pamspec_common.envelope import SPEC_VERSION
from pamspec_common.ids import Id

FORMAT = "pamspec-export"
FORMAT_VERSION = 1
MEDIA_TYPE = "application/x-ndjson"
MAX_LINE = 8 * 1024 * 1024
"""The longest line, far beyond the largest envelope with its event."""

Hash = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
HalfHash = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
Salt = Annotated[str, msgspec.Meta(pattern=r"^(?:[0-9a-f]{2}){16,64}\Z")]
Digest = Annotated[str, msgspec.Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
Count = Annotated[int, msgspec.Meta(ge=0)]
Epoch = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Embeddings = Literal["none", "reference", "include"]
MaybeRaw = msgspec.Raw | msgspec.UnsetType


class _Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, tag_field="kind"):
    """A line; its members are written in the order in which they stand here."""


class Watermark(msgspec.Struct, forbid_unknown_fields=True):
    """A position of a ledger."""

    ledger_epoch: Epoch
    sequence: Position


class SpaceCount(msgspec.Struct, forbid_unknown_fields=True):
    """How many vectors, of how many objects, a scope has in a space."""

    embedding_space_id: Id
    objects: Annotated[int, msgspec.Meta(ge=0)]
    vectors: Annotated[int, msgspec.Meta(ge=0)]


class EmbeddingsTold(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What was asked of embeddings and what came."""

    requested: Embeddings
    included: bool
    spaces: list[dict[str, Any]]
    counts: list[SpaceCount] = []


class Manifest(_Line, tag="manifest"):
    """The first line."""

    format: str
    format_version: int
    spec_version: str
    scope_id: Id
    watermark: Watermark
    exported_at: str
    exported_by: Id
    embeddings: EmbeddingsTold
    digest: Digest


class ScopeLine(_Line, tag="scope"):
    """The second line."""

    document: msgspec.Raw
    ledger_id: HalfHash
    ledger_epoch: Epoch


class VersionPart(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A stored version; what is missing was erased."""

    operation_hash: HalfHash
    metadata: msgspec.Raw
    salt: Salt | None = None
    private: MaybeRaw = msgspec.UNSET
    content: MaybeRaw = msgspec.UNSET


class SourcePart(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What is remembered of a source event (K6)."""

    source_hash: HalfHash
    salt: Salt | None = None
    fingerprint: Hash | None = None


class OperationPart(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What is remembered of the operation that a version answers."""

    operation: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z_]*\Z", max_length=64)]
    operation_id: Id
    actor_id: Id
    status: Literal[200, 201]
    last_sequence: Sequence
    created_at: str
    key_hash: HalfHash | None = None
    salt: Salt | None = None
    fingerprint: Hash | None = None
    answer: MaybeRaw = msgspec.UNSET
    source_event: SourcePart | None = None


class EntryLine(_Line, tag="entry"):
    """A ledger entry with what it made."""

    entry_hash: Hash
    event: msgspec.Raw
    version: VersionPart | None = None
    operation: OperationPart | None = None


_Basis = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*\Z")]


class PolicyLine(_Line, tag="policy"):
    """A version of the scope's policy."""

    policy_version: Annotated[int, msgspec.Meta(ge=1)]
    policy: msgspec.Raw
    actor_id: Id
    operation_id: Id
    changed_at: str
    policy_basis: _Basis | None = None
    authenticated_as: Id | None = None


class SchemaLine(_Line, tag="schema"):
    """A schema of content that the scope has."""

    schema_id: Annotated[str, msgspec.Meta(min_length=1, max_length=2048, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
    document: msgspec.Raw
    actor_id: Id
    operation_id: Id
    registered_at: str
    authenticated_as: Id | None = None


class HoldLine(_Line, tag="hold"):
    """A legal hold over the scope or a type of objects."""

    hold_id: Id
    policy_basis: _Basis
    actor_id: Id
    operation_id: Id
    placed_at: str
    placed_sequence: Position
    undone: bool
    object_type: _Basis | None = None
    authenticated_as: Id | None = None
    released_at: str | None = None
    release_basis: _Basis | None = None
    released_by: Id | None = None
    release_operation_id: Id | None = None


class HeldLine(_Line, tag="held"):
    """An object that a hold has put on hold, and its retention before."""

    hold_id: Id
    object_id: Id
    retention_state: Retention


class SnapshotLine(_Line, tag="snapshot"):
    """A sealed snapshot of the scope."""

    snapshot_id: Id
    ledger_epoch: Epoch
    watermark: Position
    gives_clock: bool
    created_at: str
    document: msgspec.Raw
    evaluation_run_id: Id | None = None


class EndLine(_Line, tag="end"):
    """The last line."""

    sequence: Position
    head_hash: Hash
    entries: Count
    versions: Count
    operations: Count
    source_events: Count
    digest: Digest


class FailureLine(_Line, tag="failure"):
    """The last line of an export that could not go on."""

    error: dict[str, Any]


Line = (
    Manifest
    | ScopeLine
    | EntryLine
    | PolicyLine
    | SchemaLine
    | HoldLine
    | HeldLine
    | SnapshotLine
    | EndLine
    | FailureLine
)

_decoder = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder()


def decode_line(line: bytes) -> Line:
    """A line without its line feed; msgspec.DecodeError when it is none, msgspec.ValidationError when it is another."""
    return _decoder.decode(line)


def encode_line(line: Line) -> bytes:
    """The one form of a line, with its line feed."""
    return _encoder.encode(line) + b"\n"


def manifest_line(
    scope_id: str, watermark: Watermark, exported_at: str, exported_by: str, embeddings: EmbeddingsTold
) -> bytes:
    """The first line of an export."""
    manifest = Manifest(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        spec_version=SPEC_VERSION,
        scope_id=scope_id,
        watermark=watermark,
        exported_at=exported_at,
        exported_by=exported_by,
        embeddings=embeddings,
        digest="",
    )
    manifest.digest = manifest_digest(encode_line(manifest))
    return encode_line(manifest)


def manifest_digest(line: bytes) -> str:
    """SHA-256 of a manifest without its digest, which stands last."""
    body, mark, _ = line.rpartition(b',"digest":"')
    return "sha256:" + hashlib.sha256(body + b"}" if mark else line).hexdigest()


def hexadecimal(value: bytes | None) -> str | None:
    """Bytes that may be missing as text."""
    return None if value is None else value.hex()


def raw_or_unset(value: bytes | None) -> MaybeRaw:
    """JSON bytes that may be missing."""
    return msgspec.UNSET if value is None else msgspec.Raw(value)


def bytes_or_none(value: MaybeRaw) -> bytes | None:
    """The bytes of a member that may be missing."""
    return None if isinstance(value, msgspec.UnsetType) else bytes(value)


class Tally:
    """What the end of an export says: counts, the head, and the digest of the lines so far."""

    def __init__(self, root: bytes) -> None:
        self.sequence = self.entries = self.versions = self.operations = self.source_events = 0
        self.head_hash = root
        self._digest = hashlib.sha256()

    def add(self, lines: bytes) -> None:
        """Cover further lines, with their line feeds."""
        self._digest.update(lines)

    def count(self, sequence: int, entry_hash: bytes, *, version: bool, operation: bool, source: bool) -> None:
        """Count an entry."""
        self.sequence, self.head_hash = sequence, entry_hash
        self.entries += 1
        self.versions += version
        self.operations += operation
        self.source_events += source

    def end(self) -> EndLine:
        """The last line."""
        return EndLine(
            sequence=self.sequence,
            head_hash=self.head_hash.hex(),
            entries=self.entries,
            versions=self.versions,
            operations=self.operations,
            source_events=self.source_events,
            digest="sha256:" + self._digest.hexdigest(),
        )
