"""The queue of what is to be embedded, and what of it no entry of the ledger tells of yet."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from pamspec_common.postgres import Connection

ENQUEUE_SQL = """
INSERT INTO index_.embedding_queue AS q (scope_key, embedding_space_id, doc, sequence)
SELECT w.scope_key, s.embedding_space_id, w.doc, w.sequence
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS w(scope_key, doc, sequence)
JOIN index_.scope_space s ON s.scope_key = w.scope_key AND s.automatic
ORDER BY w.scope_key, s.embedding_space_id, w.doc
ON CONFLICT (scope_key, embedding_space_id, doc) DO UPDATE
  SET sequence = excluded.sequence, attempts = 0, due_at = clock_timestamp() WHERE q.sequence < excluded.sequence
"""
DEQUEUE_DOCS_SQL = """
DELETE FROM index_.embedding_queue q USING unnest($1::bigint[], $2::bigint[]) AS w(scope_key, doc)
WHERE q.scope_key = w.scope_key AND q.doc = w.doc
"""
# The scopes that wait, one after another beyond the last one served, and of each its oldest: a bulk of one scope does
# not hold up the others.
CLAIM_SQL = """
WITH RECURSIVE waiting AS (
  (SELECT q.scope_key, 1 AS n FROM index_.embedding_queue q
   WHERE q.embedding_space_id = $1 AND q.scope_key > $2 ORDER BY q.scope_key LIMIT 1)
  UNION ALL
  SELECT (SELECT q.scope_key FROM index_.embedding_queue q
          WHERE q.embedding_space_id = $1 AND q.scope_key > w.scope_key ORDER BY q.scope_key LIMIT 1), w.n + 1
  FROM waiting w WHERE w.scope_key IS NOT NULL AND w.n < $3),
due AS (
  SELECT d.scope_key, d.doc FROM waiting w CROSS JOIN LATERAL (
    SELECT q.scope_key, q.doc, row_number() OVER (ORDER BY q.sequence) AS place FROM index_.embedding_queue q
    WHERE q.embedding_space_id = $1 AND q.scope_key = w.scope_key AND q.due_at <= clock_timestamp()
    ORDER BY q.sequence LIMIT $3) d
  ORDER BY d.place, d.scope_key LIMIT $3),
mine AS (
  SELECT q.scope_key, q.doc FROM index_.embedding_queue q JOIN due USING (scope_key, doc)
  WHERE q.embedding_space_id = $1 AND q.due_at <= clock_timestamp() FOR UPDATE OF q SKIP LOCKED)
UPDATE index_.embedding_queue q SET attempts = q.attempts + 1, due_at = clock_timestamp() + make_interval(secs => $4)
FROM mine m WHERE q.scope_key = m.scope_key AND q.doc = m.doc AND q.embedding_space_id = $1
RETURNING q.scope_key, q.doc, q.sequence, q.attempts
"""
CONTENTS_SQL = """
SELECT x.scope_key, x.doc, p.content FROM index_.indexed_object x
JOIN unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS w(scope_key, doc, sequence)
  ON w.scope_key = x.scope_key AND w.doc = x.doc AND w.sequence = x.sequence
JOIN core.version_value p ON p.scope_key = x.scope_key AND p.ledger_seq = x.sequence
WHERE NOT x.removed AND p.content IS NOT NULL
"""
DONE_SQL = """
DELETE FROM index_.embedding_queue q
USING unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS w(scope_key, doc, sequence)
WHERE q.embedding_space_id = $1 AND q.scope_key = w.scope_key AND q.doc = w.doc AND q.sequence = w.sequence
"""
PUT_OFF_SQL = """
UPDATE index_.embedding_queue q SET due_at = clock_timestamp() + make_interval(secs => $4)
FROM unnest($2::bigint[], $3::bigint[], $5::bigint[]) AS w(scope_key, doc, sequence)
WHERE q.embedding_space_id = $1 AND q.scope_key = w.scope_key AND q.doc = w.doc AND q.sequence = w.sequence
"""
UNTOLD_SQL = """
INSERT INTO index_.embedding_untold (scope_key, embedding_space_id, doc)
SELECT w.scope_key, $1, w.doc FROM unnest($2::bigint[], $3::bigint[]) AS w(scope_key, doc)
"""
GATHER_SQL = """
UPDATE index_.embedding_untold u SET batch = g.batch
FROM (SELECT scope_key, embedding_space_id, max(id) AS batch FROM index_.embedding_untold
      WHERE batch IS NULL GROUP BY 1, 2) g
