"""Sealed snapshots, each held against the ledger that it was sealed on."""

from __future__ import annotations

from typing import Any, NamedTuple

import asyncpg
import orjson

from pamspec_common import snapshots
from pamspec_common.authorization.rows import shown
from pamspec_common.authorization.sight import Sight
from pamspec_common.errors import SnapshotNotFound
from pamspec_common.ledger import genesis
from pamspec_common.postgres import Connection
from pamspec_query.model.snapshots import Snapshot

SNAPSHOT_SQL = """
SELECT p.document, p.ledger_epoch, p.watermark, l.entry_hash, s.ledger_id
FROM core.snapshot p JOIN core.scope s USING (scope_key)
LEFT JOIN core.ledger l ON l.scope_key = p.scope_key AND l.sequence = p.watermark
WHERE p.scope_key = $1 AND p.snapshot_id = $2"""

# Each object's newest version up to the position, found from its own end: what others did since costs nothing.
MEMBER_VERSIONS_SQL = """
SELECT v.ledger_seq FROM unnest($2::text[]) AS k (object_id)
CROSS JOIN LATERAL (
  SELECT v.ledger_seq FROM core.version v
  WHERE v.object_id = k.object_id AND v.scope_key = $1 AND v.ledger_seq <= $3 AND v.kind IN ('o', 'r')
  ORDER BY v.version_seq DESC LIMIT 1) v
"""

_LISTED = """
WITH page AS MATERIALIZED (
  SELECT snapshot_id, ledger_epoch, document FROM core.snapshot
  WHERE scope_key = $1 AND snapshot_id > $2 AND ($3::text IS NULL OR snapshot_id = $3)
"""
_MEMBERS_SHOWN = """
  AND NOT EXISTS (
    SELECT FROM jsonb_array_elements_text(coalesce(query.as_jsonb({document}) -> 'included_object_ids', '[]')) m (id)
    JOIN core.version_span s ON s.scope_key = $1 AND s.object_id = m.id AND s.to_seq = 9223372036854775807
    WHERE NOT """
_PAGED = """
  ORDER BY snapshot_id LIMIT $4),
weighed AS (
  SELECT page.*, count(*) OVER () AS found, row_number() OVER (ORDER BY snapshot_id) AS n,
         sum(octet_length(document)) OVER (ORDER BY snapshot_id) AS bytes
  FROM page)
SELECT snapshot_id, ledger_epoch, document, found FROM weighed WHERE n = 1 OR bytes <= $5 ORDER BY n
"""
SNAPSHOT_PAGE_SQL = _LISTED + _PAGED

SCOPE_OF_SNAPSHOT_SQL = "SELECT scope_id FROM core.resolve_snapshot($1, $2)"


class Sealed(NamedTuple):
    """A snapshot as it is listed."""

    snapshot_id: str
    ledger_epoch: int
    document: bytes


async def scope_of(conn: Connection, tenant_id: str, snapshot_id: str) -> str | None:
    """The scope of a tenant's snapshot."""
    found: str | None = await conn.fetchval(SCOPE_OF_SNAPSHOT_SQL, tenant_id, snapshot_id)
    return found


async def page(
    conn: Connection, scope_key: int, snapshot_id: str | None, after: str, limit: int, max_bytes: int, sight: Sight
) -> tuple[list[Sealed], bool]:
    """Snapshots by id, at most `limit` and about `max_bytes`, and whether more follow; or the one of that id.

    One that names a member that is not seen is left out.
    """
    values: list[Any] = [scope_key, after, snapshot_id, limit + 1, max_bytes]
    sql = SNAPSHOT_PAGE_SQL
    if not sight.everything:
        sql = _LISTED + _members_shown("document", sight, values) + _PAGED
    rows = await conn.fetch(sql, *values)
    found = [Sealed(row["snapshot_id"], row["ledger_epoch"], row["document"]) for row in rows[:limit]]
    return found, bool(rows) and rows[0]["found"] > len(found)


def _members_shown(document: str, sight: Sight, values: list[Any]) -> str:
    """That no member of the snapshot in that column is hidden; its arguments join the statement's `values`."""
    return _MEMBERS_SHOWN.replace("{document}", document) + shown(sight, values, is_head=True) + ")"


async def snapshot(conn: Connection, scope_key: int, snapshot_id: str, sight: Sight) -> Snapshot:
    """A snapshot of the scope.

    SnapshotNotFound for one that is missing, of another scope or with a member that is not seen, alike and by the same
    statement; and for one whose ledger is not the one any
    more that it was sealed on: it is never answered from another state.
    """
    values: list[Any] = [scope_key, snapshot_id]
    sql = SNAPSHOT_SQL if sight.everything else SNAPSHOT_SQL + _members_shown("p.document", sight, values)
    row = await conn.fetchrow(sql, *values)
    if row is None:
        raise SnapshotNotFound
    found = _snapshot(row)
    at = genesis(row["ledger_id"]) if found.position == 0 else row["entry_hash"]
    if at is None or not snapshots.holds(found.descriptor, at):
        raise SnapshotNotFound(
            "The ledger no longer holds what this snapshot was sealed on; seal another one.",
            details={"reason": "ledger_differs"},
        )
    return found


async def versions(conn: Connection, scope_key: int, of: Snapshot) -> list[int] | None:
    """The ledger sequences of the versions that a snapshot's members had; None for a snapshot of the whole scope."""
    if of.members is None:
        return None
    return [row["ledger_seq"] for row in await conn.fetch(MEMBER_VERSIONS_SQL, scope_key, of.members, of.position)]


def _snapshot(row: asyncpg.Record) -> Snapshot:
    descriptor = orjson.loads(row["document"])
    return Snapshot(row["watermark"], row["ledger_epoch"], descriptor.get("included_object_ids"), descriptor)
