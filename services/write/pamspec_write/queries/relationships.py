"""What the decisions about relationships rest on besides: what they join, and what joins the same objects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pamspec_common.postgres import Connection
from pamspec_write.model.facts import ScopeState

# o: the kind of an object that must be there, and what rules may use of it; a: the active relationship that joins two.
ENDS_SQL = """
WITH edge AS (
  SELECT * FROM unnest($3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[])
    AS k (scope_key, source, target, label, target_scope)
  UNION
  SELECT v.scope_key, s.source_object_id, s.target_object_id, s.object_type, coalesce(s.target_scope_id, '')
  FROM unnest($8::bigint[], $9::text[]) AS k (scope_key, object_id)
  CROSS JOIN LATERAL (
    SELECT v.scope_key, v.ledger_seq FROM core.version v
    WHERE v.object_id = k.object_id AND v.scope_key = k.scope_key ORDER BY v.version_seq DESC LIMIT 1) v
  CROSS JOIN LATERAL (
    SELECT * FROM core.version_span s WHERE s.scope_key = v.scope_key AND s.from_seq = v.ledger_seq LIMIT 1) s
  WHERE s.source_object_id IS NOT NULL),
other AS (
  SELECT * FROM unnest($1::bigint[], $2::text[]) AS k (scope_key, object_id)
  UNION
  SELECT k.scope_key, e.object_id
  FROM unnest($10::bigint[], $11::text[]) AS k (scope_key, object_id)
  CROSS JOIN LATERAL (
    SELECT v.ledger_seq FROM core.version v
    WHERE v.object_id = k.object_id AND v.scope_key = k.scope_key ORDER BY v.version_seq DESC LIMIT 1) v
  CROSS JOIN LATERAL (
    SELECT * FROM core.version_span s WHERE s.scope_key = k.scope_key AND s.from_seq = v.ledger_seq LIMIT 1) s
  CROSS JOIN LATERAL (VALUES (s.source_object_id),
    (CASE WHEN s.target_scope_id IS NULL THEN s.target_object_id END)) AS e (object_id)
  WHERE e.object_id IS NOT NULL)
SELECT 'o' AS tag, k.scope_key, k.object_id AS id, ARRAY[s.kind::text, s.object_type, s.lifecycle_state,
       s.availability_state, s.retention_state, s.validation_state, s.created_by] AS texts
FROM other k
CROSS JOIN LATERAL (
  SELECT v.ledger_seq FROM core.version v
  WHERE v.object_id = k.object_id AND v.scope_key = k.scope_key ORDER BY v.version_seq DESC LIMIT 1) v
CROSS JOIN LATERAL (
  SELECT * FROM core.version_span s WHERE s.scope_key = k.scope_key AND s.from_seq = v.ledger_seq LIMIT 1) s
UNION ALL
SELECT 'a', k.scope_key, s.object_id, ARRAY[k.source, k.target, k.label, k.target_scope]
FROM edge k
CROSS JOIN LATERAL (
  SELECT s.object_id FROM core.version_span s
  WHERE s.source_object_id = k.source AND s.target_object_id = k.target AND s.object_type = k.label
    AND coalesce(s.target_scope_id, '') = k.target_scope AND s.scope_key = k.scope_key
    AND s.to_seq = 9223372036854775807 AND s.lifecycle_state = 'active' AND s.availability_state <> 'deleted'
  LIMIT 1) s
"""


async def ends(
    conn: Connection,
    states: Mapping[int, ScopeState],
    others: Collection[tuple[int, str]],
    edges: Collection[tuple[int, str, str, str, str]],
    rivals: Collection[tuple[int, str]],
    joined: Collection[tuple[int, str]],
) -> None:
    """Add to the states which of `others` are there, and the active relationships that join what `edges` name.

    `rivals` are relationships by (scope_key, id): those that join what they join count too. `joined` are
    relationships of which the ends are looked up, in their own scope. What moves between the
    first statement of a prefetch and this one moves the scope's revision.
    """
    for row in await conn.fetch(
        ENDS_SQL, *_columns(2, others), *_columns(5, edges), *_columns(2, rivals), *_columns(2, joined)
    ):
        state = states[row["scope_key"]]
        if row["tag"] == "o":
            kind, object_type, lifecycle, availability, retention, validation, creator = row["texts"]
            memory = {
                "object_type": object_type,
                "creator": creator,
                "lifecycle_state": lifecycle,
                "availability_state": availability,
                "retention_state": retention,
                "validation_state": validation,
            }
            state.others[row["id"]] = (kind, memory)
        else:
            source, target, label, target_scope = row["texts"]
            state.edges[source, target, label, target_scope] = row["id"]


def _columns(width: int, rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
