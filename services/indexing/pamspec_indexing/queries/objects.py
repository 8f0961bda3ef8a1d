"""Canonical heads, the version guard over what is indexed, and watermarks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import asyncpg

from pamspec_common.postgres import Connection
from pamspec_indexing.model import GONE, Touched, session_key

HEADS_SQL = """
SELECT r.scope_key, r.object_id, s.kind, s.version_id, s.from_seq, s.availability_state, p.content,
       p.private, first.ledger_seq AS first, coalesce(x.sequence, 0) AS known
FROM unnest($1::bigint[], $2::text[]) AS r(scope_key, object_id)
JOIN core.version_span s ON s.object_id = r.object_id AND s.scope_key = r.scope_key AND s.to_seq = 9223372036854775807
LEFT JOIN core.version_private p ON p.scope_key = s.scope_key AND p.ledger_seq = s.from_seq
LEFT JOIN core.version first
  ON first.object_id = r.object_id AND first.scope_key = r.scope_key AND first.version_seq = 1
LEFT JOIN index_.indexed_object x ON x.scope_key = r.scope_key AND x.object_id = r.object_id
WHERE s.kind IN ('o', 'r')
ORDER BY r.scope_key, r.object_id"""

GUARD_SQL = """
INSERT INTO index_.indexed_object AS x
  (scope_key, object_id, kind, version_id, sequence, removed, session_key, session_position)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::"char"[], $4::text[], $5::bigint[], $6::boolean[], $7::bigint[],
                     $8::bigint[])
ON CONFLICT (scope_key, object_id) DO UPDATE
  SET version_id = excluded.version_id, sequence = excluded.sequence, removed = excluded.removed,
      session_key = excluded.session_key, session_position = excluded.session_position
  WHERE x.sequence < excluded.sequence
RETURNING scope_key, object_id, doc"""

MOVE_WATERMARK_SQL = """
INSERT INTO index_.watermark AS w (scope_key, index_id, ledger_epoch, sequence)
SELECT i.scope_key, $2, i.ledger_epoch, i.last_seq FROM index_.inbox i WHERE i.scope_key = ANY ($1::bigint[])
ON CONFLICT (scope_key, index_id) DO UPDATE
  SET ledger_epoch = excluded.ledger_epoch, sequence = excluded.sequence, at = clock_timestamp()
  WHERE (w.ledger_epoch, w.sequence) < (excluded.ledger_epoch, excluded.sequence)"""

FORGET_SQL = """
WITH gone AS (DELETE FROM index_.indexed_object WHERE scope_key = $1)
DELETE FROM index_.watermark WHERE scope_key = $1"""


class Head(NamedTuple):
    """The current version of an object or a relationship."""

    scope_key: int
    object_id: str
    kind: bytes
    version_id: str
    sequence: int
    """The ledger sequence of the version."""
    content: bytes | None
    """JSON; None where nothing of it may be found."""
    known: int
    """The sequence that is indexed; 0 for none."""
    session_key: int | None
    """What it has in common with the others of its source session."""
    session_position: int | None
    """Its place among them: the ledger sequence of its first version."""


async def fetch_heads(conn: Connection, names: Sequence[Touched]) -> list[Head]:
    """The heads of these as the canonical store shows them now; what is not there is left out."""
    rows = await conn.fetch(HEADS_SQL, [one.scope_key for one in names], [one.object_id for one in names])
    return [_head(row) for row in rows]


def _head(row: asyncpg.Record) -> Head:
    gone = row["availability_state"] in GONE
    key = None if gone or row["private"] is None else session_key(row["scope_key"], row["private"])
    return Head(
        row["scope_key"], row["object_id"], row["kind"], row["version_id"], row["from_seq"],
        None if gone else row["content"], row["known"], key, None if key is None else row["first"],
    )  # fmt: skip


async def guard(conn: Connection, heads: Sequence[Head]) -> dict[Touched, int]:
    """Note these versions as indexed; the doc of each that is beyond what was. The others change nothing."""
    rows = await conn.fetch(
        GUARD_SQL,
        [head.scope_key for head in heads],
        [head.object_id for head in heads],
        [head.kind for head in heads],
        [head.version_id for head in heads],
        [head.sequence for head in heads],
        [head.content is None for head in heads],
        [head.session_key for head in heads],
        [head.session_position for head in heads],
    )
    return {Touched(row["scope_key"], row["object_id"]): row["doc"] for row in rows}


async def move_watermark(conn: Connection, scope_keys: Collection[int], index_id: str) -> None:
    """An index of these scopes is as far as the inbox, in the same transaction."""
    await conn.execute(MOVE_WATERMARK_SQL, list(scope_keys), index_id)


async def forget(conn: Connection, scope_key: int) -> None:
    """Nothing of a scope is indexed any more."""
    await conn.execute(FORGET_SQL, scope_key)
