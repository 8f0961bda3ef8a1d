"""Pages of a scope for its export: entries with everything that they made, as it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import asyncpg

from pamspec_common.documents import Retention
from pamspec_common.postgres import Connection

EXPORT_SCOPE_SQL = """
SELECT s.document, s.ledger_id, h.last_seq, h.ledger_epoch FROM core.scope s JOIN core.scope_head h USING (scope_key)
WHERE s.scope_key = $1
"""

# The next `$4` positions, of which as many are answered as weigh `$5` bytes, and at least one. Each part is looked up
# by its key, row by row (LATERAL with LIMIT), so that no plan joins ranges, whatever the statistics of a young table
# say. The records come with the version that they answer.
EXPORT_PAGE_SQL = """
WITH page AS MATERIALIZED (
  SELECT l.sequence, l.event, l.entry_hash, v.object_id, v.version_seq, v.metadata, p.operation_hash, p.salt,
         p.content, p.private
  FROM (SELECT * FROM core.ledger WHERE scope_key = $1 AND sequence > $2 AND sequence <= least($3, $2 + $4)) l
  LEFT JOIN LATERAL (
    SELECT * FROM core.version v WHERE v.scope_key = $1 AND v.ledger_seq = l.sequence LIMIT 1) v ON true
  LEFT JOIN LATERAL (
    SELECT * FROM core.version_value p WHERE p.scope_key = $1 AND p.ledger_seq = l.sequence LIMIT 1) p ON true
), weighed AS (
  SELECT page.*, row_number() OVER (ORDER BY sequence) AS n,
         sum(octet_length(event) + coalesce(octet_length(content), 0) + coalesce(octet_length(private), 0))
           OVER (ORDER BY sequence) AS bytes
  FROM page)
SELECT w.sequence, w.event, w.entry_hash, w.object_id, w.version_seq, w.metadata, w.operation_hash, w.salt, w.content,
       w.private, r.operation, r.operation_id, r.actor_id, r.status, r.last_seq, r.created_at, r.key_hash,
       r.salt AS record_salt, r.fingerprint, r.answer, e.source_hash, e.salt AS source_salt,
       e.fingerprint AS source_fingerprint
FROM weighed w
LEFT JOIN LATERAL (
  SELECT * FROM core.operation_record r
  WHERE r.operation_hash = w.operation_hash AND r.scope_key = $1 AND r.ledger_seq = w.sequence AND r.state = 'c'
  LIMIT 1) r ON true
LEFT JOIN LATERAL (
  SELECT * FROM core.source_event e WHERE e.operation_hash = r.operation_hash AND e.scope_key = $1 LIMIT 1) e ON true
WHERE w.n = 1 OR w.bytes <= $5 ORDER BY w.sequence
"""


EXPORT_POLICIES_SQL = """
SELECT policy_version, policy, policy_basis, actor_id, authenticated_as, operation_id, changed_at
FROM core.scope_policy WHERE scope_key = $1 AND policy_version > $2 ORDER BY policy_version LIMIT $3
"""

EXPORT_SCHEMAS_SQL = """
SELECT schema_id, document, actor_id, operation_id, registered_at, authenticated_as
FROM core.content_schema WHERE scope_key = $1 AND schema_id > $2 ORDER BY schema_id LIMIT $3
"""

EXPORT_HOLDS_SQL = """
SELECT hold_id, policy_basis, actor_id, operation_id, placed_at, placed_seq, undone, object_type, authenticated_as,
       released_at, release_basis, released_by, release_operation_id
FROM core.legal_hold WHERE scope_key = $1 AND hold_id > $2 AND placed_seq <= $3 ORDER BY hold_id LIMIT $4
"""

EXPORT_HELD_SQL = """
SELECT hold_id, object_id, retention_state FROM core.held_object
WHERE scope_key = $1 AND (hold_id, object_id) > ($2, $3) ORDER BY hold_id, object_id LIMIT $4
"""

EXPORT_SNAPSHOTS_SQL = """
SELECT snapshot_id, ledger_epoch, watermark, gives_clock, created_at, document, evaluation_run_id
FROM core.snapshot WHERE scope_key = $1 AND snapshot_id > $2 AND watermark <= $3 ORDER BY snapshot_id LIMIT $4
"""


class ScopeRow(NamedTuple):
    """A scope, the root of its chain and where it stands."""

    document: bytes
    ledger_id: bytes
    last_seq: int
    ledger_epoch: int


class PolicyRow(NamedTuple):
    """A version of a scope's policy."""

    policy_version: int
    policy: bytes
    policy_basis: str | None
    actor_id: str
    authenticated_as: str | None
    operation_id: str
    changed_at: datetime


