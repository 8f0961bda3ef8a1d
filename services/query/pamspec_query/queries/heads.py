"""Scopes, heads and single versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from pamspec_common.authorization.rights import Epochs
from pamspec_common.authorization.rows import shown
from pamspec_common.authorization.sight import Sight
from pamspec_common.postgres import Connection
from pamspec_query.model.positions import Head
from pamspec_query.queries.predicates import Arguments

MIGRATED_SQL = """
SELECT EXISTS (
  SELECT FROM pg_proc
  WHERE oid = to_regprocedure('query.read_heads(bigint[],text[],text,bigint)') AND 'ends' = ANY (proargnames))
"""

RESOLVE_SCOPE_SQL = "SELECT scope_key, document FROM core.resolve_scope($1, $2)"

SCOPE_HEAD_SQL = """
SELECT h.last_seq, h.ledger_epoch, h.epoch_authz, t.epoch_authz AS tenant_authz
FROM core.scope_head h JOIN core.scope s USING (scope_key) JOIN core.tenant t USING (tenant_id) WHERE h.scope_key = $1
"""
SCOPE_HEADS_SQL = """
SELECT h.scope_key, h.last_seq, h.ledger_epoch, h.epoch_authz, t.epoch_authz AS tenant_authz
FROM core.scope_head h JOIN core.scope s USING (scope_key) JOIN core.tenant t USING (tenant_id)
WHERE h.scope_key = ANY ($1::bigint[])
"""

READ_HEADS_SQL = """
SELECT last_seq, ledger_epoch, epoch_authz, tenant_authz, kind, held_back, metadata, content, private, memory, ends
FROM query.read_heads($1::bigint[], $2::text[], $3::text, $4::bigint)
"""

NOW_SQL = "SELECT clock_timestamp()"

POSITIONS_AT_SQL = """
SELECT query.position_at($1, t, $3::bigint) FROM unnest($2::timestamptz[]) WITH ORDINALITY AS k (t, n) ORDER BY n
"""
POSITION_AT_SQL = "SELECT query.position_at($1, $2::timestamptz, $3::bigint)"

VERSION_SQL = """
SELECT v.ledger_seq, v.metadata, p.content, p.private, s.availability_state AS head_availability
FROM core.version v
JOIN core.version_value p ON p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq
JOIN core.version_span s ON s.scope_key = v.scope_key AND s.object_id = v.object_id AND s.to_seq = 9223372036854775807
WHERE v.scope_key = $1 AND v.version_id = $2 AND v.object_id = $3 AND v.kind = $4 AND v.ledger_seq <= $5
"""

VERSION_AS_OF_SQL = """
SELECT v.ledger_seq, v.metadata, p.content, p.private, h.availability_state AS head_availability
FROM core.version v
JOIN core.version_value p ON p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq
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
_SHOWN_HEAD = (
    " AND EXISTS (SELECT FROM core.version_span s"
    " WHERE s.scope_key = $1 AND s.object_id = $2 AND s.to_seq = 9223372036854775807 AND "
)


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
    memory: Sequence[str] | None = None
    """The values of its attributes, in the order of the vocabulary of rules."""
    ends: Sequence[Sequence[str]] = ()
    """Those of the ends of a relationship that lie in its own scope."""


async def is_migrated(conn: Connection) -> bool:
    """Whether the database has what this service needs."""
    return bool(await conn.fetchval(MIGRATED_SQL))


async def resolve_scope(conn: Connection, tenant_id: str, scope_id: str) -> tuple[int, bytes] | None:
    """The key and the document of a tenant's scope."""
    row = await conn.fetchrow(RESOLVE_SCOPE_SQL, tenant_id, scope_id)
    return None if row is None else (row["scope_key"], row["document"])


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
        HeadRow(
            _head(row) if row["last_seq"] is not None else None,
            row["kind"],
            row["held_back"],
            _stored(row),
            row["memory"],
            row["ends"] or (),
        )
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
    conn: Connection, scope_key: int, object_id: str, kind: bytes, version_id: str, position: int, sight: Sight
) -> tuple[Stored, str] | None:
    """A version by its id that was there at a position and is seen, and the availability of its object now."""
    row = await _in_sight(conn, VERSION_SQL, sight, scope_key, version_id, object_id, kind, position)
    return None if row is None else (_whole(row), row["head_availability"])


async def version_as_of(
    conn: Connection,
    scope_key: int,
    object_id: str,
    kind: bytes,
    position: int,
    valid_at: datetime | None,
    sight: Sight,
) -> tuple[Stored, str] | None:
    """The newest version at a position (of those valid at an instant), and the availability of its object now.

    None also where that version is not seen: an older one never stands in for it.
    """
    row = await _in_sight(conn, VERSION_AS_OF_SQL, sight, scope_key, object_id, kind, position, valid_at)
    return None if row is None else (_whole(row), row["head_availability"])


async def object_exists(
    conn: Connection, scope_key: int, object_id: str, kind: bytes, position: int, sight: Sight
) -> bool:
    """Whether an object, relationship or delegation that is seen was made in a scope, up to a position."""
    if sight.everything:
        return bool(await conn.fetchval(OBJECT_EXISTS_SQL, scope_key, object_id, kind, position))
    arguments = Arguments([scope_key, object_id, kind, position])
    sql = "SELECT (" + OBJECT_EXISTS_SQL + ")" + _SHOWN_HEAD + shown(sight, arguments.values, is_head=True) + ")"
    return bool(await conn.fetchval(sql, *arguments.values))


async def _in_sight(conn: Connection, sql: str, sight: Sight, *given: Any) -> asyncpg.Record | None:
    """The one row of a statement whose first argument is the scope, when its version is seen."""
    if sight.everything:
        return await conn.fetchrow(sql, *given)
    arguments = Arguments(given)
    condition = shown(sight, arguments.values)
    return await conn.fetchrow(
        "SELECT f.* FROM (" + sql + ") f WHERE EXISTS (SELECT FROM core.version_span s"
        " WHERE s.scope_key = $1 AND s.from_seq = f.ledger_seq AND " + condition + ")",
        *arguments.values,
    )  # fmt: skip


def _head(row: asyncpg.Record) -> Head:
    return Head(row["last_seq"], row["ledger_epoch"], Epochs(row["epoch_authz"], row["tenant_authz"]))


def _stored(row: asyncpg.Record) -> Stored | None:
    return None if row["metadata"] is None else _whole(row)


def _whole(row: asyncpg.Record) -> Stored:
    return Stored(row["metadata"], row["content"], row["private"])
