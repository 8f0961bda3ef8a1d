"""Canonical heads, the version guard over what is indexed, and watermarks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import asyncpg

from pamspec_common.postgres import Connection
from pamspec_indexing.model import GONE, Head, Touched, session_key

_COLUMNS = """s.scope_key, s.object_id, s.kind, s.version_id, s.from_seq, s.availability_state, p.private,
       first.ledger_seq AS first, coalesce(octet_length(p.content), 0) AS size, coalesce(x.sequence, 0) AS known"""

# A range of one key, in the order of its index, makes that index the only way. By equality alone a new database, of
# whose rows statistics say nothing yet, takes one that begins with the scope, and reads all of it for each object.
_JOINS = """
LEFT JOIN core.version_value p ON p.scope_key = s.scope_key AND p.ledger_seq = s.from_seq
LEFT JOIN LATERAL (
  SELECT v.ledger_seq FROM core.version v
  WHERE (v.object_id, v.scope_key) BETWEEN (s.object_id, s.scope_key) AND (s.object_id, s.scope_key)
  ORDER BY v.object_id, v.scope_key, v.version_seq LIMIT 1) first ON true
LEFT JOIN index_.indexed_object x ON x.scope_key = s.scope_key AND x.object_id = s.object_id
WHERE s.kind IN ('o', 'r') AND NOT EXISTS (SELECT FROM core.scope_deletion d WHERE d.scope_key = s.scope_key)"""

HEADS_SQL = f"""
SELECT {_COLUMNS}
FROM unnest($1::bigint[], $2::text[]) AS r(scope_key, object_id)
CROSS JOIN LATERAL (
  SELECT h.scope_key, h.object_id, h.kind, h.version_id, h.from_seq, h.availability_state FROM core.version_span h
  WHERE (h.object_id, h.scope_key) BETWEEN (r.object_id, r.scope_key) AND (r.object_id, r.scope_key)
    AND h.to_seq = 9223372036854775807
  ORDER BY h.object_id, h.scope_key LIMIT 1) s{_JOINS}
ORDER BY s.scope_key, s.object_id"""

SCOPE_HEADS_SQL = f"""
SELECT {_COLUMNS}
FROM core.version_span s{_JOINS} AND s.scope_key = $1 AND s.to_seq = 9223372036854775807 AND s.from_seq < $2
ORDER BY s.from_seq DESC LIMIT $3"""

CONTENTS_SQL = """
SELECT r.place, p.content
FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS r(scope_key, sequence, place)
JOIN core.version_value p ON p.scope_key = r.scope_key AND p.ledger_seq = r.sequence
WHERE p.content IS NOT NULL"""

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

GUARD_AGAIN_SQL = GUARD_SQL.replace("x.sequence < excluded", "x.sequence <= excluded")

DOCS_SQL = """
SELECT r.place, x.doc FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS r(scope_key, object_id, place)
JOIN index_.indexed_object x ON x.scope_key = r.scope_key AND x.object_id = r.object_id ORDER BY r.place"""

TAKEN_SQL = "SELECT last_seq FROM index_.inbox WHERE scope_key = $1"

MOVE_WATERMARK_SQL = """
INSERT INTO index_.watermark AS w (scope_key, index_id, ledger_epoch, sequence)
SELECT i.scope_key, $2, i.ledger_epoch, i.last_seq FROM index_.inbox i WHERE i.scope_key = ANY ($1::bigint[])
ON CONFLICT (scope_key, index_id) DO UPDATE
  SET ledger_epoch = excluded.ledger_epoch, sequence = excluded.sequence, at = clock_timestamp()
  WHERE (w.ledger_epoch, w.sequence) < (excluded.ledger_epoch, excluded.sequence)"""

FORGET_SQL = """
WITH gone AS (DELETE FROM index_.indexed_object WHERE scope_key = $1)
DELETE FROM index_.watermark WHERE scope_key = $1"""


class Indexed(NamedTuple):
    """A head that is being indexed, and the number that derived rows know it by."""

    head: Head
    doc: int


async def fetch_heads(conn: Connection, names: Sequence[Touched]) -> list[Head]:
    """The heads of these as the canonical store shows them now; what is not there is left out."""
    rows = await conn.fetch(HEADS_SQL, [one.scope_key for one in names], [one.object_id for one in names])
    return [_head(row) for row in rows]


async def fetch_scope_heads(conn: Connection, scope_key: int, below: int, limit: int) -> list[Head]:
    """The heads of a scope from the newest on, below a sequence."""
    return [_head(row) for row in await conn.fetch(SCOPE_HEADS_SQL, scope_key, below, limit)]


async def fetch_contents(conn: Connection, heads: Sequence[Head]) -> dict[int, bytes]:
    """The contents of these versions, by their places; those that are erased are left out."""
    rows = await conn.fetch(CONTENTS_SQL, [head.scope_key for head in heads], [head.sequence for head in heads])
    return {row["place"] - 1: row["content"] for row in rows}


async def guard(conn: Connection, heads: Sequence[Head]) -> list[Indexed]:
    """Note these versions as indexed; those that are beyond what was. The others change nothing."""
    return await _guarded(conn, GUARD_SQL, heads)


async def guard_again(conn: Connection, heads: Sequence[Head]) -> list[Indexed]:
    """The same with those that are indexed already."""
    return await _guarded(conn, GUARD_AGAIN_SQL, heads)


async def with_docs(conn: Connection, heads: Sequence[Head]) -> list[Indexed]:
    """Heads that are indexed, with the numbers that derived rows know them by."""
    rows = await conn.fetch(DOCS_SQL, [head.scope_key for head in heads], [head.object_id for head in heads])
    return [Indexed(heads[row["place"] - 1], row["doc"]) for row in rows]


async def fetch_taken(conn: Connection, scope_key: int) -> int:
    """How far the consumer is in a scope."""
    return int(await conn.fetchval(TAKEN_SQL, scope_key) or 0)


async def _guarded(conn: Connection, statement: str, heads: Sequence[Head]) -> list[Indexed]:
    rows = await conn.fetch(
        statement,
        [head.scope_key for head in heads],
        [head.object_id for head in heads],
        [head.kind for head in heads],
        [head.version_id for head in heads],
        [head.sequence for head in heads],
        [head.removed for head in heads],
        [head.session_key for head in heads],
        [head.session_position for head in heads],
    )
    docs = {(row["scope_key"], row["object_id"]): row["doc"] for row in rows}
    places = ((head, docs.get((head.scope_key, head.object_id))) for head in heads)
    return [Indexed(head, doc) for head, doc in places if doc is not None]


async def move_watermark(conn: Connection, scope_keys: Collection[int], index_id: str) -> None:
    """An index of these scopes is as far as the inbox, in the same transaction."""
    await conn.execute(MOVE_WATERMARK_SQL, list(scope_keys), index_id)


async def forget(conn: Connection, scope_key: int) -> None:
    """No version of a scope is known any more, and no watermark."""
    await conn.execute(FORGET_SQL, scope_key)


def _head(row: asyncpg.Record) -> Head:
    removed = row["availability_state"] in GONE
    key = None if removed or row["private"] is None else session_key(row["scope_key"], row["private"])
    return Head(
        row["scope_key"], row["object_id"], row["kind"], row["version_id"], row["from_seq"], removed, row["size"],
        row["known"], key, None if key is None else row["first"],
    )  # fmt: skip
