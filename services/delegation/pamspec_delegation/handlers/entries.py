"""What entries of the ledger do here: exercises are counted, and whoever keeps verdicts learns of a change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pamspec_common.consuming.model import Entry, Poison
from pamspec_common.postgres import Connection
from pamspec_delegation.queries import exercises
from pamspec_delegation.queries.exercises import Done, Exercise


class _Payload(msgspec.Struct):
    delegation_id: str
    operation: str
    count: int = 1


class _Event(msgspec.Struct):
    payload: _Payload


_exercises = msgspec.json.Decoder(_Event)


class Counting:
    """The effect of the ledger's entries (consuming.Effect)."""

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
        """Nothing more."""


def _exercised(entry: Entry) -> tuple[Exercise, int]:
    """What was done, and how often; Poison for an entry that does not say."""
    try:
        payload = _exercises.decode(entry.event).payload
    except msgspec.DecodeError:
        raise Poison(entry.scope_key, entry.sequence, "no exercise of a grant") from None
    return Exercise(entry.scope_key, payload.delegation_id, payload.operation), payload.count
