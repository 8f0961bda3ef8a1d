"""Receipts of erasures: what is stored of them, which is no content."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import asyncpg
import orjson

from pamspec_common.postgres import Connection

SCOPE_OF_ERASURE_SQL = "SELECT scope_id FROM core.resolve_erasure($1, $2)"

# A page of a scope, or the one that is named; the parts of a forget are shown only by name.
ERASURES_SQL = """
SELECT e.erasure_id, e.kind::text, e.subject_kind::text, e.subject_id, e.part_of, e.operation_id, e.actor_id,
  e.position, e.erased_from, e.erased_to, e.surfaces::text, e.opened_at, e.closed_at,
  e.opened_at + make_interval(days => $7) < clock_timestamp() AS backups_expired, f.progress
FROM core.erasure e
LEFT JOIN LATERAL (
  SELECT json_build_object('total', g.total, 'finished', g.finished_at IS NOT NULL,
    'done', count(*) FILTER (WHERE i.state = 'd'), 'held', count(*) FILTER (WHERE i.state = 'h'),
    'failed', count(*) FILTER (WHERE i.state = 'f'),
    'held_ids', coalesce((array_agg(i.object_id ORDER BY i.object_id) FILTER (WHERE i.state = 'h'))[:100], '{}'))::text
    AS progress
  FROM core.forget g LEFT JOIN core.forget_item i USING (scope_key, erasure_id)
  WHERE g.scope_key = $1 AND g.erasure_id = e.erasure_id AND e.kind = 'f'
  GROUP BY g.total, g.finished_at) f ON true
WHERE e.scope_key = $1 AND CASE WHEN $2::text IS NULL THEN e.part_of IS NULL ELSE e.erasure_id = $2 END
  AND ($3::boolean IS NULL OR (e.closed_at IS NULL) = $3) AND (e.position, e.erasure_id) < ($4::bigint, $5::text)
ORDER BY e.position DESC, e.erasure_id DESC LIMIT $6
"""


class Receipt(NamedTuple):
    """An erasure, and what its surfaces have come to."""

    erasure_id: str
    kind: str
    subject_kind: str | None
    subject_id: str | None
    part_of: str | None
    operation_id: str
    actor_id: str
    position: int
    erased: list[tuple[int, int]]
    surfaces: dict[str, dict[str, Any]]
    opened_at: datetime
    closed_at: datetime | None
    backups_expired: bool
    """Whether backups that are kept for so many days are all younger than the erasure."""
    progress: dict[str, Any] | None
    """Of a forget: how far its job is."""


async def scope_of(conn: Connection, tenant_id: str, erasure_id: str) -> str | None:
    """The scope of an erasure of the tenant."""
    found: str | None = await conn.fetchval(SCOPE_OF_ERASURE_SQL, tenant_id, erasure_id)
    return found


async def page(
    conn: Connection,
    scope_key: int,
    erasure_id: str | None,
    is_open: bool | None,
    before: tuple[int, str],
    limit: int,
    backup_days: int,
) -> list[Receipt]:
    """Receipts, the newest first; backups are kept for `backup_days`."""
    rows = await conn.fetch(ERASURES_SQL, scope_key, erasure_id, is_open, *before, limit, backup_days)
    return [_receipt(row) for row in rows]


def _receipt(row: asyncpg.Record) -> Receipt:
    erased = list(zip(row["erased_from"], row["erased_to"], strict=True))
    plain = {name: row[name] for name in Receipt._fields if name not in ("erased", "surfaces", "progress")}
    progress = None if row["progress"] is None else orjson.loads(row["progress"])
    return Receipt(**plain, erased=erased, surfaces=orjson.loads(row["surfaces"]), progress=progress)
