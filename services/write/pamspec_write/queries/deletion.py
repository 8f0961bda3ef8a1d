"""The deletion of a scope: what is decided at once, and what the job erases step by step."""

from __future__ import annotations

from typing import NamedTuple

import asyncpg

from pamspec_common.postgres import Connection
from pamspec_write.queries.usage import let_go

DELETION_SQL = """
SELECT actor_id, policy_basis, requested_at, erased_versions, finished_at FROM core.scope_deletion WHERE scope_key = $1
"""
HELD_SQL = """
SELECT (SELECT l.hold_id FROM core.legal_hold l WHERE l.scope_key = $1 AND NOT l.undone ORDER BY l.placed_at LIMIT 1),
  EXISTS (SELECT FROM core.version_span s WHERE s.scope_key = $1 AND s.retention_state = 'legal_hold'
    AND s.to_seq = 9223372036854775807)
"""
COUNTS_SQL = """
SELECT h.last_seq AS entries,
  (SELECT count(*) FROM core.version_span s WHERE s.scope_key = $1 AND s.to_seq = 9223372036854775807) AS objects,
  (SELECT count(*) FROM core.version v WHERE v.scope_key = $1) AS versions,
  (SELECT count(*) FROM core.role_binding b WHERE b.tenant_id = $2 AND b.scope_key = $1) AS role_bindings
FROM core.scope_head h WHERE h.scope_key = $1
"""
INSERT_DELETION_SQL = """
INSERT INTO core.scope_deletion (scope_key, actor_id, operation_id, policy_basis) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
"""
DELETE_BINDINGS_SQL = "DELETE FROM core.role_binding WHERE tenant_id = $1 AND scope_key = $2"

DUE_SQL = "SELECT scope_key, tenant_id FROM core.deletions_due($1)"
# No lease lasts ten minutes: one that ends later was written before the store's clock jumped back.
LEASE_SQL = """
UPDATE core.scope_deletion SET leased_until = clock_timestamp() + make_interval(secs => $2)
WHERE scope_key = $1 AND finished_at IS NULL
  AND (leased_until < clock_timestamp() OR leased_until > clock_timestamp() + interval '10 minutes')
RETURNING done_seq, erased_versions, actor_id, operation_id, policy_basis
"""

# The next versions in the order of the ledger lose everything that an erasure removes. $2: after; $3: how many.
ERASE_STEP_SQL = """
WITH target AS MATERIALIZED (
  SELECT ledger_seq, operation_hash FROM core.version_private
  WHERE scope_key = $1 AND ledger_seq > $2 ORDER BY ledger_seq LIMIT $3),
spans AS (
  UPDATE core.version_span s SET content = NULL
  WHERE s.scope_key = $1 AND s.from_seq > $2 AND s.from_seq <= (SELECT max(ledger_seq) FROM target)
    AND s.content IS NOT NULL),
records AS (
  UPDATE core.operation_record r SET salt = NULL, fingerprint = NULL, answer = NULL
  WHERE r.ctid = ANY (ARRAY (
    SELECT o.ctid FROM target t CROSS JOIN LATERAL (
      SELECT o.ctid FROM core.operation_record o
      WHERE o.operation_hash = t.operation_hash AND o.scope_key = $1 LIMIT 1) o))),
sources AS (
  UPDATE core.source_event e SET salt = NULL, fingerprint = NULL
  WHERE e.ctid = ANY (ARRAY (
    SELECT o.ctid FROM target t CROSS JOIN LATERAL (
      SELECT o.ctid FROM core.source_event o
      WHERE o.operation_hash = t.operation_hash AND o.scope_key = $1 OFFSET 0) o))),
private AS (
  UPDATE core.version_private p SET salt = NULL, content = NULL, private = NULL
  WHERE p.scope_key = $1 AND p.ledger_seq > $2 AND p.ledger_seq <= (SELECT max(ledger_seq) FROM target))
SELECT count(*) AS erased, max(ledger_seq) AS until FROM target
"""
ERASE_RECORDS_SQL = """
UPDATE core.operation_record SET salt = NULL, fingerprint = NULL, answer = NULL
WHERE ctid = ANY (ARRAY (
  SELECT o.ctid FROM core.operation_record o
  WHERE o.scope_key = $1 AND o.ledger_seq IS NULL AND (o.salt IS NOT NULL OR o.answer IS NOT NULL) LIMIT $2))
"""
RULES_GONE = (
    "DELETE FROM core.access_rules WHERE tenant_id = $2 AND scope_key = $1",
    "DELETE FROM core.role_binding WHERE tenant_id = $2 AND scope_key = $1",
    "DELETE FROM core.scope_policy WHERE scope_key = $1 AND $2::text IS NOT NULL",
    "DELETE FROM core.content_schema WHERE scope_key = $1 AND $2::text IS NOT NULL",
    "DELETE FROM core.held_object WHERE scope_key = $1 AND $2::text IS NOT NULL",
    "DELETE FROM core.legal_hold WHERE scope_key = $1 AND $2::text IS NOT NULL",
    "DELETE FROM core.forget_item WHERE scope_key = $1 AND $2::text IS NOT NULL",
    "DELETE FROM core.forget WHERE scope_key = $1 AND $2::text IS NOT NULL",
)
PROGRESS_SQL = """
UPDATE core.scope_deletion SET done_seq = $2, erased_versions = $3,
  leased_until = clock_timestamp() + make_interval(secs => $4)
WHERE scope_key = $1
"""
FINISH_SQL = """
UPDATE core.scope_deletion SET finished_at = clock_timestamp(), leased_until = 'infinity' WHERE scope_key = $1
"""


