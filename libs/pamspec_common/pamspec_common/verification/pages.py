"""Pages of a ledger for its verification, with everything that a digest covers.

The connection must see the scope: its keys are set, or it is an administrator's.
"""

from __future__ import annotations

from datetime import datetime

from pamspec_common.postgres import Connection
from pamspec_common.verification.rows import ErasedVersion, Row, Stray, Tally, Trust

HEAD_SQL = """
SELECT s.scope_id, s.ledger_id, h.ledger_epoch, h.last_seq, h.last_hash,
  EXISTS (SELECT FROM core.scope_deletion d WHERE d.scope_key = $1)
FROM core.scope s JOIN core.scope_head h USING (scope_key) WHERE s.scope_key = $1
"""

# Every table is read along its key, so the joins are merges and nothing is sorted; the erasable halves and what opens
# them are looked up by key, whatever statistics of young tables say. A page is cut where its content grows beyond $5
# bytes; only one that does is looked at row by row for that. The follower is one look-up by key for each version that
# counts as replaced.
PAGE_SQL = """
WITH size AS MATERIALIZED (
  SELECT sum(coalesce(octet_length(content), 0) + coalesce(octet_length(private), 0)) AS bytes
  FROM core.version_private WHERE scope_key = $1 AND ledger_seq > $2 AND ledger_seq <= least($3, $2 + $4)),
cut AS MATERIALIZED (
  SELECT min(ledger_seq) - 1 AS last FROM (
    SELECT ledger_seq, row_number() OVER run AS n,
      sum(coalesce(octet_length(content), 0) + coalesce(octet_length(private), 0)) OVER run AS bytes
    FROM core.version_private
    WHERE scope_key = $1 AND ledger_seq > $2 AND ledger_seq <= least($3, $2 + $4)
      AND (SELECT bytes FROM size) > $5
    WINDOW run AS (ORDER BY ledger_seq)) sizes
  WHERE n > 1 AND bytes > $5)
SELECT l.sequence, l.event_id, l.event_type, l.subject_id, l.recorded_at, l.event, l.entry_hash,
  v.object_id, v.version_seq, v.version_id, v.metadata, p.salt, p.content, p.private, s.to_seq,
  s.object_id = v.object_id AND s.version_id = v.version_id AND s.version_seq = v.version_seq AND s.kind = v.kind,
  s.object_type, s.lifecycle_state, s.availability_state, s.retention_state, s.validation_state, follower.is_next
FROM core.ledger l
LEFT JOIN core.version v ON v.scope_key = $1 AND v.ledger_seq = l.sequence
  AND v.ledger_seq > $2 AND v.ledger_seq <= least($3, $2 + $4)
LEFT JOIN LATERAL (
  SELECT salt, content, private FROM core.version_value
  WHERE scope_key = $1 AND ledger_seq = l.sequence OFFSET 0) p ON true
LEFT JOIN core.version_span s ON s.scope_key = $1 AND s.from_seq = l.sequence
  AND s.from_seq > $2 AND s.from_seq <= least($3, $2 + $4)
LEFT JOIN LATERAL (
  SELECT n.object_id = v.object_id AND n.version_seq = v.version_seq + 1 AS is_next FROM core.version n
  WHERE s.to_seq < 9223372036854775807 AND n.scope_key = $1 AND n.ledger_seq = s.to_seq OFFSET 0) follower ON true
WHERE l.scope_key = $1 AND l.sequence > $2 AND l.sequence <= least($3, $2 + $4)
  AND l.sequence <= (SELECT coalesce(last, $3) FROM cut)
ORDER BY l.sequence
"""

BEFORE_SQL = "SELECT entry_hash, recorded_at FROM core.ledger WHERE scope_key = $1 AND sequence = $2"

TALLY_SQL = """
SELECT
  (SELECT count(*) FROM core.version WHERE scope_key = $1 AND ledger_seq > $2 AND ledger_seq <= $3),
  (SELECT count(*) FROM core.version_span WHERE scope_key = $1 AND from_seq > $2 AND from_seq <= $3)
"""

STRAYS_SQL = """
SELECT coalesce(v.ledger_seq, s.from_seq) AS at, v.ledger_seq IS NOT NULL, coalesce(v.version_id, s.version_id)
FROM core.version v
FULL JOIN (SELECT * FROM core.version_span WHERE scope_key = $1) s ON s.from_seq = v.ledger_seq AND v.scope_key = $1
WHERE (v.scope_key IS NULL OR v.scope_key = $1) AND coalesce(v.ledger_seq, s.from_seq) <= $2
  AND (v.scope_key IS NULL
    OR NOT EXISTS (SELECT FROM core.ledger l WHERE l.scope_key = $1 AND l.sequence = v.ledger_seq))
ORDER BY at LIMIT $3
"""

BEYOND_SQL = """
SELECT EXISTS (SELECT FROM core.ledger l WHERE l.scope_key = $1 AND (l.sequence > h.last_seq OR l.sequence < 1))
  OR EXISTS (SELECT FROM core.version v WHERE v.scope_key = $1 AND (v.ledger_seq > h.last_seq OR v.ledger_seq < 1))
  OR EXISTS (SELECT FROM core.version_span s WHERE s.scope_key = $1 AND (s.from_seq > h.last_seq OR s.from_seq < 1))
FROM core.scope_head h WHERE h.scope_key = $1
"""

ERASURES_SQL = """
SELECT l.subject_id, l.sequence, l.event FROM core.ledger l
WHERE l.scope_key = $1 AND l.subject_id = ANY ($2::text[]) AND l.event_type IN ('object_redacted', 'object_deleted')
ORDER BY l.sequence
"""


async def trust(conn: Connection, scope_key: int) -> Trust | None:
    """What a verification starts from: the root of the chain, and the head that it must reach."""
    row = await conn.fetchrow(HEAD_SQL, scope_key)
    return None if row is None else Trust(*row)


async def page(conn: Connection, scope_key: int, after: int, until: int, rows: int, max_bytes: int) -> list[Row]:
    """The entries of the next `rows` positions, in order, up to about `max_bytes` of content.

    Empty where no entry stands there.
    """
    found = await conn.fetch(PAGE_SQL, scope_key, after, until, rows, max_bytes)
    return list(map(Row._make, found))


async def before(conn: Connection, scope_key: int, sequence: int) -> tuple[bytes, datetime] | None:
    """The chain hash and the time of an entry."""
    row = await conn.fetchrow(BEFORE_SQL, scope_key, sequence)
    return None if row is None else (row[0], row[1])


async def tally(conn: Connection, scope_key: int, after: int, until: int) -> Tally:
    """How many versions and states stand in a range, with an entry or without."""
    row = await conn.fetchrow(TALLY_SQL, scope_key, after, until)
    assert row is not None
    return Tally(row[0], row[1])


async def strays(conn: Connection, scope_key: int, until: int, limit: int) -> list[Stray]:
    """Versions without an entry, and states without a version, in order."""
    return [Stray(*row) for row in await conn.fetch(STRAYS_SQL, scope_key, until, limit)]


async def beyond(conn: Connection, scope_key: int) -> bool:
    """Whether entries, versions or states stand beyond the scope's head as it is now, or before the first."""
    return bool(await conn.fetchval(BEYOND_SQL, scope_key))


async def erasures(conn: Connection, scope_key: int, versions: list[ErasedVersion]) -> list[tuple[str, int, bytes]]:
    """The erasing events of the objects of some versions."""
    rows = await conn.fetch(ERASURES_SQL, scope_key, sorted({version.object_id for version in versions}))
    return [(row["subject_id"], row["sequence"], row["event"]) for row in rows]
