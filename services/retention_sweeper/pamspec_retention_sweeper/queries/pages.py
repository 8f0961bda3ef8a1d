"""Relations whose files still hold bytes of what was erased (migrations of the write service own them)."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import asyncpg

from pamspec_common.postgres import Connection

DUE_SQL = """
SELECT relation, owed_since, extract(epoch FROM clock_timestamp() - owed_since)::float8 AS owed_s, erasures, bytes
FROM core.pages_due()
"""
UNBOUNDED_SQL = "SET LOCAL statement_timeout = 0"
UNDERIVED_SQL = "SELECT array_agg(scope_key) FROM core.debts_underived()"
NOTE_SQL = """
SELECT core.note_derived(array_agg(t.scope_key), array_agg(t.last_seq)) FROM index_.taken_in($1::bigint[]) t
"""
REWRITE_SQL = "SELECT core.rewrite_pages($1)"
_LONGEST_S = 24 * 3600.0


class Owed(NamedTuple):
    """What one relation owes: since when, for how many erasures, and how large it is with its indexes."""

    relation: str
    owed_since: datetime
    owed_s: float
    erasures: int
    bytes: int


async def due(conn: Connection) -> list[Owed]:
    """What is owed, the oldest first."""
    return [Owed(*row) for row in await conn.fetch(DUE_SQL)]


async def underived(conn: Connection) -> list[int]:
    """Scopes whose erasures the derived indexes are not known to have taken in."""
    return await conn.fetchval(UNDERIVED_SQL) or []


async def note_derived(conn: Connection, scope_keys: list[int]) -> None:
    """Note which of them have been taken in, in a transaction that sees these scopes."""
    await conn.execute(NOTE_SQL, scope_keys)


async def rewrite(conn: Connection, relation: str) -> float | None:
    """Write a relation anew and answer for how many milliseconds that held everybody else up.

    None when it was not worth it yet: somebody still reads what was erased, or somebody else has just done it.
    TimeoutError when others kept it from the lock; the transaction has then to be ended.
    """
    await conn.execute(UNBOUNDED_SQL)
    try:
        held_ms: float | None = await conn.fetchval(REWRITE_SQL, relation, timeout=_LONGEST_S)
    except asyncpg.LockNotAvailableError as error:
        raise TimeoutError from error
    return held_ms
