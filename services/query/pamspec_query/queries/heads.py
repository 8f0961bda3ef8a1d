"""Scopes, heads and single versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from pamspec_common.postgres import Connection
from pamspec_query.model.positions import Head

MIGRATED_SQL = (
    "SELECT to_regprocedure('query.find(bigint,bigint,bigint,integer,text[],text[],text[],text[],jsonb[])') IS NOT NULL"
)

RESOLVE_SCOPE_SQL = "SELECT scope_key, document FROM core.resolve_scope($1, $2)"
LIST_SCOPES_SQL = "SELECT scope_id, document FROM core.list_scopes($1, $2, $3)"

SCOPE_HEAD_SQL = "SELECT last_seq, ledger_epoch, epoch_authz FROM core.scope_head WHERE scope_key = $1"
SCOPE_HEADS_SQL = """
SELECT scope_key, last_seq, ledger_epoch, epoch_authz FROM core.scope_head WHERE scope_key = ANY ($1::bigint[])
"""

READ_HEADS_SQL = """
SELECT last_seq, ledger_epoch, epoch_authz, kind, held_back, metadata, content, private
FROM query.read_heads($1::bigint[], $2::text[], $3::text, $4::bigint)
"""

NOW_SQL = "SELECT clock_timestamp()"

POSITIONS_AT_SQL = """
SELECT query.position_at($1, t, $3::bigint) FROM unnest($2::timestamptz[]) WITH ORDINALITY AS k (t, n) ORDER BY n
"""
POSITION_AT_SQL = "SELECT query.position_at($1, $2::timestamptz, $3::bigint)"

VERSION_SQL = """
SELECT v.metadata, p.content, p.private, s.availability_state AS head_availability
FROM core.version v
JOIN core.version_private p ON p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq
JOIN core.version_span s ON s.scope_key = v.scope_key AND s.object_id = v.object_id AND s.to_seq = 9223372036854775807
WHERE v.scope_key = $1 AND v.version_id = $2 AND v.object_id = $3 AND v.kind = $4 AND v.ledger_seq <= $5
"""

VERSION_AS_OF_SQL = """
SELECT v.metadata, p.content, p.private, h.availability_state AS head_availability
FROM core.version v
JOIN core.version_private p ON p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq
JOIN core.version_span s ON s.scope_key = v.scope_key AND s.from_seq = v.ledger_seq
JOIN core.version_span h ON h.scope_key = v.scope_key AND h.object_id = v.object_id AND h.to_seq = 9223372036854775807
WHERE v.scope_key = $1 AND v.object_id = $2 AND v.kind = $3 AND v.ledger_seq <= $4
  AND ($5::timestamptz IS NULL
       OR ((s.valid_from IS NULL OR s.valid_from <= $5) AND (s.valid_until IS NULL OR s.valid_until > $5)))
ORDER BY v.version_seq DESC LIMIT 1
"""

OBJECT_EXISTS_SQL = """
SELECT EXISTS (
  SELECT FROM core.version
  WHERE scope_key = $1 AND object_id = $2 AND kind = $3 AND version_seq = 1 AND ledger_seq <= $4)
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored version: its immutable half, and the erasable ones, None once erased (content also in a tombstone)."""

    metadata: bytes
    content: bytes | None
    private: bytes | None


@dataclass(frozen=True, slots=True)
class HeadRow:
    """The answer of a read by id: where the scope stands, and the head if there is one."""

    head: Head | None
    kind: bytes | None
    held_back: bool
    stored: Stored | None


async def is_migrated(conn: Connection) -> bool:
    """Whether the database has what this service needs."""
    return bool(await conn.fetchval(MIGRATED_SQL))


async def resolve_scope(conn: Connection, tenant_id: str, scope_id: str) -> tuple[int, bytes] | None:
    """The key and the document of a tenant's scope."""
    row = await conn.fetchrow(RESOLVE_SCOPE_SQL, tenant_id, scope_id)
    return None if row is None else (row["scope_key"], row["document"])


async def list_scopes(conn: Connection, tenant_id: str, after: str, limit: int) -> list[tuple[str, bytes]]:
    """Ids and documents of a tenant's scopes after an id, in their order."""
    return [(row["scope_id"], row["document"]) for row in await conn.fetch(LIST_SCOPES_SQL, tenant_id, after, limit)]


async def scope_head(conn: Connection, scope_key: int) -> Head | None:
    """Where a scope's ledger stands."""
    row = await conn.fetchrow(SCOPE_HEAD_SQL, scope_key)
    return None if row is None else _head(row)


async def scope_heads(conn: Connection, scope_keys: Sequence[int]) -> dict[int, Head]:
    """Where the ledgers of several scopes stand."""
    return {row["scope_key"]: _head(row) for row in await conn.fetch(SCOPE_HEADS_SQL, scope_keys)}


async def read_heads(conn: Connection, scope_keys: Sequence[int], ids: Sequence[str], max_bytes: int) -> list[HeadRow]:
    """The heads of (scope, id) pairs, in their order; at least the first comes whole."""
    visible = "{" + ",".join(map(str, set(scope_keys))) + "}"
    return [
        HeadRow(_head(row) if row["last_seq"] is not None else None, row["kind"], row["held_back"], _stored(row))
        for row in await conn.fetch(READ_HEADS_SQL, scope_keys, ids, visible, max_bytes)
    ]


async def now(conn: Connection) -> datetime:
    """The store's clock."""
    instant: datetime = await conn.fetchval(NOW_SQL)
    return instant


async def position_at(conn: Connection, scope_key: int, instant: datetime, last_seq: int) -> int:
    """The last sequence that was recorded at or before an instant; 0 before the first."""
    position: int = await conn.fetchval(POSITION_AT_SQL, scope_key, instant, last_seq)
    return position


async def positions_at(conn: Connection, scope_key: int, instants: Sequence[datetime], last_seq: int) -> list[int]:
    """The same for several instants."""
    return [row[0] for row in await conn.fetch(POSITIONS_AT_SQL, scope_key, instants, last_seq)]


async def version(
    conn: Connection, scope_key: int, object_id: str, kind: bytes, version_id: str, position: int
) -> tuple[Stored, str] | None:
    """A version by its id that was there at a position, and the availability of its object now."""
    row = await conn.fetchrow(VERSION_SQL, scope_key, version_id, object_id, kind, position)
    return None if row is None else (_whole(row), row["head_availability"])


async def version_as_of(
    conn: Connection, scope_key: int, object_id: str, kind: bytes, position: int, valid_at: datetime | None
) -> tuple[Stored, str] | None:
    """The newest version at a position (of those valid at an instant), and the availability of its object now."""
    row = await conn.fetchrow(VERSION_AS_OF_SQL, scope_key, object_id, kind, position, valid_at)
    return None if row is None else (_whole(row), row["head_availability"])


async def object_exists(conn: Connection, scope_key: int, object_id: str, kind: bytes, position: int) -> bool:
    """Whether an object, relationship or delegation was made in a scope, up to a position."""
    return bool(await conn.fetchval(OBJECT_EXISTS_SQL, scope_key, object_id, kind, position))


def _head(row: asyncpg.Record) -> Head:
    return Head(row["last_seq"], row["ledger_epoch"], row["epoch_authz"])


def _stored(row: asyncpg.Record) -> Stored | None:
    return None if row["metadata"] is None else _whole(row)


def _whole(row: asyncpg.Record) -> Stored:
    return Stored(row["metadata"], row["content"], row["private"])
