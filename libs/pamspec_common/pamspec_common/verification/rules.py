"""What a verification of a ledger checks, entry by entry. Pure: whoever reads the rows feeds them here.

Invariant: a ledger verifies only if its entries are gap-free from 1 to the head, each hash follows from the one before
(`pamspec_common.ledger`), each entry says what its columns say, each version's metadata has the digest that its event
carries, each erasable part has the keyed digest that the metadata carries, a part that is missing was erased by a later
event that names the version, and what readers take for the current state follows from the versions. What the outbox or
the bus hold plays no part.

A check goes on behind a problem, taking over what is stored, so that one edit is not reported at every later entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from pamspec_common.checkpoints import hash_text
from pamspec_common.ledger import Keyed, entry_hash, genesis, version_digest
from pamspec_common.merkle import Frontier, leaf_hashes
from pamspec_common.verification.anchors import Anchor, foreign
from pamspec_common.verification.rows import ErasedVersion, Problem, Row, Stray, Tally, Trust
from pamspec_common.verification.stored import Event, Metadata, decode_event, decode_metadata

MAX_PROBLEMS = 100
HEAD_SEQ = 9223372036854775807
"""Where the span of a version ends that was not replaced."""
COMPANIONS = frozenset({"tool_invoked", "tool_completed", "working_memory_promoted", "embedding_generated"})
"""Events that name a version which another entry brought."""


@dataclass(slots=True)
class Chain:
    """The state of a verification: feed it rows in order, then call `finish`."""

    trust: Trust
    anchors: Sequence[Anchor] = ()
    """What was signed of the ledger and kept outside the store, read before `trust` was."""
    entries: int = 0
    """Entries in order so far, or up to the first problem."""
    versions: int = 0
    """Versions that were compared with their entries."""
    erased_versions: int = 0
    head_hash: bytes = b""
    """The hash of the last of `entries`."""
    problems: list[Problem] = field(default_factory=list)
    tree: Frontier = field(default_factory=Frontier)
    erased: list[ErasedVersion] = field(default_factory=list)
    """Versions of the rows since `take_erased` that miss an erasable part."""
    _at: int = 0
    _hash: bytes = b""
    _recorded_at: datetime | None = None
    _followers: int = 0
    _replaced: int = 0
    _versions_seen: int = 0
    _states_seen: int = 0
    _known: int = 0
    _marks: dict[int, list[Anchor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        trust = self.trust
        self._hash = self.head_hash = genesis(trust.ledger_id)
        for anchor, detail in foreign(self.anchors, trust.scope_id, trust.ledger_id, trust.ledger_epoch):
            self.found(anchor.size, f"anchor_{anchor.status}", detail)
        self._known = len(self.problems)
        for anchor in self.anchors:
            if anchor.status == "not_reached":
                self._marks.setdefault(anchor.size, []).append(anchor)

    @property
    def full(self) -> bool:
        """Whether enough problems were found to stop."""
        return len(self.problems) >= MAX_PROBLEMS

    def document(self) -> dict[str, Any]:
        """What was found, as it is answered (verify_ledger); it carries no content."""
        problems = [problem.document() for problem in self.problems]
        return {
            "scope_id": self.trust.scope_id,
            "ok": not problems,
            "entries": self.entries,
            "versions": self.versions,
            "erased_versions": self.erased_versions,
            "first_problem": problems[0] if problems else None,
            "problems": problems,
            "head_hash": hash_text(self.head_hash),
            "anchors": [anchor.document() for anchor in self.anchors],
        }

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
            if row.sequence != self._at + 1:
                self.found(self._at + 1, "entry_missing", "The ledger has a gap here.")
            self._at = row.sequence
            if entry_hash(self._hash, row.event) != row.entry_hash:
                detail = "The entry's hash does not follow from what stands before it."
                self.found(row.sequence, "chain_broken", detail)
            self._hash = row.entry_hash
            hashes.append(row.entry_hash)
            if row.sequence in self._marks:
                self.tree.extend(leaf_hashes(hashes))
                hashes.clear()
                self._compare(row.sequence)
            self._check_entry(row)
            if len(self.problems) == self._known:
                self.entries, self.head_hash = row.sequence, row.entry_hash
            elif self.full:
                break
        self.tree.extend(leaf_hashes(hashes))

    def finish(self, tally: Tally) -> bool:
        """Check what the scope claims as its head, after the last row up to it.

        False when there are versions or states that stand at no entry.
        """
        trust = self.trust
        if self._at != trust.last_seq:
            self.found(self._at + 1, "entry_missing", "The ledger ends before the scope's head.")
        elif self._hash != trust.last_hash:
            self.found(trust.last_seq, "head_differs", "The head has another hash than the last entry.")
        for size, anchors in self._marks.items():
            if size > self._at:
                for anchor in anchors:
                    self.found(size, "anchor_beyond", anchor.beyond(self._at))
        if not self.problems and self._followers != self._replaced:
            self.found(trust.last_seq, "state_differs", "A version is replaced and counts as the head.")
        return tally == (self._versions_seen, self._states_seen)

    def strays(self, strays: Iterable[Stray]) -> None:
        """Note what stands at no entry."""
        for stray in strays:
            if stray.is_version:
                detail = "A version stands here without its ledger entry."
                self.found(stray.sequence, "entry_missing", detail, stray.version_id)
            else:
                self.found(
                    stray.sequence, "state_differs", "A state stands here that no version has.", stray.version_id
                )

    def _compare(self, size: int) -> None:
        """The tree has grown to the size of some anchors."""
        root = self.tree.root()
        for anchor in self._marks[size]:
            different = anchor.compare(self._hash, root)
            if different is not None:
                self.found(size, "anchor_differs", different)

    def _check_entry(self, row: Row) -> None:
        self._versions_seen += row.metadata is not None
        self._states_seen += row.to_seq is not None
        try:
            event = decode_event(row.event)
        except msgspec.DecodeError:
            self.found(row.sequence, "entry_differs", "The entry's bytes are no event.")
            return
        different = _entry_differs(row, event, self.trust.scope_id)
        if different is not None:
            self.found(row.sequence, "entry_differs", f"The entry's {different} differs from its columns or its scope.")
        if self._recorded_at is not None and event.recorded_at < self._recorded_at:
            self.found(row.sequence, "time_falls", "The entry was recorded before the one in front of it.")
        self._recorded_at = event.recorded_at
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
        if metadata.version_id != row.version_id or metadata.sequence != row.version_seq:
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
            self._followers += 1
        if to_seq != HEAD_SEQ:
            self._replaced += to_seq <= self.trust.last_seq
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
