"""Parked entries of the consumers, by the functions that each offers for them; no other row of theirs is seen."""

from __future__ import annotations

import asyncpg

from pamspec_common.postgres import Connection

SCHEMAS = {"delegation": "delegation", "indexing": "index_"}
"""The consumers of the ledger by name, each with its schema, in the order of a list."""

_ENTRIES = """
SELECT scope_key, sequence, tenant_id, scope_id, event_id, event_type, reason, parked_at, asked, asked_at
FROM {schema}.parked_entries($1, $2, $3, $4, $5)"""
ENTRIES_SQL = {name: _ENTRIES.format(schema=schema) for name, schema in SCHEMAS.items()}
ASK_SQL = {name: f"SELECT {schema}.ask_parked($1, $2, $3)" for name, schema in SCHEMAS.items()}


async def entries(
    conn: Connection, consumer: str, tenant_id: str | None, scope_id: str | None, after: tuple[int, int], limit: int
) -> list[asyncpg.Record]:
    """What a consumer has parked, in the order of (scope key, sequence), after a place."""
    return await conn.fetch(ENTRIES_SQL[consumer], tenant_id, scope_id, *after, limit)


async def ask(conn: Connection, consumer: str, scope_key: int, sequence: int | None, wanted: str) -> int:
    """Mark an entry of a scope, or all of them, for a replay or to be passed over; how many there are."""
    return int(await conn.fetchval(ASK_SQL[consumer], scope_key, sequence, wanted))
