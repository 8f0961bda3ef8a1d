"""The rows that one transaction will write, one list per table, every value in the text form that it travels in.

A column travels as one text, its values joined by SEPARATOR: the driver inspects every element of an array, and a text
not at all. No value can hold the separator or the mark for null: ids, types and names are checked
against patterns without control characters, JSON escapes them, bytes travel as hexadecimal.

An atomic batch decides into rows of its own, which `absorb` adds only when all of it succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pamspec_common.delegation.grants import Grant
    from pamspec_write.model.facts import Tally

SEPARATOR = "\x1f"
NULL = "\x1e"
HEAD_SEQ = "9223372036854775807"

Row = list[str]
SnapshotRow = tuple[int, str, str, str | None, bool, int, int, bytes, datetime]

VERSION_WIDTH = 27
LEDGER_WIDTH = 8
RECORD_WIDTH = 14
SOURCE_WIDTH = 5
CLOSING_WIDTH = 3
ENDS_WIDTH = 4

VERSION_OBJECT, VERSION_TO = 3, 2
VERSION_OPERATION, VERSION_SALT, VERSION_CONTENT, VERSION_PRIVATE, VERSION_PROJECTION = 8, 9, 10, 11, 26
RECORD_SALT, RECORD_FINGERPRINT = 7, 8
SOURCE_OPERATION, SOURCE_SALT, SOURCE_FINGERPRINT = 2, 3, 4

NO_BASIS = "none was asked for"
"""The basis of a change that its operation asks none for."""
NO_ENDS = [NULL] * ENDS_WIDTH


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A version of a scope's policy."""

    scope_key: int
    policy_version: int
    policy: bytes
    policy_basis: str | None
    actor_id: str
    authenticated_as: str | None
    operation_id: str
    changed_at: str