class SchemaRow(NamedTuple):
    """A schema of content."""

    schema_id: str
    document: bytes
    actor_id: str
    operation_id: str
    registered_at: datetime
    authenticated_as: str | None


class HoldRow(NamedTuple):
    """A legal hold."""

    hold_id: str
    policy_basis: str
    actor_id: str
    operation_id: str
    placed_at: datetime
    placed_seq: int
    undone: bool
    object_type: str | None
    authenticated_as: str | None
    released_at: datetime | None
    release_basis: str | None
    released_by: str | None
    release_operation_id: str | None


class HeldRow(NamedTuple):
    """An object that a hold has put on hold."""

    hold_id: str
    object_id: str
    retention_state: Retention


class SnapshotRow(NamedTuple):
    """A sealed snapshot."""

    snapshot_id: str
    ledger_epoch: int
    watermark: int
    gives_clock: bool
    created_at: datetime
    document: bytes
    evaluation_run_id: str | None


class EntryRow(NamedTuple):
    """An entry, the version that it made, and what is remembered of the operation; what is missing is None."""

    sequence: int
    event: bytes
    entry_hash: bytes
    object_id: str | None
    version_seq: int | None
    metadata: bytes | None
    operation_hash: bytes | None
    salt: bytes | None
    content: bytes | None
    private: bytes | None
    operation: str | None
    operation_id: str | None
    actor_id: str | None
    status: int | None
    last_seq: int | None
    created_at: datetime | None
    key_hash: bytes | None
    record_salt: bytes | None
    fingerprint: bytes | None
    answer: bytes | None
    source_hash: bytes | None
    source_salt: bytes | None
    source_fingerprint: bytes | None


async def export_scope(conn: Connection, scope_key: int) -> ScopeRow | None:
    """The scope that is exported."""
    row = await conn.fetchrow(EXPORT_SCOPE_SQL, scope_key)
    return None if row is None else ScopeRow._make(row)


async def export_page(
    conn: Connection, scope_key: int, after: int, until: int, rows: int, max_bytes: int
) -> Sequence[EntryRow]:
    """The next entries in order, at least one where there is one."""
    found: list[asyncpg.Record] = await conn.fetch(EXPORT_PAGE_SQL, scope_key, after, until, rows, max_bytes)
    return [EntryRow._make(row) for row in found]


async def export_policies(conn: Connection, scope_key: int, after: int, limit: int) -> list[PolicyRow]:
    """The next versions of the scope's policy, the oldest first."""
    return [PolicyRow._make(row) for row in await conn.fetch(EXPORT_POLICIES_SQL, scope_key, after, limit)]


async def export_schemas(conn: Connection, scope_key: int, after: str, limit: int) -> list[SchemaRow]:
    """The next schemas of the scope's content, in the order of their ids."""
    return [SchemaRow._make(row) for row in await conn.fetch(EXPORT_SCHEMAS_SQL, scope_key, after, limit)]


async def export_holds(conn: Connection, scope_key: int, after: str, until: int, limit: int) -> list[HoldRow]:
    """The next holds placed up to a position, in the order of their ids."""
    return [HoldRow._make(row) for row in await conn.fetch(EXPORT_HOLDS_SQL, scope_key, after, until, limit)]


async def export_held(conn: Connection, scope_key: int, after: tuple[str, str], limit: int) -> list[HeldRow]:
    """The next objects on hold, in the order of their holds and ids."""
    return [HeldRow._make(row) for row in await conn.fetch(EXPORT_HELD_SQL, scope_key, *after, limit)]


async def export_snapshots(conn: Connection, scope_key: int, after: str, until: int, limit: int) -> list[SnapshotRow]:
    """The next snapshots of positions up to one, in the order of their ids."""
    return [SnapshotRow._make(row) for row in await conn.fetch(EXPORT_SNAPSHOTS_SQL, scope_key, after, until, limit)]