WHERE u.scope_key = g.scope_key AND u.embedding_space_id = g.embedding_space_id AND u.batch IS NULL AND u.id <= g.batch
"""
GATHERED_SQL = """
SELECT u.scope_key, u.embedding_space_id, u.batch, count(DISTINCT u.doc) AS objects, min(u.doc) AS doc,
       s.tenant_id, s.scope_id
FROM index_.embedding_untold u JOIN core.scope s USING (scope_key)
WHERE u.batch IS NOT NULL GROUP BY 1, 2, 3, s.tenant_id, s.scope_id ORDER BY u.batch LIMIT $1
"""
TOLD_SQL = "DELETE FROM index_.embedding_untold WHERE scope_key = $1 AND embedding_space_id = $2 AND batch = $3"
ABOUT_SQL = """
SELECT x.object_id, x.version_id, s.object_type FROM index_.indexed_object x
JOIN core.version_span s ON s.scope_key = x.scope_key AND s.from_seq = x.sequence
WHERE x.scope_key = $1 AND x.doc = $2 AND NOT x.removed
"""
BACKFILLS_SQL = """
SELECT b.scope_key, b.embedding_space_id, b.backfill, b.state FROM index_.scope_space b
WHERE (b.backfill IS NOT NULL OR b.state <> 'current') AND b.automatic ORDER BY b.scope_key LIMIT $1
"""
BACKFILL_SQL = """
WITH next AS (
  SELECT x.doc, x.sequence FROM index_.indexed_object x
  WHERE x.scope_key = $1 AND x.doc > $3 AND NOT x.removed AND x.kind = 'o' ORDER BY x.doc LIMIT $4),
put AS (
  INSERT INTO index_.embedding_queue (scope_key, embedding_space_id, doc, sequence)
  SELECT $1, $2, doc, sequence FROM next ON CONFLICT DO NOTHING)
UPDATE index_.scope_space s SET backfill = (SELECT max(doc) FROM next)
WHERE s.scope_key = $1 AND s.embedding_space_id = $2 AND s.backfill = $3
"""
WAITING_SQL = """
SELECT count(*) FROM (SELECT 1 FROM index_.embedding_queue WHERE scope_key = $1 AND embedding_space_id = $2 LIMIT $3) c
"""
CUT_OVER_SQL = """
WITH new AS (
  UPDATE index_.scope_space SET state = 'current', since = clock_timestamp()
  WHERE scope_key = $1 AND embedding_space_id = $2 AND state = 'shadow' AND backfill IS NULL RETURNING scope_key),
old AS (
  UPDATE index_.scope_space s SET state = 'retired', automatic = false, backfill = NULL, since = clock_timestamp()
  FROM new WHERE s.scope_key = new.scope_key AND s.embedding_space_id <> $2 AND s.automatic AND s.state = 'current'
  RETURNING s.embedding_space_id)
DELETE FROM index_.embedding_queue q USING old WHERE q.scope_key = $1 AND q.embedding_space_id = old.embedding_space_id
"""
ADOPT_SQL = """
INSERT INTO index_.scope_space (scope_key, embedding_space_id, automatic, state, backfill)
SELECT i.scope_key, $1, true,
       CASE WHEN EXISTS (SELECT FROM index_.scope_space s WHERE s.scope_key = i.scope_key AND s.automatic)
            THEN 'shadow' ELSE 'current' END, 0
