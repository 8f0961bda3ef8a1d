"""The versions that two snapshots of a scope can show differently, a page at a time, in ledger order."""

from __future__ import annotations

from typing import LiteralString

import asyncpg

from pamspec_common.authorization.rows import shown
from pamspec_common.authorization.sight import Sight
from pamspec_common.postgres import Connection
from pamspec_query.model.comparison import Comparison, Pair, Shown
from pamspec_query.queries.predicates import Arguments

# $1 scope, $2 after, $3 the later position, $4 the earlier one, $5 and $6 the members, $7 rows. A version that is
# current at the later position differs when it is newer than the earlier one, or when one snapshot alone holds it.
_DIFFERS: LiteralString = """
  s.scope_key = $1 AND s.from_seq > $2 AND s.from_seq <= $3 AND s.to_seq > $3 AND s.kind IN ('o', 'r')
  AND (s.from_seq > $4
    OR ($5::text[] IS NULL OR s.object_id = ANY ($5)) <> ($6::text[] IS NULL OR s.object_id = ANY ($6)))
"""
_PAIRS: LiteralString = """
SELECT page.object_id, page.kind, page.from_seq, page.version_id, page.version_seq, page.lifecycle_state,
       page.availability_state, page.retention_state, page.validation_state, e.from_seq AS e_from_seq,
       e.version_id AS e_version_id, e.version_seq AS e_version_seq, e.lifecycle_state AS e_lifecycle_state,
       e.availability_state AS e_availability_state, e.retention_state AS e_retention_state,
       e.validation_state AS e_validation_state
FROM page
LEFT JOIN LATERAL (
  SELECT v.ledger_seq FROM core.version v
  WHERE v.object_id = page.object_id AND v.scope_key = $1 AND v.ledger_seq <= $4
  ORDER BY v.version_seq DESC LIMIT 1) v ON true
LEFT JOIN LATERAL (
  SELECT * FROM core.version_span e WHERE e.scope_key = $1 AND e.from_seq = v.ledger_seq LIMIT 1) e ON true
ORDER BY page.from_seq
"""
# Along the ledger, from the versions that are newer than the earlier position where both snapshots hold all.
_ALONG: LiteralString = "WITH page AS MATERIALIZED (SELECT s.* FROM core.version_span s WHERE " + _DIFFERS
_CUT: LiteralString = " ORDER BY s.from_seq LIMIT $7)" + _PAIRS
DIFFERENCES_SQL: LiteralString = _ALONG + _CUT
# From the members themselves where both snapshots name theirs, however large the scope is.
_FROM_MEMBERS: LiteralString = (
    """
WITH page AS MATERIALIZED (
  SELECT s.* FROM (SELECT unnest($5::text[]) AS object_id UNION SELECT unnest($6::text[])) k
  CROSS JOIN LATERAL (
    SELECT v.ledger_seq FROM core.version v
    WHERE v.object_id = k.object_id AND v.scope_key = $1 AND v.ledger_seq <= $3
    ORDER BY v.version_seq DESC LIMIT 1) v
  CROSS JOIN LATERAL (
    SELECT * FROM core.version_span s WHERE s.scope_key = $1 AND s.from_seq = v.ledger_seq LIMIT 1) s
  WHERE """
    + _DIFFERS
)
MEMBER_DIFFERENCES_SQL: LiteralString = _FROM_MEMBERS + _CUT
_STATES = ("lifecycle_state", "availability_state", "retention_state", "validation_state")


async def pairs(
    conn: Connection, scope_key: int, comparison: Comparison, sight: Sight, after: int, limit: int
) -> tuple[list[Pair], bool]:
    """Versions that can differ and are seen at both positions, at most `limit`, after a ledger sequence; whether more
    follow.
    """
    base, other = comparison.base.members, comparison.other.members
    along = base is None or other is None
    arguments = Arguments([scope_key, after, comparison.last, comparison.first, base, other, limit + 1])
    sql = DIFFERENCES_SQL if along else MEMBER_DIFFERENCES_SQL
    if not sight.everything:
        sql = (_ALONG if along else _FROM_MEMBERS) + _seen(sight, arguments) + _CUT
    rows = await conn.fetch(sql, *arguments.values)
    return [_pair(row) for row in rows[:limit]], len(rows) > limit


def _seen(sight: Sight, arguments: Arguments) -> LiteralString:
    return (
        " AND " + shown(sight, arguments.values) + " AND NOT EXISTS (SELECT FROM ("
        " SELECT v.ledger_seq FROM core.version v"
        " WHERE v.object_id = s.object_id AND v.scope_key = $1 AND v.ledger_seq <= $4"
        " ORDER BY v.version_seq DESC LIMIT 1) before"
        " JOIN core.version_span s ON s.scope_key = $1 AND s.from_seq = before.ledger_seq"
        " WHERE NOT " + shown(sight, arguments.values) + ")"
    )  # fmt: skip


def _pair(row: asyncpg.Record) -> Pair:
    later = _shown(row, "")
    return Pair(later, None if row["e_from_seq"] is None else _shown(row, "e_"))


def _shown(row: asyncpg.Record, prefix: str) -> Shown:
    return Shown(
        object_id=row["object_id"],
        kind=row["kind"].decode(),
        ledger_seq=row[f"{prefix}from_seq"],
        version_id=row[f"{prefix}version_id"],
        version_seq=row[f"{prefix}version_seq"],
        states=tuple(row[f"{prefix}{name}"] for name in _STATES),
    )
