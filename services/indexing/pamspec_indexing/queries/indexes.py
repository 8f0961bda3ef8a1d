"""How far the indexes of a scope are."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from pamspec_common.postgres import Connection

SELECT_INDEXES_SQL = """
SELECT w.index_id, w.ledger_epoch, w.sequence, w.at, h.last_seq AS head, h.ledger_epoch AS epoch, n.recorded_at,
       clock_timestamp() AS now
FROM core.scope_head h
LEFT JOIN (
  SELECT scope_key, index_id, ledger_epoch, sequence, at FROM index_.watermark
  UNION ALL
  SELECT u.scope_key, u.index_id, 0, 0, u.since FROM index_.unready u
) w ON w.scope_key = h.scope_key
LEFT JOIN LATERAL (
  SELECT l.recorded_at FROM core.ledger l
  WHERE l.scope_key = h.scope_key AND l.sequence > CASE WHEN w.ledger_epoch = h.ledger_epoch THEN w.sequence ELSE 0 END
  ORDER BY l.sequence LIMIT 1) n ON true
WHERE h.scope_key = $1 ORDER BY w.index_id"""


LAG_SQL = """
SELECT b.scope_key, b.missing, extract(epoch FROM clock_timestamp() - l.recorded_at)::double precision AS seconds
FROM (
  SELECT h.scope_key, coalesce(i.last_seq, 0) AS taken, h.last_seq - coalesce(i.last_seq, 0) AS missing
  FROM core.scope_head h LEFT JOIN index_.inbox i ON i.scope_key = h.scope_key
  WHERE h.last_seq > coalesce(i.last_seq, 0) ORDER BY h.scope_key LIMIT 1000) b
LEFT JOIN core.ledger l ON l.scope_key = b.scope_key AND l.sequence = b.taken + 1"""


class Progress(NamedTuple):
    """How far an index is behind its scope's ledger."""

    index_id: str
    ledger_epoch: int
    sequence: int
    at: datetime
    events: int
    """Entries that have not taken effect."""
    seconds: float
    """How old the first of them is; 0 where none is missing, and for how long it has not been ready where it is not."""


async def fetch_lag(conn: Connection) -> list[tuple[int, int, float]]:
    """Scopes that are behind: their keys, entries that have not taken effect, and the age of the first in seconds."""
    rows = await conn.fetch(LAG_SQL)
    return [(row["scope_key"], row["missing"], max(0.0, row["seconds"] or 0.0)) for row in rows]


async def fetch_indexes(conn: Connection, scope_key: int) -> tuple[int, int, list[Progress]]:
    """The scope's ledger epoch and head, and its indexes by their ids."""
    rows = await conn.fetch(SELECT_INDEXES_SQL, scope_key)
    head, epoch = (rows[0]["head"], rows[0]["epoch"]) if rows else (0, 1)
    found = []
    for row in rows:
        if row["index_id"] is None:
            continue
        unready = row["ledger_epoch"] == 0
        taken = row["sequence"] if row["ledger_epoch"] == epoch else 0
        # In a scope for evaluations entries have the times of its run; what is missing came after the last move.
        since = row["at"] if unready or row["recorded_at"] is None else max(row["at"], row["recorded_at"])
        waits = (row["now"] - since).total_seconds() if unready or row["recorded_at"] is not None else 0.0
        found.append(
            Progress(
                row["index_id"], epoch if unready else row["ledger_epoch"], row["sequence"], row["at"], head - taken,
                max(0.0, waits),
            )
        )  # fmt: skip
    return epoch, head, found
