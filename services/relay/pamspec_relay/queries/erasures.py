"""The statements of the erasure log. Rows are locked until they are noted; others pass over them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from pamspec_common.postgres import Connection

SELECT_UNLOGGED_SQL = """
SELECT e.scope_key, s.tenant_id, s.scope_id, s.ledger_id, e.erasure_id, e.kind::text, e.subject_kind::text,
  e.subject_id, e.position, e.erased_from, e.erased_to, e.opened_at
FROM core.erasure e JOIN core.scope s USING (scope_key)
WHERE e.logged_at IS NULL ORDER BY e.opened_at LIMIT $1 FOR UPDATE OF e SKIP LOCKED
"""
SELECT_UNLOGGED_SCOPES_SQL = """
SELECT d.scope_key, s.tenant_id, s.scope_id, s.ledger_id, d.requested_at
FROM core.scope_deletion d JOIN core.scope s USING (scope_key)
WHERE d.logged_at IS NULL ORDER BY d.requested_at LIMIT $1 FOR UPDATE OF d SKIP LOCKED
"""
NOTE_SQL = """
UPDATE core.erasure e SET logged_at = clock_timestamp()
FROM unnest($1::text[], $2::bigint[]) AS k(erasure_id, scope_key)
WHERE e.erasure_id = k.erasure_id AND e.scope_key = k.scope_key
"""
NOTE_SCOPES_SQL = "UPDATE core.scope_deletion SET logged_at = clock_timestamp() WHERE scope_key = ANY($1::bigint[])"
STREAM_SQL = "SELECT created, clock_timestamp() FROM relay.erasure_stream RIGHT JOIN (SELECT) always ON true"
KEEP_STREAM_SQL = """
INSERT INTO relay.erasure_stream (created) VALUES ($1) ON CONFLICT (one) DO UPDATE SET created = excluded.created
"""
# What was logged before a moment, some of it at a time: what is logged again meanwhile is left alone.
FORGET_SQL = """
UPDATE core.erasure SET logged_at = NULL WHERE (erasure_id, scope_key) IN (
  SELECT erasure_id, scope_key FROM core.erasure WHERE logged_at < $1 LIMIT $2)
"""
FORGET_SCOPES_SQL = "UPDATE core.scope_deletion SET logged_at = NULL WHERE logged_at < $1"
_FORGOTTEN_AT_ONCE = 10_000


class Unlogged(NamedTuple):
    """An erasure that is not logged yet."""

    scope_key: int
    tenant_id: str
    scope_id: str
    ledger_id: bytes
    erasure_id: str
    kind: str
    """d: delete, r: redact; others erase nothing themselves."""
    subject_kind: str | None
    subject_id: str | None
    position: int
    erased_from: list[int]
    erased_to: list[int]
    opened_at: datetime


class UnloggedScope(NamedTuple):
    """A deleted scope that is not logged yet."""

    scope_key: int
    tenant_id: str
    scope_id: str
    ledger_id: bytes
    requested_at: datetime


async def unlogged(conn: Connection, limit: int) -> list[Unlogged]:
    """The oldest erasures that are not logged, locked until the end of the transaction."""
    return [Unlogged(*row) for row in await conn.fetch(SELECT_UNLOGGED_SQL, limit)]


async def unlogged_scopes(conn: Connection, limit: int) -> list[UnloggedScope]:
    """The same of deleted scopes."""
    return [UnloggedScope(*row) for row in await conn.fetch(SELECT_UNLOGGED_SCOPES_SQL, limit)]


async def note(conn: Connection, rows: Sequence[Unlogged], scopes: Sequence[UnloggedScope]) -> None:
    """They are logged."""
    if rows:
        await conn.execute(NOTE_SQL, [row.erasure_id for row in rows], [row.scope_key for row in rows])
    if scopes:
        await conn.execute(NOTE_SCOPES_SQL, [row.scope_key for row in scopes])


async def known_stream(conn: Connection) -> tuple[str | None, datetime]:
    """When the stream was made that holds what is logged, as the server wrote it; and the store's clock."""
    row = await conn.fetchrow(STREAM_SQL)
    assert row is not None
    return row[0], row[1]


async def begin_stream(conn: Connection, created: str, before: datetime) -> None:
    """The log is another stream now: what was logged before is to be logged again. Cut off, it can be called again."""
    while await conn.execute(FORGET_SQL, before, _FORGOTTEN_AT_ONCE) == f"UPDATE {_FORGOTTEN_AT_ONCE}":
        continue
    await conn.execute(FORGET_SCOPES_SQL, before)
    await conn.execute(KEEP_STREAM_SQL, created)
