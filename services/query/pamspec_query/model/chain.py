"""What a verification of a ledger checks, entry by entry.

Invariant: a ledger verifies only if its entries are gap-free from 1 to the head, each hash follows from the one before
(`pamspec_common.ledger`), each entry says what its columns say, each version's metadata has the digest that its event
carries, each erasable part has the keyed digest that the metadata carries, and a part that is missing was erased by an
event that names the version. What the outbox or the bus hold plays no part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from pamspec_common.instants import wire
from pamspec_common.ledger import entry_hash, genesis, keyed_digest, version_digest

MAKES_VERSION = frozenset(
    {
        "object_created",
        "object_updated",
        "provenance_updated",
        "lifecycle_transitioned",
        "availability_transitioned",
        "retention_transitioned",
        "validation_transitioned",
        "relationship_created",
        "relationship_updated",
        "object_redacted",
        "object_deleted",
        "delegation_granted",
        "delegation_revoked",
    }
)


@dataclass(frozen=True, slots=True)
class Trust:
    """What is taken as given: the scope, the root of its chain, and the head that the scope claims."""

    scope_id: str
    ledger_id: bytes
    last_seq: int
    last_hash: bytes


class Row(NamedTuple):
    """An entry, the version made by it, or both; what is missing is None."""

    at: int
    sequence: int | None
    event_id: str | None
    event_type: str | None
    recorded_at: datetime | None
    event: bytes | None
    entry_hash: bytes | None
    object_id: str | None
    version_seq: int | None
    version_id: str | None
    metadata: bytes | None
    salt: bytes | None
    content: bytes | None
    private: bytes | None


@dataclass(frozen=True, slots=True)
class ErasedVersion:
    """A version whose erasable part is gone; an event must say so."""

    sequence: int
    object_id: str
    version_seq: int
    version_id: str


@dataclass(frozen=True, slots=True)
class Problem:
    """The first thing that does not hold."""

    sequence: int
    kind: str
    detail: str
    version_id: str | None = None

    def document(self) -> dict[str, Any]:
        """The problem as it is answered; it carries no content."""
        found: dict[str, Any] = {"sequence": self.sequence, "kind": self.kind, "detail": self.detail}
        if self.version_id is not None:
            found["version_id"] = self.version_id
        return found


@dataclass(slots=True)
class Chain:
    """The state of a verification: feed it rows in order."""

    trust: Trust
    entries: int = 0
    versions: int = 0
    last_hash: bytes = b""
    last_recorded: datetime | None = None
    erased: list[ErasedVersion] = field(default_factory=list)
    """Versions of the rows since `take_erased` that miss an erasable part."""

    def __post_init__(self) -> None:
        self.last_hash = genesis(self.trust.ledger_id)

    def take_erased(self) -> list[ErasedVersion]:
        """The versions that still need an erasing event."""
        found, self.erased = self.erased, []
        return found

    def feed(self, row: Row) -> Problem | None:
        """Check the next row; the first problem, or None."""
        expected = self.entries + 1
        if row.at != expected:
            return Problem(expected, "entry_missing", "The ledger has a gap here.")
        if row.sequence is None or row.event is None or row.entry_hash is None:
            return Problem(row.at, "entry_missing", "A version stands here without its ledger entry.", row.version_id)
        if entry_hash(self.last_hash, row.event) != row.entry_hash:
            return Problem(row.at, "chain_broken", "The entry's hash does not follow from what stands before it.")
        event = _document(row.event)
        problem = self._check_event(row, event) or self._check_version(row, event)
        if problem is None:
            self.entries += 1
            self.last_hash = row.entry_hash
        return problem

    def finish(self) -> Problem | None:
        """Check what the scope claims as its head, after the last row up to it."""
        if self.entries != self.trust.last_seq:
            return Problem(self.entries + 1, "entry_missing", "The ledger ends before the scope's head.")
        if self.last_hash != self.trust.last_hash:
            return Problem(self.trust.last_seq, "head_differs", "The head has another hash than the last entry.")
        return None

    def _check_event(self, row: Row, event: dict[str, Any]) -> Problem | None:
        columns = (
            ("scope_id", self.trust.scope_id),
            ("sequence", row.sequence),
            ("event_id", row.event_id),
            ("event_type", row.event_type),
            ("recorded_at", None if row.recorded_at is None else wire(row.recorded_at)),
        )
        for name, value in columns:
            if event.get(name) != value:
                return Problem(row.at, "entry_differs", f"The entry's {name} differs from its columns or its scope.")
        if self.last_recorded is not None and row.recorded_at is not None and row.recorded_at < self.last_recorded:
            return Problem(row.at, "time_falls", "The entry was recorded before the one in front of it.")
        self.last_recorded = row.recorded_at
        return None

    def _check_version(self, row: Row, event: dict[str, Any]) -> Problem | None:
        makes = row.event_type in MAKES_VERSION
        if row.metadata is None:
            return Problem(row.at, "version_missing", "The entry's version is missing.") if makes else None
        if not makes or event.get("version_id") != row.version_id:
            return Problem(row.at, "version_foreign", "The entry here tells of no such version.", row.version_id)
        payload = event.get("payload", {})
        if payload.get("version_digest") != version_digest(row.metadata):
            return Problem(row.at, "metadata_differs", "The version's metadata has another digest.", row.version_id)
        metadata = _document(row.metadata)
        if metadata.get("version_id") != row.version_id or metadata.get("sequence") != row.version_seq:
            return Problem(row.at, "metadata_differs", "The version's columns and metadata differ.", row.version_id)
        self.versions += 1
        return self._check_parts(row, metadata)

    def _check_parts(self, row: Row, metadata: dict[str, Any]) -> Problem | None:
        parts = (("content", row.content), ("private", row.private))
        missing = False
        for name, value in parts:
            digest = metadata.get(f"{name}_digest")
            if value is None:
                missing = missing or digest is not None
            elif row.salt is None or digest != keyed_digest(row.salt, name, value):
                return Problem(row.at, f"{name}_differs", f"The version's {name} has another digest.", row.version_id)
        if missing:
            assert row.object_id is not None
            assert row.version_seq is not None
            assert row.version_id is not None
            self.erased.append(ErasedVersion(row.at, row.object_id, row.version_seq, row.version_id))
        return None


Erasures = Iterable[tuple[str, int, bytes]]
"""(object_id, sequence, event) of redaction and deletion events."""


def unexplained(versions: Iterable[ErasedVersion], erasures: Erasures) -> Problem | None:
    """The first version whose missing part no later redaction or deletion event names; None when all are named."""
    ranges = _erased_ranges(erasures)
    for version in versions:
        if _explained(version, ranges) is None:
            return Problem(
                version.sequence, "content_missing", "A part is missing that no event has erased.", version.version_id
            )
    return None


def explained_at(versions: Iterable[ErasedVersion], erasures: Erasures) -> int:
    """The lowest position up to which a ledger explains every missing part that it ever explains; 0 for none."""
    ranges = _erased_ranges(erasures)
    return max((_explained(version, ranges) or 0 for version in versions), default=0)


_Ranges = dict[str, list[tuple[int, int, int]]]


def _erased_ranges(erasures: Erasures) -> _Ranges:
    ranges: _Ranges = {}
    for object_id, sequence, event in erasures:
        for erased in _document(event).get("payload", {}).get("erased", []):
            ranges.setdefault(object_id, []).append((sequence, erased["from_sequence"], erased["to_sequence"]))
    return ranges


def _explained(version: ErasedVersion, ranges: _Ranges) -> int | None:
    """The first event that erased a version, by its sequence."""
    found = (
        sequence
        for sequence, first, last in ranges.get(version.object_id, [])
        if sequence >= version.sequence and first <= version.version_seq <= last
    )
    return min(found, default=None)


def _document(raw: bytes) -> dict[str, Any]:
    """A stored document; one that is no JSON object any more is an empty one, which then differs."""
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
