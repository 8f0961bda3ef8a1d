"""Deleted scopes of which something may be indexed."""

from __future__ import annotations

from pamspec_common.postgres import Connection

DUE_SQL = """
SELECT d.scope_key FROM core.scope_deletion d JOIN index_.inbox i ON i.scope_key = d.scope_key
WHERE NOT EXISTS (SELECT FROM index_.cleared c WHERE c.scope_key = d.scope_key)
ORDER BY d.scope_key LIMIT $1"""

BEGIN_SQL = """
INSERT INTO index_.inbox (scope_key, last_seq, ledger_epoch)
SELECT h.scope_key, 0, h.ledger_epoch FROM core.scope_head h WHERE h.scope_key = $1 ON CONFLICT DO NOTHING"""

LOCK_SQL = "SELECT 1 FROM index_.inbox WHERE scope_key = $1 FOR UPDATE"

CLEARED_SQL = "INSERT INTO index_.cleared (scope_key) VALUES ($1) ON CONFLICT DO NOTHING"


async def fetch_due(conn: Connection, limit: int) -> list[int]:
    """Deleted scopes that were consumed and are not cleared."""
    return [row[0] for row in await conn.fetch(DUE_SQL, limit)]


async def lock(conn: Connection, scope_key: int) -> None:
    """Keep whatever else writes derived rows of the scope waiting until the end of the transaction."""
    if await conn.fetchval(LOCK_SQL, scope_key) is None:
        await conn.execute(BEGIN_SQL, scope_key)
        await conn.fetchval(LOCK_SQL, scope_key)


async def note_cleared(conn: Connection, scope_key: int) -> None:
    """Nothing of the scope is left."""
    await conn.execute(CLEARED_SQL, scope_key)
