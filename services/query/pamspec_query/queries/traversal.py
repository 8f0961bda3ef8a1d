"""One hop of a traversal: the relationships of some objects at a position, and the objects at their other ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

import asyncpg

from pamspec_common.authorization.rows import shown
from pamspec_common.authorization.sight import Sight
from pamspec_common.postgres import Connection
from pamspec_query.queries.predicates import Arguments

# Relationships from either end, each found by its own index, then the newest version of what lies at the other end, at
# the position. An end in another scope has no row here.
_WALKED: LiteralString = """
    AND ($6::text[] IS NULL OR s.object_type = ANY ($6))
    AND s.lifecycle_state = ANY ($7::text[]) AND s.availability_state = ANY ($8::text[])
    AND s.retention_state = ANY ($9::text[]) AND s.validation_state = ANY ($10::text[])
    AND ($11::timestamptz IS NULL OR ((s.valid_from IS NULL OR s.valid_from <= $11)
                                      AND (s.valid_until IS NULL OR s.valid_until > $11)))
"""
_OUT: LiteralString = (
    """
WITH walked AS (
  SELECT s.from_seq, s.target_object_id AS far, s.target_scope_id AS far_scope,
         s.source_object_id AS near, s.object_id AS relationship_id FROM core.version_span s
  WHERE s.source_object_id = ANY ($2::text[]) AND s.scope_key = $1 AND s.from_seq <= $3 AND s.to_seq > $3
    AND s.kind = 'r' AND ($4 OR s.directionality <> 'directed')
"""
    + _WALKED
)
_IN: LiteralString = (
    """
  UNION
  SELECT s.from_seq, s.source_object_id, NULL, s.target_object_id, s.object_id FROM core.version_span s
  WHERE s.target_object_id = ANY ($2::text[]) AND s.scope_key = $1 AND s.from_seq <= $3 AND s.to_seq > $3
    AND s.kind = 'r' AND s.target_scope_id IS NULL AND ($5 OR s.directionality <> 'directed')
"""
    + _WALKED
)
_STEPS: LiteralString = """
  LIMIT $12)
SELECT from_seq, far, far_scope, near, relationship_id FROM walked ORDER BY from_seq, far, near
"""
HOP_SQL: LiteralString = _OUT + _IN + _STEPS

VISIBLE_SQL: LiteralString = """
SELECT k.object_id, v.ledger_seq FROM unnest($2::text[]) AS k (object_id)
CROSS JOIN LATERAL (
  SELECT v.ledger_seq FROM core.version v
  WHERE v.object_id = k.object_id AND v.scope_key = $1 AND v.ledger_seq <= $3 AND v.kind = 'o'
  ORDER BY v.version_seq DESC LIMIT 1) v
CROSS JOIN LATERAL (
  SELECT s.availability_state FROM core.version_span s
  WHERE s.scope_key = $1 AND s.from_seq = v.ledger_seq LIMIT 1) s
WHERE s.availability_state IN ('available', 'partially_redacted')
"""

PINNED_SQL = """
SELECT EXISTS (
  SELECT FROM core.version v
  WHERE v.scope_key = $1 AND v.ledger_seq = ANY ($3::bigint[]) AND v.object_id = $2 AND v.kind = 'o')
"""


@dataclass(frozen=True, slots=True)
class Walk:
    """Which relationships are walked, and in which direction."""

    outgoing: bool
    incoming: bool
    types: Sequence[str] | None
    states: Sequence[Sequence[str]]
    """Of the relationships: lifecycle, availability, retention and validation."""
    valid_at: datetime | None
    pinned: Sequence[int] | None = None
    """The only versions, of relationships and objects, that are walked; None where all are."""


@dataclass(frozen=True, slots=True)
class Step:
    """A walked relationship version, and the object that it leads to; `scope_id` when that lies in another scope."""

    sequence: int
    object_id: str
    scope_id: str | None
    near_id: str
    """The object from which it was walked."""
    relationship_id: str


async def hop(
    conn: Connection, scope_key: int, object_ids: Sequence[str], position: int, walk: Walk, sight: Sight, limit: int
) -> list[Step]:
    """The steps from some objects at a position along what is seen, at most `limit`."""
    arguments = Arguments(
        [scope_key, object_ids, position, walk.outgoing, walk.incoming, walk.types, *walk.states, walk.valid_at, limit]
    )
    sql = HOP_SQL
    if walk.pinned is not None or not sight.everything:
        seen: LiteralString = "" if sight.everything else " AND " + shown(sight, arguments.values)
        if walk.pinned is not None:
            seen += " AND s.from_seq = ANY (" + arguments.add(list(walk.pinned), "bigint[]") + ")"
        sql = _OUT + seen + _IN + seen + _STEPS
    rows = await conn.fetch(sql, *arguments.values)
    return [Step(*row) for row in rows]


async def visible(
    conn: Connection,
    scope_key: int,
    object_ids: Sequence[str],
    position: int,
    pinned: Sequence[int] | None,
    sight: Sight,
) -> dict[str, int]:
    """Of some ids the objects that are there at a position, seen and not erased, with their version's sequence."""
    arguments = Arguments([scope_key, object_ids, position])
    sql = VISIBLE_SQL
    if pinned is not None:
        sql += " AND v.ledger_seq = ANY (" + arguments.add(list(pinned), "bigint[]") + ")"
    if not sight.everything:
        sql += (
            " AND EXISTS (SELECT FROM core.version_span s WHERE s.scope_key = $1 AND s.from_seq = v.ledger_seq"
            " AND " + shown(sight, arguments.values) + ")"
        )
    rows: list[asyncpg.Record] = await conn.fetch(sql, *arguments.values)
    return {row["object_id"]: row["ledger_seq"] for row in rows}


async def is_pinned(conn: Connection, scope_key: int, object_id: str, pinned: Sequence[int]) -> bool:
    """Whether one of these versions is of that object, erased or not."""
    return bool(await conn.fetchval(PINNED_SQL, scope_key, object_id, pinned))
