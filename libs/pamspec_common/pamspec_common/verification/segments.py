"""What a verification checks of a run of entries, row by row. Pure: whoever reads the rows feeds them here.

A check goes on behind a problem, taking over what is stored, so that one edit is not reported at every later entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from pamspec_common.ledger import Keyed, entry_hash, version_digest
from pamspec_common.merkle import Frontier, leaf_hashes
from pamspec_common.verification.rows import ErasedVersion, Problem, Row, Trust
from pamspec_common.verification.stored import Event, Metadata, decode_event, decode_metadata

MAX_PROBLEMS = 100
HEAD_SEQ = 9223372036854775807
"""Where the span of a version ends that was not replaced."""
COMPANIONS = frozenset({"tool_invoked", "tool_completed", "working_memory_promoted", "embedding_generated"})
"""Events that name a version which another entry brought."""


@dataclass(slots=True)
class Segment:
    """The check of the entries after `low` up to `high`: feed it their rows in order.

    Segments of a ledger can be checked in any order, also in processes of their own; `Chain` joins them.
    """

    trust: Trust
    low: int
    high: int
    before: bytes
    """The chain hash at `low`, as it is stored."""
    recorded_at: datetime | None = None
    """When the entry at `low` was recorded, then that of the last one fed."""
    marks: dict[int, tuple[bytes, Frontier] | None] = field(default_factory=dict)
    """Sizes whose chain hash and tree are wanted, and these."""
    problems: list[Problem] = field(default_factory=list)
    first: int | None = None
    at: int = 0
    last_hash: bytes = b""
    good: tuple[int, bytes] | None = None
    """The last entry before any problem, and its hash."""
    versions: int = 0
    erased_versions: int = 0
    followers: int = 0
    replaced: int = 0
    versions_seen: int = 0
    states_seen: int = 0
    tree: Frontier = field(default_factory=Frontier)
    """Of these entries alone."""
    erased: list[ErasedVersion] = field(default_factory=list)
    """Versions of the rows since `take_erased` that miss an erasable part."""

    def __post_init__(self) -> None:
        self.at, self.last_hash = self.low, self.before

    @property
    def full(self) -> bool:
        """Whether enough problems were found to stop."""
        return len(self.problems) >= MAX_PROBLEMS

    def take_erased(self) -> list[ErasedVersion]:
        """The versions that still need an erasing event."""
        found, self.erased = self.erased, []
        return found

    def found(self, sequence: int, kind: str, detail: str, version_id: str | None = None) -> None:
        """Note a problem."""
        self.problems.append(Problem(sequence, kind, detail, version_id))

    def feed(self, rows: Sequence[Row]) -> None:
        """Check the next rows."""
        hashes: list[bytes] = []
        for row in rows:
            if self.first is None:
                self.first = row.sequence
            elif row.sequence != self.at + 1:
                self.found(self.at + 1, "entry_missing", "The ledger has a gap here.")
            self.at = row.sequence
            if entry_hash(self.last_hash, row.event) != row.entry_hash:
                detail = "The entry's hash does not follow from what stands before it."
                self.found(row.sequence, "chain_broken", detail)
            self.last_hash = row.entry_hash
            hashes.append(row.entry_hash)
            if row.sequence in self.marks:
                self.tree.extend(leaf_hashes(hashes))
                hashes.clear()
                self.marks[row.sequence] = row.entry_hash, self.tree.copy()
            self._check_entry(row)
            if not self.problems:
                self.good = row.sequence, row.entry_hash
            elif self.full:
                break
        self.tree.extend(leaf_hashes(hashes))

    def _check_entry(self, row: Row) -> None:
        self.versions_seen += row.metadata is not None
        self.states_seen += row.to_seq is not None
        try:
            event = decode_event(row.event)
        except msgspec.DecodeError:
            self.found(row.sequence, "entry_differs", "The entry's bytes are no event.")
            return
        different = _entry_differs(row, event, self.trust.scope_id)
        if different is not None:
            self.found(row.sequence, "entry_differs", f"The entry's {different} differs from its columns or its scope.")
        if self.recorded_at is not None and event.recorded_at < self.recorded_at:
            self.found(row.sequence, "time_falls", "The entry was recorded before the one in front of it.")
        self.recorded_at = event.recorded_at
        if row.metadata is not None:
            self._check_version(row, event, row.metadata)
        elif event.payload.version_digest is not None and event.event_type not in COMPANIONS:
            self.found(row.sequence, "version_missing", "The entry's version is missing.", event.version_id)
        elif row.to_seq is not None:
            self.found(row.sequence, "state_differs", "A state stands here that no version has.")

    def _check_version(self, row: Row, event: Event, stored: bytes) -> None:
        digest = event.payload.version_digest
        if digest is None or event.version_id != row.version_id or event.event_type in COMPANIONS:
            self.found(row.sequence, "version_foreign", "The entry here tells of no such version.", row.version_id)
            return
        if version_digest(stored) != digest:
            self.found(row.sequence, "metadata_differs", "The version's metadata has another digest.", row.version_id)
            return
        metadata = decode_metadata(stored)
        subject_id = metadata.object_id or metadata.relationship_id or metadata.delegation_id
        if (metadata.version_id, metadata.sequence, subject_id) != (row.version_id, row.version_seq, row.object_id):
            self.found(row.sequence, "metadata_differs", "The version's columns and metadata differ.", row.version_id)
            return
        self.versions += 1
        self._check_parts(row, metadata)
        self._check_state(row, metadata)

    def _check_parts(self, row: Row, metadata: Metadata) -> None:
        missing = False
        keyed = None if row.salt is None else Keyed(row.salt)
        for name, value, digest in (
            ("content", row.content, metadata.content_digest),
            ("private", row.private, metadata.private_digest),
        ):
            if value is None:
                missing = missing or digest is not None
            elif keyed is None or digest != keyed.digest(name, value):
                self.found(row.sequence, f"{name}_differs", f"The version's {name} has another digest.", row.version_id)
        if missing:
            assert row.object_id is not None
            assert row.version_seq is not None
            assert row.version_id is not None
            self.erased_versions += 1
            if row.salt is not None or row.content is not None or row.private is not None:
                self.found(row.sequence, "half_erased", "The version is erased in part only.", row.version_id)
            self.erased.append(ErasedVersion(row.sequence, row.object_id, row.version_seq, row.version_id))

    def _check_state(self, row: Row, metadata: Metadata) -> None:
        """What readers take for the version's state and for the time that it was the head."""
        to_seq, named = row.to_seq, metadata.object_type or metadata.relationship_type
        if to_seq is None or not row.same or to_seq <= row.sequence:
            self.found(row.sequence, "state_differs", "The version's state is missing or another's.", row.version_id)
            return
        if row.version_seq != 1:
            self.followers += 1
        if to_seq != HEAD_SEQ:
            self.replaced += to_seq <= self.trust.last_seq
            if not row.is_next:
                detail = "The version counts as replaced where it was not."
                self.found(row.sequence, "state_differs", detail, row.version_id)
        if (named is not None and named != row.object_type) or (
            metadata.lifecycle_state is not None
            and (
                metadata.lifecycle_state,
                metadata.availability_state,
                metadata.retention_state,
                metadata.validation_state,
            )
            != (row.lifecycle_state, row.availability_state, row.retention_state, row.validation_state)
        ):
            detail = "The version's type or states differ from its metadata."
            self.found(row.sequence, "state_differs", detail, row.version_id)


def _entry_differs(row: Row, event: Event, scope_id: str) -> str | None:
    """The first column that says something else than the entry's bytes."""
    if event.scope_id != scope_id:
        return "scope_id"
    if event.sequence != row.sequence:
        return "sequence"
    if event.event_id != row.event_id:
        return "event_id"
    if event.event_type != row.event_type:
        return "event_type"
    if event.recorded_at != row.recorded_at:
        return "recorded_at"
    subject = event.object_id or event.relationship_id
    return "subject_id" if subject is not None and subject != row.subject_id else None