FROM index_.inbox i
WHERE NOT EXISTS (SELECT FROM index_.scope_space s
                  WHERE s.scope_key = i.scope_key AND s.embedding_space_id = $1 AND s.automatic)
ORDER BY i.scope_key ON CONFLICT (scope_key, embedding_space_id)
DO UPDATE SET automatic = true, state = excluded.state, backfill = 0
"""
OWN_SPACE_SQL = """
INSERT INTO index_.scope_space (scope_key, embedding_space_id, automatic, state)
SELECT k, $2, true, 'current' FROM unnest($1::bigint[]) k
WHERE NOT EXISTS (SELECT FROM index_.scope_space s WHERE s.scope_key = k AND s.automatic) ORDER BY k
ON CONFLICT DO NOTHING
"""
FORGET_QUEUE_SQL = """
WITH queue AS (DELETE FROM index_.embedding_queue WHERE scope_key = $1),
     untold AS (DELETE FROM index_.embedding_untold WHERE scope_key = $1)
DELETE FROM index_.scope_space WHERE scope_key = $1
"""


class Waiting(NamedTuple):
    """An object that is to be embedded, taken for a while."""

    scope_key: int
    doc: int
    sequence: int
    attempts: int


async def enqueue(conn: Connection, rows: Sequence[tuple[int, int, int]]) -> None:
    """Put versions (scope, doc, sequence) before each of the spaces into which their scopes are embedded."""
    await conn.execute(ENQUEUE_SQL, *(list(column) for column in zip(*rows, strict=True)))


async def dequeue(conn: Connection, docs: Sequence[tuple[int, int]]) -> None:
    """These objects wait no more, in any space."""
    await conn.execute(DEQUEUE_DOCS_SQL, [key for key, _ in docs], [doc for _, doc in docs])


async def own_space(conn: Connection, scope_keys: Collection[int], space_id: str) -> None:
    """Scopes that are embedded into no space are embedded into this one from now on."""
    await conn.execute(OWN_SPACE_SQL, list(scope_keys), space_id)


async def claim(conn: Connection, space_id: str, after: int, limit: int, lease_s: float) -> list[Waiting]:
    """Take some of what waits, for so long; nobody else takes it meanwhile."""
    return [Waiting(*row) for row in await conn.fetch(CLAIM_SQL, space_id, after, limit, lease_s)]


async def contents(conn: Connection, wanted: Sequence[Waiting]) -> dict[tuple[int, int], bytes]:
    """The contents of those whose version is still the indexed one."""
    rows = await conn.fetch(
        CONTENTS_SQL, [w.scope_key for w in wanted], [w.doc for w in wanted], [w.sequence for w in wanted]
    )
    return {(row["scope_key"], row["doc"]): row["content"] for row in rows}


async def done(conn: Connection, space_id: str, of: Sequence[Waiting]) -> None:
    """These versions wait no more; a later version that came meanwhile does."""
    await conn.execute(DONE_SQL, space_id, [w.scope_key for w in of], [w.doc for w in of], [w.sequence for w in of])


async def put_off(conn: Connection, space_id: str, of: Sequence[Waiting], seconds: float) -> None:
    """Not before so many seconds from now; a later version that came meanwhile waits as it does."""
    sequences = [w.sequence for w in of]
    await conn.execute(PUT_OFF_SQL, space_id, [w.scope_key for w in of], [w.doc for w in of], seconds, sequences)


async def untold(conn: Connection, space_id: str, docs: Sequence[tuple[int, int]]) -> None:
    """Vectors of these docs were stored."""
    await conn.execute(UNTOLD_SQL, space_id, [key for key, _ in docs], [doc for _, doc in docs])


async def forget(conn: Connection, scope_key: int) -> None:
    """Nothing of a scope waits, and it has no spaces any more."""
    await conn.execute(FORGET_QUEUE_SQL, scope_key)
