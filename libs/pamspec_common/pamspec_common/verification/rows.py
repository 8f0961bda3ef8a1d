"""What a verification reads and what it says, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Trust:
    """What is taken as given: the scope, the root of its chain, and the head that the scope claims."""

    scope_id: str
    ledger_id: bytes
    ledger_epoch: int
    last_seq: int
    last_hash: bytes
    deleted: bool = False
    """Whether the scope was deleted, which erases every value without an entry for each."""


class Row(NamedTuple):
    """An entry, the version made by it and what readers take for its state; what is missing is None."""

    sequence: int
    event_id: str
    event_type: str
    subject_id: str | None
    recorded_at: datetime
    event: bytes
    entry_hash: bytes
    object_id: str | None
    version_seq: int | None
    version_id: str | None
    metadata: bytes | None
    salt: bytes | None
    content: bytes | None
    private: bytes | None
    to_seq: int | None
    """Where the version stopped being the head, as readers take it."""
    same: bool | None
    """Whether the ids of the version and of its state agree."""
    object_type: str | None
    lifecycle_state: str | None
    availability_state: str | None
    retention_state: str | None
    validation_state: str | None
    is_next: bool | None
    """Whether what stands at `to_seq` is the next version of the same object; None where nothing stands."""


class Tally(NamedTuple):
    """How many versions and states there are."""

    versions: int
    states: int


class Stray(NamedTuple):
    """A version without an entry, or a state without a version."""

    sequence: int
    is_version: bool
    version_id: str


class ErasedVersion(NamedTuple):
    """A version whose erasable part is gone; an event must say so."""

    sequence: int
    object_id: str
    version_seq: int
    version_id: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that does not hold; it carries no content."""

    sequence: int
    kind: str
    detail: str
    version_id: str | None = None

    def document(self) -> dict[str, Any]:
        """The problem as it is answered."""
        found: dict[str, Any] = {"sequence": self.sequence, "kind": self.kind, "detail": self.detail}
        if self.version_id is not None:
            found["version_id"] = self.version_id
        return found
