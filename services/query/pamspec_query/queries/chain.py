"""Pages of a ledger for its verification, with everything that a digest covers."""

from __future__ import annotations

import asyncpg

from pamspec_common.postgres import Connection
from pamspec_query.model.chain import ErasedVersion, Row, Trust

CHAIN_HEAD_SQL = """
SELECT s.ledger_id, s.scope_id, h.last_seq, h.last_hash FROM core.scope s JOIN core.scope_head h USING (scope_key)
WHERE s.scope_key = $1
"""

CHAIN_PAGE_SQL = """
WITH page AS MATERIALIZED (
  SELECT coalesce(l.sequence, v.ledger_seq) AS at, l.sequence, l.event_id, l.event_type, l.recorded_at, l.event,
         l.entry_hash, v.object_id, v.version_seq, v.version_id, v.metadata, p.salt, p.content, p.private
  FROM (SELECT * FROM core.ledger WHERE scope_key = $1 AND sequence > $2 AND sequence <= least($3, $2 + $4)) l
  FULL JOIN (SELECT * FROM core.version WHERE scope_key = $1 AND ledger_seq > $2 AND ledger_seq <= least($3, $2 + $4)) v
    ON v.ledger_seq = l.sequence
  LEFT JOIN core.version_private p ON p.scope_key = $1 AND p.ledger_seq = v.ledger_seq
    AND p.ledger_seq > $2 AND p.ledger_seq <= least($3, $2 + $4)
), weighed AS (
  SELECT page.*, row_number() OVER (ORDER BY at) AS n,
         sum(coalesce(octet_length(content), 0) + coalesce(octet_length(private), 0)) OVER (ORDER BY at) AS bytes
  FROM page)
SELECT * FROM weighed WHERE n = 1 OR bytes <= $5 ORDER BY at
"""

BEYOND_SQL = """
SELECT EXISTS (SELECT FROM core.version v WHERE v.scope_key = $1 AND (v.ledger_seq > h.last_seq OR v.ledger_seq < 1))
    OR EXISTS (SELECT FROM core.ledger l WHERE l.scope_key = $1 AND (l.sequence > h.last_seq OR l.sequence < 1))
FROM core.scope_head h WHERE h.scope_key = $1
"""

ERASURES_SQL = """
SELECT l.subject_id, l.sequence, l.event FROM core.ledger l
WHERE l.scope_key = $1 AND l.subject_id = ANY ($2::text[]) AND l.event_type IN ('object_redacted', 'object_deleted')
ORDER BY l.sequence
"""


async def chain_head(conn: Connection, scope_key: int) -> Trust | None:
    """What a verification starts from: the root of the chain, and the head that it must reach."""
    row = await conn.fetchrow(CHAIN_HEAD_SQL, scope_key)
    return None if row is None else Trust(row["scope_id"], row["ledger_id"], row["last_seq"], row["last_hash"])


async def chain_page(conn: Connection, scope_key: int, after: int, until: int, rows: int, max_bytes: int) -> list[Row]:
    """The next entries and versions in order; empty where neither stands in the next `rows` positions."""
    found = await conn.fetch(CHAIN_PAGE_SQL, scope_key, after, until, rows, max_bytes)
    return [_row(record) for record in found]


async def beyond(conn: Connection, scope_key: int) -> bool:
    """Whether entries or versions stand beyond the scope's head, or before its first."""
    return bool(await conn.fetchval(BEYOND_SQL, scope_key))


async def erasures(conn: Connection, scope_key: int, versions: list[ErasedVersion]) -> list[tuple[str, int, bytes]]:
    """The erasing events of the objects of some versions."""
    rows = await conn.fetch(ERASURES_SQL, scope_key, sorted({version.object_id for version in versions}))
    return [(row["subject_id"], row["sequence"], row["event"]) for row in rows]


def _row(record: asyncpg.Record) -> Row:
    return Row._make(record[: len(Row._fields)])
