"""What a verification checks of a whole ledger: its segments joined, its head, its anchors. Pure.

Invariant: a ledger verifies only if its entries are gap-free from 1 to the head, each hash follows from the one before
(`pamspec_common.ledger`), each entry says what its columns say, each version's metadata has the digest that its event
carries, each erasable part has the keyed digest that the metadata carries, a part that is missing was erased by a later
event that names the version, and what readers take for the current state follows from the versions. What the outbox or
the bus hold plays no part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pamspec_common.checkpoints import hash_text
from pamspec_common.ledger import genesis
from pamspec_common.merkle import Frontier
from pamspec_common.verification.anchors import Anchor, foreign
from pamspec_common.verification.rows import Problem, Stray, Tally, Trust
from pamspec_common.verification.segments import MAX_PROBLEMS, Segment


@dataclass(slots=True)
class Chain:
    """The state of a verification: give it the segments in order, then call `finish`."""

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
    _at: int = 0
    _hash: bytes = b""
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

    def marks(self, low: int, high: int) -> list[int]:
        """The sizes in this range that anchors name."""
        return [size for size in self._marks if low < size <= high]

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

    def found(self, sequence: int, kind: str, detail: str, version_id: str | None = None) -> None:
        """Note a problem."""
        self.problems.append(Problem(sequence, kind, detail, version_id))

    def join(self, segment: Segment) -> None:
        """Add the next segment, whose rows have all been fed."""
        if segment.first is not None:
            if segment.first != self._at + 1:
                self.found(self._at + 1, "entry_missing", "The ledger has a gap here.")
            elif segment.before != self._hash:
                self.found(segment.first, "chain_broken", "The entry in front has changed meanwhile.")
            if len(self.problems) == self._known and segment.good is not None:
                self.entries, self.head_hash = segment.good
            self._at, self._hash = segment.at, segment.last_hash
        self.problems += segment.problems[: MAX_PROBLEMS - len(self.problems)]
        self.versions += segment.versions
        self.erased_versions += segment.erased_versions
        self._followers += segment.followers
        self._replaced += segment.replaced
        self._versions_seen += segment.versions_seen
        self._states_seen += segment.states_seen
        for size, mark in sorted(segment.marks.items()):
            if mark is not None:
                self._compare(size, *mark)
        self.tree.graft(segment.tree)

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

    def _compare(self, size: int, head_hash: bytes, tree: Frontier) -> None:
        """What the ledger is at the size of some anchors; `tree` is that of the segment up to there."""
        whole = self.tree.copy()
        whole.graft(tree)
        for anchor in self._marks[size]:
            different = anchor.compare(head_hash, whole.root())
            if different is not None:
                self.found(size, "anchor_differs", different)
