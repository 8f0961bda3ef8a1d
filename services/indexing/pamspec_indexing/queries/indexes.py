"""How far the indexes of a scope are."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from pamspec_common.postgres import Connection

REACH_SQL = "SELECT 1"

SELECT_INDEXES_SQL = """
SELECT w.index_id, w.ledger_epoch, w.sequence, w.at, h.last_seq AS head, h.ledger_epoch AS epoch, n.recorded_at,
       clock_timestamp() AS now
FROM core.scope_head h
LEFT JOIN index_.watermark w ON w.scope_key = h.scope_key
LEFT JOIN LATERAL (
  SELECT l.recorded_at FROM core.ledger l
  WHERE l.scope_key = h.scope_key AND l.sequence > CASE WHEN w.ledger_epoch = h.ledger_epoch THEN w.sequence ELSE 0 END
  ORDER BY l.sequence LIMIT 1) n ON true
WHERE h.scope_key = $1 ORDER BY w.index_id"""


class Progress(NamedTuple):
    """How far an index is behind its scope's ledger."""

    index_id: str
    ledger_epoch: int
    sequence: int
    at: datetime
    events: int
    """Entries that have not taken effect."""
    seconds: float
    """How old the first of them is; 0 where none is missing."""


async def reach(conn: Connection) -> None:
    """Raise unless the store answers."""
    await conn.fetchval(REACH_SQL)


async def fetch_indexes(conn: Connection, scope_key: int) -> tuple[int, int, list[Progress]]:
    """The scope's ledger epoch and head, and its indexes by their ids."""
    rows = await conn.fetch(SELECT_INDEXES_SQL, scope_key)
    head, epoch = (rows[0]["head"], rows[0]["epoch"]) if rows else (0, 1)
    found = []
    for row in rows:
        if row["index_id"] is None:
            continue
        taken = row["sequence"] if row["ledger_epoch"] == epoch else 0
        waits = 0.0 if row["recorded_at"] is None else (row["now"] - row["recorded_at"]).total_seconds()
        found.append(
            Progress(row["index_id"], row["ledger_epoch"], row["sequence"], row["at"], head - taken, max(0.0, waits))
        )
    return epoch, head, found
