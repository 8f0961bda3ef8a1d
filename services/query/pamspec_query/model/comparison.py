"""What two snapshots of one scope show differently (PAMSPEC P231).

Invariant: an object exists at every position after its first version, so all that either snapshot can show has a
version that is current at the later position; a comparison looks at those, and at the earlier version of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pamspec_common.documents import STATES
from pamspec_query.model.snapshots import Snapshot

_ID = {"o": "object_id", "r": "relationship_id"}


class Shown(NamedTuple):
    """A version that was current at a position."""

    object_id: str
    kind: str
    ledger_seq: int
    version_id: str
    version_seq: int
    states: tuple[str, ...]
    """In the order of STATES."""

    def document(self) -> dict[str, Any]:
        """As it is answered where only one snapshot shows it."""
        return {_ID[self.kind]: self.object_id, **self.version(), **dict(zip(STATES, self.states, strict=True))}

    def version(self) -> dict[str, Any]:
        """Which version it is."""
        return {"version_id": self.version_id, "sequence": self.version_seq}


class Pair(NamedTuple):
    """An object's versions at the later and at the earlier of two positions."""

    later: Shown
    earlier: Shown | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two snapshots of one scope."""

    base: Snapshot
    other: Snapshot

    @property
    def first(self) -> int:
        """The earlier position."""
        return min(self.base.position, self.other.position)

    @property
    def last(self) -> int:
        """The later position."""
        return max(self.base.position, self.other.position)

    @property
    def start(self) -> int:
        """After which ledger sequence the versions stand that can differ."""
        whole = self.base.members is None and self.other.members is None
        return self.first if whole else 0

    def shown(self, snapshot: Snapshot, pair: Pair) -> Shown | None:
        """What a snapshot shows of an object."""
        if not snapshot.holds(pair.later.object_id):
            return None
        return pair.later if snapshot.position == self.last else pair.earlier


def difference(comparison: Comparison, pair: Pair) -> tuple[str, dict[str, Any]] | None:
    """The list that tells of an object, and how; None where both snapshots show the same of it."""
    base, other = comparison.shown(comparison.base, pair), comparison.shown(comparison.other, pair)
    if base is None or other is None:
        only = other or base
        return None if only is None else ("removed" if other is None else "added", only.document())
    if base.version_id == other.version_id:
        return None
    states = {
        name: {"from": before, "to": after}
        for name, before, after in zip(STATES, base.states, other.states, strict=True)
        if before != after
    }
    told = {
        _ID[base.kind]: base.object_id,
        "base": base.version(),
        "other": other.version(),
        "versions": other.version_seq - base.version_seq,
        "states": states,
    }
    return "changed", told
