"""Jobs over an index of a scope, and which indexes are not to be used."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

import asyncpg

from pamspec_common.postgres import Connection

_COLUMNS = """scope_key, index_id, kind, operation_id, open, below, done, total, missing, stale, stray, watermark,
  requested_at, finished_at"""

REQUEST_SQL = f"""
INSERT INTO index_.job AS j (scope_key, index_id, kind, operation_id, told, total)
SELECT $1, $2, $3, $4, $3 <> 'rebuild', count(*) FROM core.version_span s
WHERE s.scope_key = $1 AND s.to_seq = 9223372036854775807 AND s.kind IN ('o', 'r')
ON CONFLICT (scope_key, index_id) DO UPDATE
  SET kind = excluded.kind, operation_id = excluded.operation_id, open = true, told = excluded.told, done = 0,
      total = excluded.total, below = 9223372036854775807, missing = 0, stale = 0, stray = 0,
      requested_at = clock_timestamp(), finished_at = NULL
  WHERE NOT j.open
RETURNING {_COLUMNS}"""

SELECT_OF_SCOPE_SQL = f"SELECT {_COLUMNS} FROM index_.job WHERE scope_key = $1 ORDER BY index_id"

CLAIM_SQL = f"""
SELECT {_COLUMNS} FROM index_.job WHERE open ORDER BY requested_at LIMIT 1 FOR UPDATE SKIP LOCKED"""

CLAIM_UNTOLD_SQL = f"""
SELECT {_COLUMNS} FROM index_.job WHERE NOT open AND NOT told ORDER BY requested_at LIMIT 1 FOR UPDATE SKIP LOCKED"""

TAKE_TIME_SQL = "SET LOCAL statement_timeout = '600s'"

PROGRESS_SQL = """
UPDATE index_.job SET below = $3, done = done + $4, missing = missing + $5, stale = stale + $6
WHERE scope_key = $1 AND index_id = $2"""

FINISH_SQL = """
UPDATE index_.job j SET open = false, finished_at = clock_timestamp(), stray = $3,
  watermark = coalesce((SELECT i.last_seq FROM index_.inbox i WHERE i.scope_key = j.scope_key), 0)
WHERE scope_key = $1 AND index_id = $2"""

TOLD_SQL = "UPDATE index_.job SET told = true WHERE scope_key = $1 AND index_id = $2"

SET_UNREADY_SQL = """
INSERT INTO index_.unready (scope_key, index_id, state) VALUES ($1, $2, $3)
ON CONFLICT (scope_key, index_id) DO UPDATE SET state = excluded.state"""

BUILD_SQL = "UPDATE index_.unready SET state = 'building' WHERE scope_key = $1 AND index_id = $2"

READY_SQL = "DELETE FROM index_.unready WHERE scope_key = $1 AND index_id = $2"

DELETE_WATERMARK_SQL = "DELETE FROM index_.watermark WHERE scope_key = $1 AND index_id = $2"

SELECT_UNREADY_SQL = "SELECT scope_key, index_id, state FROM index_.unready WHERE scope_key = ANY ($1::bigint[])"

SCOPE_NAME_SQL = "SELECT tenant_id, scope_id FROM core.scope WHERE scope_key = $1"


class Job(NamedTuple):
    """A job, and how far it is."""

    scope_key: int
    index_id: str
    kind: str
    operation_id: str
    open: bool
    below: int
    done: int
    total: int
    missing: int
    stale: int
    stray: int
    watermark: int
    requested_at: datetime
    finished_at: datetime | None


async def take_time(conn: Connection) -> None:
    """Let the rest of the transaction take ten minutes: it looks at the whole index of a scope."""
    await conn.execute(TAKE_TIME_SQL)


async def request(conn: Connection, scope_key: int, index_id: str, kind: str, operation_id: str) -> Job | None:
    """A new job; None while another is open."""
    return _job(await conn.fetchrow(REQUEST_SQL, scope_key, index_id, kind, operation_id))


async def fetch_of_scope(conn: Connection, scope_key: int) -> dict[str, Job]:
    """The last job of each index of a scope."""
    return {row["index_id"]: Job(*row) for row in await conn.fetch(SELECT_OF_SCOPE_SQL, scope_key)}


async def claim(conn: Connection) -> Job | None:
    """The oldest open job that nobody works on, locked until the end of the transaction."""
    return _job(await conn.fetchrow(CLAIM_SQL))


async def claim_untold(conn: Connection) -> Job | None:
    """The same of those that the ledger has still to tell of."""
    return _job(await conn.fetchrow(CLAIM_UNTOLD_SQL))


async def progress(conn: Connection, job: Job, below: int, done: int, missing: int = 0, stale: int = 0) -> None:
    """A page is done."""
    await conn.execute(PROGRESS_SQL, job.scope_key, job.index_id, below, done, missing, stale)


async def finish(conn: Connection, job: Job, stray: int = 0) -> None:
    """All of it is done."""
    await conn.execute(FINISH_SQL, job.scope_key, job.index_id, stray)


async def note_told(conn: Connection, job: Job) -> None:
    """The ledger tells of it."""
    await conn.execute(TOLD_SQL, job.scope_key, job.index_id)


async def drop(conn: Connection, scope_key: int, index_id: str) -> None:
    """The index is not to be used, and nothing is written to it, until it is rebuilt."""
    await conn.execute(SET_UNREADY_SQL, scope_key, index_id, "dropped")
    await conn.execute(DELETE_WATERMARK_SQL, scope_key, index_id)


async def build(conn: Connection, scope_key: int, index_id: str) -> None:
    """What was dropped is written to again."""
    await conn.execute(BUILD_SQL, scope_key, index_id)


async def ready(conn: Connection, scope_key: int, index_id: str) -> None:
    """The index is complete."""
    await conn.execute(READY_SQL, scope_key, index_id)


async def fetch_unready(conn: Connection, scope_keys: Collection[int]) -> dict[tuple[int, str], str]:
    """States of indexes that are not to be used, by scope and index."""
    rows: Sequence[asyncpg.Record] = await conn.fetch(SELECT_UNREADY_SQL, list(scope_keys))
    return {(row["scope_key"], row["index_id"]): row["state"] for row in rows}


async def fetch_scope_name(conn: Connection, scope_key: int) -> tuple[str, str]:
    """Tenant and id of a scope."""
    row = await conn.fetchrow(SCOPE_NAME_SQL, scope_key)
    assert row is not None, "scopes are never removed"
    return row["tenant_id"], row["scope_id"]


def _job(row: asyncpg.Record | None) -> Job | None:
    return None if row is None else Job(*row)
