"""What was done under each grant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pamspec_common.postgres import Connection

COUNT_SQL = """
INSERT INTO delegation.exercise AS e (scope_key, delegation_id, operation, times, last_seq)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[]) ORDER BY 2, 1, 3
ON CONFLICT (delegation_id, scope_key, operation)
DO UPDATE SET times = e.times + excluded.times, last_seq = excluded.last_seq"""

FORGET_SQL = "DELETE FROM delegation.exercise WHERE scope_key = $1"


class Exercise(NamedTuple):
    """An operation under a grant in a scope."""

    scope_key: int
    delegation_id: str
    operation: str


class Done(NamedTuple):
    """How often, and the ledger sequence of the last time."""

    times: int
    last_seq: int


async def count(conn: Connection, found: Mapping[Exercise, Done]) -> None:
    """Add to the counts."""
    await conn.execute(
        COUNT_SQL,
        [exercise.scope_key for exercise in found],
        [exercise.delegation_id for exercise in found],
        [exercise.operation for exercise in found],
        [done.times for done in found.values()],
        [done.last_seq for done in found.values()],
    )


async def forget(conn: Connection, scope_key: int) -> None:
    """Count a scope again from its first entry."""
    await conn.execute(FORGET_SQL, scope_key)