class Held(NamedTuple):
    """What keeps a scope from being deleted."""

    hold_id: str | None
    objects: bool


class LeasedDeletion(NamedTuple):
    """A deletion that this process works on."""

    scope_key: int
    tenant_id: str
    done_seq: int
    erased_versions: int
    actor_id: str
    operation_id: str
    policy_basis: str


async def deletion(conn: Connection, scope_key: int) -> asyncpg.Record | None:
    """The deletion of a scope, however far it is."""
    return await conn.fetchrow(DELETION_SQL, scope_key)


async def held(conn: Connection, scope_key: int) -> Held:
    """The holds over a scope that is locked."""
    row = await conn.fetchrow(HELD_SQL, scope_key)
    assert row is not None
    return Held(*row)


async def lease(conn: Connection, scope_key: int, tenant_id: str, seconds: float) -> LeasedDeletion | None:
    """Take a deletion's work for that long; None when somebody else has it."""
    row = await conn.fetchrow(LEASE_SQL, scope_key, seconds)
    return None if row is None else LeasedDeletion(scope_key, tenant_id, *row)


async def erase_step(conn: Connection, work: LeasedDeletion, limit: int, lease_s: float) -> LeasedDeletion | None:
    """Erase the next versions and keep the work; None when no version is left."""
    row = await conn.fetchrow(ERASE_STEP_SQL, work.scope_key, work.done_seq, limit)
    assert row is not None
    if not row["erased"]:
        return None
    done = work._replace(done_seq=row["until"], erased_versions=work.erased_versions + row["erased"])
    await conn.execute(PROGRESS_SQL, work.scope_key, done.done_seq, done.erased_versions, lease_s)
    return done


async def erase_records(conn: Connection, scope_key: int, limit: int) -> bool:
    """Erase records of what made no version; whether some may be left."""
    done = await conn.execute(ERASE_RECORDS_SQL, scope_key, limit)
    return done != "UPDATE 0"


async def finish(conn: Connection, work: LeasedDeletion) -> None:
    """Remove the rules of the scope, and say that all is done."""
    for sql in RULES_GONE:
        await conn.execute(sql, work.scope_key, work.tenant_id)
    await let_go(conn, work.scope_key, work.tenant_id)
    await conn.execute(FINISH_SQL, work.scope_key)
