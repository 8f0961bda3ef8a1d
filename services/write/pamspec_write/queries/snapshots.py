"""Snapshots: what a sealing rests on, the runs that snapshots gave a clock or a seed, and the rows themselves.

Only batches that hold an operation of an evaluation send these statements.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import asyncpg
import orjson

from pamspec_common.postgres import Connection
from pamspec_write.model.facts import Evaluations
from pamspec_write.model.rows import SnapshotRow
from pamspec_write.model.snapshots import run_of

RUNS_SQL = """
SELECT k.tenant_id, r.document FROM unnest($1::text[], $2::text[]) AS k (tenant_id, run_id)
CROSS JOIN LATERAL core.evaluation_run(k.tenant_id, k.run_id) r
"""

SEALED_SQL = """
SELECT k.tenant_id, k.snapshot_id, s.scope_key FROM unnest($1::text[], $2::text[]) AS k (tenant_id, snapshot_id)
CROSS JOIN LATERAL core.resolve_snapshot(k.tenant_id, k.snapshot_id) s
"""

MEMBERS_SQL = """
SELECT k.scope_key, k.id, h.object_type, h.created_by AS creator, h.lifecycle_state, h.availability_state,
       h.retention_state, h.validation_state
FROM unnest($1::bigint[], $2::text[]) AS k (scope_key, id)
CROSS JOIN LATERAL (
  SELECT * FROM core.version v WHERE v.object_id = k.id AND v.scope_key = k.scope_key AND v.kind IN ('o', 'r')
  ORDER BY v.version_seq DESC LIMIT 1) v
CROSS JOIN LATERAL (
  SELECT * FROM core.version_span h WHERE h.scope_key = v.scope_key AND h.from_seq = v.ledger_seq LIMIT 1) h
"""

INSERT_SNAPSHOTS_SQL = """
INSERT INTO core.snapshot
  (scope_key, snapshot_id, tenant_id, evaluation_run_id, gives_clock, ledger_epoch, watermark, document, created_at)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::boolean[], $6::integer[], $7::bigint[],
  $8::bytea[], $9::timestamptz[])
ON CONFLICT DO NOTHING RETURNING 1
"""

_MEMORY = (
    "object_type",
    "creator",
    "lifecycle_state",
    "availability_state",
    "retention_state",
    "validation_state",
)

Pairs = Collection[tuple[str, str]]


async def evaluations(
    conn: Connection, tenants: Collection[str], runs: Pairs, snapshots: Pairs, members: Collection[tuple[int, str]]
) -> dict[str, Evaluations]:
    """What is known of these, by tenant_id; `members` are of all of them, told apart by scope_key."""
    existing = {
        (row["scope_key"], row["id"]): {name: row[name] for name in _MEMORY}
        for row in await _rows(conn, MEMBERS_SQL, members)
    }
    found = {tenant_id: Evaluations(members=existing) for tenant_id in tenants}
    for row in await _rows(conn, RUNS_SQL, runs):
        run = run_of(orjson.loads(row["document"]))
        found[row["tenant_id"]].runs[run.evaluation_run_id] = run
    for row in await _rows(conn, SEALED_SQL, snapshots):
        found[row["tenant_id"]].snapshots[row["snapshot_id"]] = row["scope_key"]
    return found


async def insert_snapshots(conn: Connection, rows: Sequence[SnapshotRow]) -> bool:
    """Store sealed snapshots; False when an id or a run was taken by another transaction meanwhile."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return len(await conn.fetch(INSERT_SNAPSHOTS_SQL, *columns)) == len(rows)


async def _rows(conn: Connection, sql: str, pairs: Collection[tuple[Any, str]]) -> list[asyncpg.Record]:
    if not pairs:
        return []
    ordered = sorted(pairs)
    return await conn.fetch(sql, [pair[0] for pair in ordered], [pair[1] for pair in ordered])
