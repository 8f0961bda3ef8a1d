"""Scopes with something to do, and the leases on them."""

from __future__ import annotations

from pamspec_common.postgres import Connection

REACH_SQL = "SELECT 1"


async def reach(conn: Connection) -> None:
    """Raise unless the store answers."""
    await conn.fetchval(REACH_SQL)
