"""Forgets: the set that one begins with, and what its job reads and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pamspec_common.postgres import Connection
from pamspec_write.documents.forgetting import BeginForget
from pamspec_write.model.facts import ScopeRef

BEGIN_SQL = """
INSERT INTO core.forget (scope_key, erasure_id, token, actor_id, actor_kind, policy_basis, total)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (scope_key, token) DO NOTHING
"""
ITEMS_SQL = """
INSERT INTO core.forget_item (scope_key, erasure_id, object_id, kind, version_ids)
SELECT $1, $2, k.id, k.kind::"char", string_to_array(nullif(k.versions, ''), ' ')
FROM unnest($3::text[], $4::text[], $5::text[]) AS k (id, kind, versions)
"""
# The receipt of the whole: it is looked after once the job has finished.
RECEIPT_SQL = """
INSERT INTO core.erasure (scope_key, erasure_id, tenant_id, kind, operation_id, actor_id, position, erased_from,
  erased_to, due_at)
VALUES ($1, $2, $3, 'f', $4, $5, $6, '{}', '{}', 'infinity')
"""
TOTAL_SQL = "SELECT total FROM core.forget WHERE scope_key = $1 AND erasure_id = $2"

DUE_SQL = """
SELECT scope_key, erasure_id, tenant_id, scope_id, tenant_token, scope_token, partition FROM core.forgets_due($1)
"""
# One process works on a forget at a time; what a killed one leaves is taken up when its lease has run out.
# No lease lasts ten minutes: one that ends later was written before the store's clock jumped back.
LEASE_SQL = """
UPDATE core.forget SET leased_until = clock_timestamp() + make_interval(secs => $3)
WHERE scope_key = $1 AND erasure_id = $2 AND finished_at IS NULL
  AND (leased_until < clock_timestamp() OR leased_until > clock_timestamp() + interval '10 minutes')
RETURNING actor_id, actor_kind, policy_basis
"""
KEEP_SQL = """
UPDATE core.forget SET leased_until = clock_timestamp() + make_interval(secs => $3)
WHERE scope_key = $1 AND erasure_id = $2
"""
# What is pending, with its head of this moment and those of its versions that still hold values.
NEXT_SQL = """
SELECT i.object_id, i.kind, i.version_ids IS NULL AS whole, h.version_id, h.availability_state, v.version_ids
FROM (
  SELECT * FROM core.forget_item i
  WHERE i.scope_key = $1 AND i.erasure_id = $2 AND i.state = 'p' AND i.object_id > $3 ORDER BY i.object_id LIMIT $4) i
LEFT JOIN LATERAL (
  SELECT s.version_id, s.availability_state FROM core.version_span s
  WHERE s.object_id = i.object_id AND s.scope_key = $1 AND s.to_seq = 9223372036854775807 LIMIT 1) h ON true
LEFT JOIN LATERAL (
  SELECT array_agg(v.version_id ORDER BY v.version_seq) AS version_ids
  FROM unnest(i.version_ids) AS k (id)
  CROSS JOIN LATERAL (
    SELECT * FROM core.version v WHERE v.version_id = k.id AND v.scope_key = $1 LIMIT 1) v
  CROSS JOIN LATERAL (
    SELECT FROM core.version_private p
    WHERE p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq AND p.salt IS NOT NULL LIMIT 1) p) v ON true
ORDER BY i.object_id
"""
MARK_SQL = """
UPDATE core.forget_item i SET state = k.state::"char", code = k.code
FROM unnest($3::text[], $4::text[], $5::text[]) AS k (id, state, code)
WHERE i.scope_key = $1 AND i.erasure_id = $2 AND i.object_id = k.id
"""
FINISH_SQL = """
WITH done AS (
  UPDATE core.forget f SET finished_at = clock_timestamp()
  WHERE f.scope_key = $1 AND f.erasure_id = $2 AND NOT EXISTS (
    SELECT FROM core.forget_item i WHERE i.scope_key = $1 AND i.erasure_id = $2 AND i.state = 'p')
  RETURNING 1)
UPDATE core.erasure e SET due_at = clock_timestamp()
WHERE e.erasure_id = $2 AND e.scope_key = $1 AND EXISTS (SELECT FROM done)
"""


class LeasedForget(NamedTuple):
    """A forget that this process works on."""

    ref: ScopeRef
    erasure_id: str
    actor_id: str
    actor_kind: str
    policy_basis: str


class Item(NamedTuple):
    """What is to go of an object or a relationship, as it is now."""

    object_id: str
    kind: bytes
    whole: bool
    version_id: str | None
    """Of its current version."""
    availability_state: str | None
    version_ids: list[str] | None
    """Those that are to go and still hold values, the oldest first."""


async def begin_forget(
    conn: Connection, ref: ScopeRef, erasure_id: str, request: BeginForget, actor: tuple[str, str], operation_id: str
) -> int:
    """Note a forget with its items and open its receipt; one that began already is not begun again. Its total."""
    key = ref.scope_key
    items = request.items
    done = await conn.execute(BEGIN_SQL, key, erasure_id, request.token, *actor, request.policy_basis, len(items))
    if done.endswith(" 1"):
        versions = [" ".join(item.version_ids or ()) for item in items]
        await conn.execute(
            ITEMS_SQL, key, erasure_id, [item.id for item in items], [item.kind for item in items], versions
        )
        await conn.execute(RECEIPT_SQL, key, erasure_id, ref.tenant_id, operation_id, actor[0], request.ledger_sequence)
    total: int = await conn.fetchval(TOTAL_SQL, key, erasure_id)
    return total


async def due(conn: Connection, limit: int) -> list[tuple[ScopeRef, str]]:
    """Forgets with work, and their scopes."""
    return [
        (
            ScopeRef(
                row["scope_key"], row["tenant_id"], row["scope_id"], row["tenant_token"], row["scope_token"],
                row["partition"],
            ),
            row["erasure_id"],
        )
        for row in await conn.fetch(DUE_SQL, limit)
    ]  # fmt: skip


async def lease(conn: Connection, ref: ScopeRef, erasure_id: str, seconds: float) -> LeasedForget | None:
    """Take a forget's work for that long; None when somebody else has it."""
    row = await conn.fetchrow(LEASE_SQL, ref.scope_key, erasure_id, seconds)
    return None if row is None else LeasedForget(ref, erasure_id, *row)


async def next_items(conn: Connection, work: LeasedForget, after: str, limit: int) -> list[Item]:
    """Items that are pending, in the order of their ids."""
    return [Item(*row) for row in await conn.fetch(NEXT_SQL, work.ref.scope_key, work.erasure_id, after, limit)]


async def mark(
    conn: Connection, work: LeasedForget, found: Sequence[tuple[str, str, str | None]], lease_s: float
) -> None:
    """Note what became of items (id, state, code), and keep the work for that long; 0 gives it back."""
    key = work.ref.scope_key
    if found:
        columns = [list(column) for column in zip(*found, strict=True)]
        await conn.execute(MARK_SQL, key, work.erasure_id, *columns)
    await conn.execute(KEEP_SQL, key, work.erasure_id, lease_s)


async def finish(conn: Connection, work: LeasedForget) -> None:
    """Say that the work is done, if it is: from now on the receipt is looked after."""
    await conn.execute(FINISH_SQL, work.ref.scope_key, work.erasure_id)
