"""What entries of the ledger do here: exercises are counted, and whoever keeps verdicts learns of a change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from pamspec_common.consuming.model import Entry, Poison
from pamspec_common.postgres import Connection
from pamspec_delegation.queries import exercises
from pamspec_delegation.queries.exercises import Done, Exercise

CHANGES = frozenset({"delegation_granted", "delegation_revoked"})


class _Payload(msgspec.Struct):
    delegation_id: str
    operation: str
    count: int = 1


class _Event(msgspec.Struct):
    payload: _Payload


_exercises = msgspec.json.Decoder(_Event)


class Counting:
    """The effect of the ledger's entries (consuming.Effect); `told` is called when something happened to a grant."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told

    async def apply(self, conn: Connection, entries: Sequence[Entry]) -> None:
        """Count what was done under grants."""
        found: dict[Exercise, Done] = {}
        for entry in entries:
            if entry.event_type == "delegation_exercised":
                exercise, times = _exercised(entry)
                before = found.get(exercise)
                found[exercise] = Done(times + (before.times if before else 0), entry.sequence)
        if found:
            await exercises.count(conn, found)

    async def forget(self, conn: Connection, scope_key: int) -> None:
        """The scope's ledger was restored."""
        await exercises.forget(conn, scope_key)

    async def committed(self, entries: Sequence[Entry]) -> None:
        """Whoever keeps permissions looks again."""
        if any(entry.event_type in CHANGES for entry in entries):
            self._told()


def _exercised(entry: Entry) -> tuple[Exercise, int]:
    """What was done, and how often; Poison for an entry that does not say."""
    try:
        payload = _exercises.decode(entry.event).payload
    except msgspec.DecodeError:
        raise Poison(entry.scope_key, entry.sequence, "no exercise of a grant") from None
    return Exercise(entry.scope_key, payload.delegation_id, payload.operation), payload.count
