"""A sealed snapshot as the reads see it: a position, and which objects and relationships belong (PAMSPEC P164)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from pamspec_common.errors import InvalidRequest
from pamspec_query.documents import AsOf


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A sealed snapshot of a scope."""

    position: int
    ledger_epoch: int
    members: list[str] | None
    """The ids that belong, sorted; None where all of the scope does."""
    descriptor: dict[str, Any]

    def holds(self, object_id: str) -> bool:
        """Whether an object or relationship belongs, if it was there at the position."""
        if self.members is None:
            return True
        place = bisect_left(self.members, object_id)
        return self.members[place : place + 1] == [object_id]


def check_position(snapshot_id: str | None, as_of: AsOf | None) -> None:
    """Raise InvalidRequest where a snapshot, which is a position, stands beside another one."""
    if snapshot_id is not None and as_of is not None and (as_of.ledger_sequence, as_of.recorded_at) != (None, None):
        raise InvalidRequest(
            "A snapshot is a position of its own; leave as_of.ledger_sequence and as_of.recorded_at out.",
            details={"field": "as_of"},
        )