@dataclass(frozen=True, slots=True)
class SchemaRow:
    """A schema that was registered."""

    scope_key: int
    schema_id: str
    document: bytes
    digest: bytes
    actor_id: str
    authenticated_as: str | None
    operation_id: str
    registered_at: str


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A grant that was made."""

    tenant_id: str
    grant: Grant
    ancestors: list[str]
    granted_at: str


@dataclass(frozen=True, slots=True)
class HoldRow:
    """A legal hold that was placed."""

    scope_key: int
    hold_id: str
    object_type: str | None
    policy_basis: str
    actor_id: str
    authenticated_as: str | None
    operation_id: str
    placed_at: str
    placed_seq: int


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """A legal hold that was released."""

    scope_key: int
    hold_id: str
    released_at: str
    release_basis: str
    released_by: str
    release_operation_id: str


@dataclass(frozen=True, slots=True)
class HeldRow:
    """An object that the job has put on hold, and its retention before."""

    scope_key: int
    object_id: str
    hold_id: str
    retention_state: str


@dataclass(frozen=True, slots=True)
class ErasureRow:
    """An erasure that was made: what its receipt is about."""

    scope_key: int
    erasure_id: str
    tenant_id: str
    kind: str
    """d: delete, r: redact, f: forget."""
    subject_kind: str
    subject_id: str
    part_of: str | None
    """The forget that it belongs to."""
    operation_id: str
    actor_id: str
    position: int
    """The ledger sequence of its event."""
    erased: list[tuple[int, int]]
    """Ranges of version sequences, both ends included."""
    kept: bytes
    """What the object has left: no scan looks for any of it."""


@dataclass(frozen=True, slots=True)
class AdministrationRow:
    """A change of what decides, as the audit log tells of it; a scope_key of 0 stands for the whole tenant."""

    tenant_id: str
    scope_key: int
    operation: str
    operation_id: str
    actor_id: str
    authenticated_as: str | None
    policy_basis: str
    detail: str
    policy_version: str
    subject: str | None = None


@dataclass(slots=True)
class Rows:
    """Everything that one transaction writes, but the scopes' heads."""

    versions: dict[tuple[int, int], Row] = field(default_factory=dict)
    ends: dict[tuple[int, int], Row] = field(default_factory=dict)
    """What the versions of relationships join: source, target, the target's scope, directionality."""
    closings: list[tuple[int, int, int]] = field(default_factory=list)
    ledger: list[Row] = field(default_factory=list)
    traces: list[str] = field(default_factory=list)
    """The trace contexts of ledger rows, as far as any has one; the rows beyond have none."""
    records: dict[tuple[int, bytes], Row] = field(default_factory=dict)
    sources: list[Row] = field(default_factory=list)
    erasures: list[tuple[int, str, int]] = field(default_factory=list)
    """(scope_key, object_id, before): the object's versions before that ledger sequence lose what is erasable."""
    receipts: list[ErasureRow] = field(default_factory=list)
    snapshots: list[SnapshotRow] = field(default_factory=list)
    """Sealed snapshots, in the order of the columns of queries.snapshots.INSERT_SNAPSHOTS_SQL."""
    rules: dict[int, int] = field(default_factory=dict)
    """By scope_key: the version of the rules that changed in this transaction."""
    administration: list[AdministrationRow] = field(default_factory=list)
    policies: list[PolicyRow] = field(default_factory=list)
    chosen: list[tuple[int, int]] = field(default_factory=list)
    """(scope_key, ledger_seq): stored versions that lose what is erasable, one by one."""
    schemas: list[SchemaRow] = field(default_factory=list)
    holds: list[HoldRow] = field(default_factory=list)
    releases: list[ReleaseRow] = field(default_factory=list)
    held: list[HeldRow] = field(default_factory=list)
    passed_on: list[tuple[int, str, str]] = field(default_factory=list)
    """(scope_key, object_id, hold_id): a held object that another hold covers from now on."""
    let_go: list[tuple[int, str]] = field(default_factory=list)
    """(scope_key, object_id): objects that no hold's job is about any more."""
    grants: list[GrantRow] = field(default_factory=list)
    revocations: list[tuple[int, str, str]] = field(default_factory=list)
    """(scope_key, delegation_id, revoked_at): grants that ended."""
    uses: dict[tuple[int, str], int] = field(default_factory=dict)
    """(scope_key, delegation_id) -> how often a grant with a limit was used."""
    tallies: dict[tuple[int, str, str], Tally] = field(default_factory=dict)
    """(scope_key, delegation_id, operation) -> the uses that events have yet to tell of."""
    authorized: set[int] = field(default_factory=set)
    """The scopes in which somebody may do more or less than before."""
    freed: dict[int, int] = field(default_factory=dict)
    """By scope_key: bytes of content that came and went in this transaction."""
    touched: set[int] = field(default_factory=set)
    """The scopes that have a row here."""
    partitions: set[int] = field(default_factory=set)
    """The partitions whose relay has something to send."""

    def end_span(self, scope_key: int, from_seq: int, to_seq: int) -> None:
        """The version that began at `from_seq` is the head no longer."""
        version = self.versions.get((scope_key, from_seq))
        if version is None:
            self.closings.append((scope_key, from_seq, to_seq))
        else:
            version[VERSION_TO] = str(to_seq)

    def trace(self, since: int, traceparent: str) -> None:
        """Let the ledger rows from `since` on carry a trace context."""
        self.traces += [NULL] * (since - len(self.traces))
        self.traces += [traceparent] * (len(self.ledger) - since)

    def free(self, scope_key: int, content: str) -> None:
        """Content of this transaction goes again before it was ever stored."""
        if content != NULL:
            self.freed[scope_key] = self.freed.get(scope_key, 0) + len(content.encode())

    def erase_before(self, scope_key: int, object_id: str, before: int) -> None:
        """Erase an object's earlier versions, those of this batch included."""
        self.erasures.append((scope_key, object_id, before))
        for (key, sequence), version in self.versions.items():
            if key == scope_key and sequence < before and version[VERSION_OBJECT] == object_id:
                self.free(scope_key, version[VERSION_CONTENT])
                for column in (VERSION_SALT, VERSION_CONTENT, VERSION_PRIVATE, VERSION_PROJECTION):
                    version[column] = NULL
                self._erase_record(scope_key, version[VERSION_OPERATION])

    def erase_versions(self, scope_key: int, sequences: Iterable[int]) -> None:
        """Erase versions that are stored already; nobody can name one that this transaction makes."""
        self.chosen += [(scope_key, sequence) for sequence in sorted(sequences)]

    def _erase_record(self, scope_key: int, operation: str) -> None:
        record = self.records.get((scope_key, bytes.fromhex(operation)))
        if record is not None:
            record[RECORD_SALT] = record[RECORD_FINGERPRINT] = NULL
        for source in self.sources:
            if source[SOURCE_OPERATION] == operation and source[0] == str(scope_key):
                source[SOURCE_SALT] = source[SOURCE_FINGERPRINT] = NULL

    def absorb(self, other: Rows) -> None:
        """Add the rows of an atomic batch that succeeded."""
        for scope_key, from_seq, to_seq in other.closings:
            self.end_span(scope_key, from_seq, to_seq)
        for erasure in other.erasures:
            self.erase_before(*erasure)
        self.chosen += other.chosen
        for scope_key, freed in other.freed.items():
            self.freed[scope_key] = self.freed.get(scope_key, 0) + freed
        self.versions |= other.versions
        self.ends |= other.ends
        self.ledger += other.ledger
        self.records |= other.records
        self.sources += other.sources
        self.receipts += other.receipts
        self.snapshots += other.snapshots
        self.rules |= other.rules
        self.policies += other.policies
        self.schemas += other.schemas
        self.holds += other.holds
        self.releases += other.releases
        self.held += other.held
        self.passed_on += other.passed_on
        self.let_go += other.let_go
        self.grants += other.grants
        self.revocations += other.revocations
        for place, uses in other.uses.items():
            self.uses[place] = self.uses.get(place, 0) + uses
        self.tallies |= other.tallies
        self.authorized |= other.authorized
        self.touched |= other.touched
        self.partitions |= other.partitions

    def arguments(self) -> list[str]:
        """The columns of every table, in the order of queries.commit.WRITE_SQL."""
        closings = [[str(value) for value in closing] for closing in self.closings]
        return [
            *_columns(VERSION_WIDTH, self.versions.values()),
            *_columns(LEDGER_WIDTH, self.ledger),
            *_columns(RECORD_WIDTH, self.records.values()),
            *_columns(SOURCE_WIDTH, self.sources),
            *_columns(CLOSING_WIDTH, closings),
            *_columns(ENDS_WIDTH, self._ends()),
        ]

    def _ends(self) -> Iterable[Row]:
        """One row for each version, or none at all where none is a relationship's."""
        if not self.ends:
            return ()
        return [self.ends.get(key, NO_ENDS) for key in self.versions]


def _columns(width: int, rows: Iterable[Row]) -> list[str]:
    columns = [SEPARATOR.join(column) for column in zip(*rows, strict=True)]
    return columns or [""] * width


def or_null(value: str | None) -> str:
    """The text of a value that may be missing."""
    return NULL if value is None else value


def hex_or_null(value: bytes | None) -> str:
    """The hexadecimal text of bytes that may be missing."""
    return NULL if value is None else value.hex()


def text_or_null(value: bytes | None) -> str:
    """The text of UTF-8 bytes that may be missing."""
    return NULL if value is None else value.decode()
