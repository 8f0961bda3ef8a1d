"""What concerns a subject in a scope: objects, relationships and past versions up to a position."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import asyncpg

from pamspec_common.postgres import Connection

# By who made it: all of what the actor created, and each version that it made of what others created. A relationship
# whose current version it made goes whole. What was erased before is no concern.
BY_ACTOR_SQL = """
SELECT s.object_id, bool_or(s.created_by = $2 OR (s.kind = 'r' AND s.to_seq > $3)) AS whole,
  array_agg(s.version_id ORDER BY s.version_seq) AS version_ids
FROM core.version_span s
JOIN core.version_private p ON p.scope_key = s.scope_key AND p.ledger_seq = s.from_seq AND p.salt IS NOT NULL
WHERE s.scope_key = $1 AND s.from_seq <= $3 AND s.kind IN ('o', 'r') AND (s.created_by = $2 OR s.actor_id = $2)
GROUP BY s.object_id
"""
# By where it comes from: all of what names the source now, and each past version that did.
BY_SOURCE_SQL = """
SELECT s.object_id, bool_or(s.to_seq > $3) AS whole, array_agg(s.version_id ORDER BY s.version_seq) AS version_ids
FROM core.version_span s
JOIN core.version_private p ON p.scope_key = s.scope_key AND p.ledger_seq = s.from_seq AND p.salt IS NOT NULL
CROSS JOIN LATERAL (SELECT coalesce(s.private, CASE WHEN substring(p.private FROM 1 FOR 1) <> '\\x01'
  THEN query.as_jsonb(p.private) END) -> 'provenance' AS said) v
WHERE s.scope_key = $1 AND s.from_seq <= $3 AND s.kind IN ('o', 'r')
  AND (v.said ->> 'source_ref' = $2 OR v.said -> 'evidence_refs' ? $2)
GROUP BY s.object_id
"""
# Relationships of the scope that join one of these objects to anything: they tell of it.
JOINING_SQL = """
SELECT s.object_id FROM core.version_span s
WHERE s.scope_key = $1 AND s.kind = 'r' AND s.to_seq = 9223372036854775807 AND s.from_seq <= $3
  AND (s.source_object_id = ANY ($2::text[]) OR (s.target_scope_id IS NULL AND s.target_object_id = ANY ($2::text[])))
"""
# What is left of these now, and whether a hold covers it.
DESCRIBE_SQL = """
SELECT s.object_id, s.kind::text AS kind, s.version_seq AS versions,
  s.retention_state = 'legal_hold' OR EXISTS (
    SELECT FROM core.legal_hold l WHERE l.scope_key = $1 AND l.released_at IS NULL
      AND (l.object_type IS NULL OR (s.kind = 'o' AND l.object_type = s.object_type))) AS held
FROM unnest($2::text[]) AS k (id)
CROSS JOIN LATERAL (
  SELECT * FROM core.version_span s
  WHERE s.object_id = k.id AND s.scope_key = $1 AND s.to_seq = 9223372036854775807 LIMIT 1) s
WHERE s.availability_state <> 'deleted' AND s.kind IN ('o', 'r')
ORDER BY s.object_id
"""
BEGUN_SQL = "SELECT erasure_id, total FROM core.forget WHERE scope_key = $1 AND token = $2"


class Concern(NamedTuple):
    """An object or a relationship that a subject concerns."""

    object_id: str
    kind: str
    version_ids: list[str] | None
    """The versions that do; None: all of it."""
    versions: int
    held: bool


Found = dict[str, list[str] | None]
"""By id: the versions that are concerned, None for all of it."""


async def by_actor(conn: Connection, scope_key: int, actor_id: str, position: int) -> Found:
    """What an actor made."""
    return _found(await conn.fetch(BY_ACTOR_SQL, scope_key, actor_id, position))


async def by_source(conn: Connection, scope_key: int, source_ref: str, position: int) -> Found:
    """What comes from a source."""
    return _found(await conn.fetch(BY_SOURCE_SQL, scope_key, source_ref, position))


def _found(rows: Iterable[asyncpg.Record]) -> Found:
    return {row["object_id"]: None if row["whole"] else row["version_ids"] for row in rows}


async def described(conn: Connection, scope_key: int, found: Found, position: int) -> list[Concern]:
    """The concerns that are not gone already, with the relationships of what goes whole, by their ids."""
    whole = [object_id for object_id, version_ids in found.items() if version_ids is None]
    joining = await conn.fetch(JOINING_SQL, scope_key, whole, position)
    every: Found = {**found, **{row["object_id"]: None for row in joining}}
    rows = await conn.fetch(DESCRIBE_SQL, scope_key, list(every))
    return [
        Concern(row["object_id"], row["kind"], every[row["object_id"]], row["versions"], row["held"]) for row in rows
    ]


async def begun(conn: Connection, scope_key: int, token: str) -> tuple[str, int] | None:
    """The forget that was begun with a token, and how much it names."""
    row = await conn.fetchrow(BEGUN_SQL, scope_key, token)
    return None if row is None else (row["erasure_id"], row["total"])
