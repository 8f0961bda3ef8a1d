"""What a scope's ledger proves: order, chain and content, checked entry by entry.

Invariant: an entry is right when its number follows the one before, its hash follows from the hash before and its own
bytes, and the version that it tells of has the digest that it names. Content may be missing only where a later entry
tells of its erasure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from pamspec_common.instants import wire
from pamspec_common.ledger import entry_hash, genesis, keyed_digest, version_digest

ERASING = frozenset({"object_redacted", "object_deleted"})
COMPANIONS = frozenset({"tool_invoked", "tool_completed", "working_memory_promoted", "embedding_generated"})
"""Events that name a version which another entry brought."""


class Row(Protocol):
    """A row by the names of its columns."""

    def __getitem__(self, name: str, /) -> Any:
        """The value of a column."""


@dataclass(frozen=True)
class Finding:
    """Something that is not as the ledger says."""

    sequence: int
    what: str


@dataclass(frozen=True)
class _Erased:
    subject_id: str
    version_seq: int
    sequence: int


@dataclass
class ScopeCheck:
    """The check of one scope; feed it every entry in order, then call `finish`."""

    scope_id: str
    ledger_id: bytes
    entries: int = 0
    versions: int = 0
    erased: int = 0
    findings: list[Finding] = field(default_factory=list)
    _hash: bytes = b""
    _recorded_at: str = ""
    _missing: list[_Erased] = field(default_factory=list)
    _erasures: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._hash = genesis(self.ledger_id)

    def entry(self, row: Row) -> None:
        """One ledger row, with its version's row and erasable row where it has them."""
        self.entries += 1
        sequence: int = row["sequence"]
        if sequence != self.entries:
            self._found(sequence, f"follows entry {self.entries - 1}")
            self.entries = sequence
        self._hash = entry_hash(self._hash, row["event"])
        if self._hash != row["entry_hash"]:
            self._found(sequence, "the chain breaks here")
            self._hash = row["entry_hash"]
        event = orjson.loads(row["event"])
        self._compare(row, event)
        self._note_erasure(sequence, event)
        if row["metadata"] is not None:
            self._version(row, event)
        elif "version_digest" in event["payload"] and event["event_type"] not in COMPANIONS:
            self._found(sequence, "its version is gone")

    def finish(self, last_seq: int, last_hash: bytes, stray_versions: int) -> None:
        """The end: the scope's head, and versions that no entry tells of."""
        if (self.entries, self._hash) != (last_seq, last_hash):
            self._found(self.entries, f"the scope's head says {last_seq} entries, or another last hash")
        if stray_versions:
            self._found(0, f"{stray_versions} versions have no entry")
        for gone in self._missing:
            if not self._is_erased(gone):
                self._found(gone.sequence, "content or provenance is missing and no entry tells of its erasure")

    def _found(self, sequence: int, what: str) -> None:
        self.findings.append(Finding(sequence, what))

    def _compare(self, row: Row, event: Mapping[str, Any]) -> None:
        sequence = row["sequence"]
        subject = event.get("object_id") or event.get("relationship_id")
        columns = {
            "sequence": sequence,
            "event_id": row["event_id"],
            "event_type": row["event_type"],
            "scope_id": self.scope_id,
            "recorded_at": wire(row["recorded_at"]),
        }
        for name, value in columns.items():
            if event.get(name) != value:
                self._found(sequence, f"{name} differs from the entry's bytes")
        if subject is not None and row["subject_id"] != subject:
            self._found(sequence, "subject_id differs from the entry's bytes")
        if event["recorded_at"] < self._recorded_at:
            self._found(sequence, "recorded before the entry before it")
        self._recorded_at = event["recorded_at"]

    def _note_erasure(self, sequence: int, event: Mapping[str, Any]) -> None:
        if event["event_type"] not in ERASING:
            return
        subject = event.get("object_id") or event.get("relationship_id") or ""
        for span in event["payload"].get("erased", ()):
            self._erasures.setdefault(subject, []).append((span["from_sequence"], span["to_sequence"], sequence))

    def _version(self, row: Row, event: Mapping[str, Any]) -> None:
        self.versions += 1
        sequence, metadata = row["sequence"], row["metadata"]
        if event["payload"].get("version_digest") != version_digest(metadata):
            self._found(sequence, "the version's metadata is not what the entry names")
        document = orjson.loads(metadata)
        if (document["version_id"], row["version_id"]) != (event.get("version_id"),) * 2:
            self._found(sequence, "the version has another id than the entry names")
        if row["salt"] is None:
            self.erased += 1
            self._missing.append(_Erased(row["object_id"], row["version_seq"], sequence))
            if row["content"] is not None or row["private"] is not None:
                self._found(sequence, "the version is only half erased")
            return
        for part in ("content", "private"):
            value, digest = row[part], document.get(f"{part}_digest")
            if (value is None) != (digest is None):
                self._found(sequence, f"the version's {part} is missing, or should be")
            elif value is not None and keyed_digest(row["salt"], part, value) != digest:
                self._found(sequence, f"the version's {part} is not what was committed")

    def _is_erased(self, gone: _Erased) -> bool:
        return any(
            first <= gone.version_seq <= last and sequence > gone.sequence
            for first, last, sequence in self._erasures.get(gone.subject_id, ())
        )
