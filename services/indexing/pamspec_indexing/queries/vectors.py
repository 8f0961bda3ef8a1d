"""Vectors: what spaces a scope has, what is stored, the index of a space, and the search."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import orjson

from pamspec_common.embedding_spaces import INDEX_PREFIX, EmbeddingSpace, described
from pamspec_common.postgres import Connection

SPACE_SQL = """
SELECT e.space_key, e.descriptor FROM core.embedding_space e JOIN core.scope s ON s.tenant_id = e.tenant_id
WHERE s.scope_key = $1 AND e.embedding_space_id = $2
"""
LOCK_DOCS_SQL = """
SELECT x.scope_key, x.object_id, x.doc, x.version_id, x.sequence, x.removed FROM index_.indexed_object x
JOIN unnest($1::bigint[], $2::bigint[]) AS w(scope_key, doc) ON w.scope_key = x.scope_key AND w.doc = x.doc
WHERE NOT EXISTS (SELECT FROM core.scope_deletion d WHERE d.scope_key = x.scope_key)
ORDER BY x.scope_key, x.object_id FOR UPDATE OF x
"""
LOCK_OBJECTS_SQL = """
SELECT x.object_id, x.doc, x.version_id, x.sequence, x.removed FROM index_.indexed_object x
WHERE x.scope_key = $1 AND x.object_id = ANY ($2::text[]) AND x.kind = 'o'
  AND NOT EXISTS (SELECT FROM core.scope_deletion d WHERE d.scope_key = $1)
ORDER BY x.object_id FOR UPDATE
"""
INDEXED_SQL = """
SELECT x.object_id, x.version_id, x.removed FROM index_.indexed_object x
WHERE x.scope_key = $1 AND x.object_id = ANY ($2::text[])
"""
TAKE_OFF_SQL = """
DELETE FROM index_.vectors v USING unnest($1::bigint[], $2::bigint[]) AS w(scope_key, doc)
WHERE v.scope_key = w.scope_key AND v.doc = w.doc AND v.space_key = $3
"""
PUT_SQL = """
INSERT INTO index_.vectors (scope_key, space_key, doc, chunk, dimensions, metric, embedding, digest, truncated)
SELECT w.scope_key, $1, w.doc, w.chunk, $2, $3::text::"char", w.embedding::vector, w.digest, w.truncated
FROM unnest($4::bigint[], $5::bigint[], $6::smallint[], $7::text[], $8::bytea[], $9::boolean[])
  AS w(scope_key, doc, chunk, embedding, digest, truncated)
"""
DIGESTS_SQL = """
SELECT DISTINCT v.scope_key, v.doc, v.space_key, v.digest FROM index_.vectors v
JOIN unnest($1::bigint[], $2::bigint[]) AS w(scope_key, doc) ON v.scope_key = w.scope_key AND v.doc = w.doc
WHERE v.chunk = 0
"""
REMOVE_SQL = """
DELETE FROM index_.vectors v USING unnest($1::bigint[], $2::bigint[]) AS w(scope_key, doc)
WHERE v.scope_key = w.scope_key AND v.doc = w.doc
"""
CLEAR_SQL = """
DELETE FROM index_.vectors v WHERE (v.scope_key, v.space_key, v.doc, v.chunk) IN (
  SELECT c.scope_key, c.space_key, c.doc, c.chunk FROM index_.vectors c
  WHERE c.scope_key = $1 AND ($2::integer IS NULL OR c.space_key = $2) LIMIT $3)
"""
MOVE_VECTOR_WATERMARKS_SQL = """
INSERT INTO index_.watermark AS w (scope_key, index_id, ledger_epoch, sequence)
SELECT i.scope_key, $2 || s.embedding_space_id, i.ledger_epoch,
       least(i.last_seq, coalesce((
         SELECT min(q.sequence) - 1 FROM index_.embedding_queue q
         WHERE q.scope_key = i.scope_key AND q.embedding_space_id = s.embedding_space_id), i.last_seq))
FROM index_.inbox i JOIN index_.scope_space s ON s.scope_key = i.scope_key
WHERE i.scope_key = ANY ($1::bigint[]) AND s.state <> 'retired' AND (s.backfill IS NULL OR NOT s.automatic)
ORDER BY i.scope_key, s.embedding_space_id
ON CONFLICT (scope_key, index_id) DO UPDATE
  SET ledger_epoch = excluded.ledger_epoch, sequence = excluded.sequence, at = clock_timestamp()
  WHERE (w.ledger_epoch, w.sequence) < (excluded.ledger_epoch, excluded.sequence)
"""
SHOW_SPACES_SQL = """
INSERT INTO index_.scope_space (scope_key, embedding_space_id, automatic, state)
SELECT k, $2, $3, 'current' FROM unnest($1::bigint[]) k ORDER BY k ON CONFLICT DO NOTHING
"""


class Space(NamedTuple):
    """A space as it is stored."""

    key: int
    space: EmbeddingSpace


class Stored(NamedTuple):
    """A vector of a chunk of an object."""

    scope_key: int
    doc: int
    chunk: int
    vector: str
    """As PostgreSQL reads it."""
    digest: bytes
    truncated: bool


class Locked(NamedTuple):
    """An object whose row is locked until the transaction ends."""

    object_id: str
    doc: int
    version_id: str
    sequence: int
    removed: bool


def literal(vector: Sequence[float]) -> str:
    """A vector as PostgreSQL reads it."""
    return "[" + ",".join(map(repr, vector)) + "]"


async def fetch_space(conn: Connection, scope_key: int, embedding_space_id: str) -> Space | None:
    """A space of the scope's tenant."""
    row = await conn.fetchrow(SPACE_SQL, scope_key, embedding_space_id)
    return None if row is None else Space(row["space_key"], described(orjson.loads(row["descriptor"])))


async def lock_docs(conn: Connection, docs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, bool]]:
    """By scope and doc: the sequence of the version that is indexed and whether it is removed, held until the end."""
    rows = await conn.fetch(LOCK_DOCS_SQL, [key for key, _ in docs], [doc for _, doc in docs])
    return {(row["scope_key"], row["doc"]): (row["sequence"], row["removed"]) for row in rows}


async def lock_objects(conn: Connection, scope_key: int, object_ids: Collection[str]) -> dict[str, Locked]:
    """Indexed objects of a scope by their ids, held until the end."""
    rows = await conn.fetch(LOCK_OBJECTS_SQL, scope_key, list(object_ids))
    return {row["object_id"]: Locked(*row) for row in rows}


async def indexed(conn: Connection, scope_key: int, object_ids: Collection[str]) -> dict[str, tuple[str, bool]]:
    """By object: the version that is indexed, and whether it is removed."""
    rows = await conn.fetch(INDEXED_SQL, scope_key, list(object_ids))
    return {row["object_id"]: (row["version_id"], row["removed"]) for row in rows}


async def put(conn: Connection, space: Space, docs: Sequence[tuple[int, int]], rows: Sequence[Stored]) -> None:
    """Let the vectors of these docs in a space be these; the docs are locked."""
    await conn.execute(TAKE_OFF_SQL, [key for key, _ in docs], [doc for _, doc in docs], space.key)
    if rows:
        columns = list(zip(*rows, strict=True))
        of = space.space
        columns_of_rows = (list(column) for column in columns)
        await conn.execute(PUT_SQL, space.key, of.dimensions, of.distance_metric[0], *columns_of_rows)


async def fetch_digests(conn: Connection, docs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], set[bytes]]:
    """What the vectors of these docs were made of, over all spaces."""
    found: dict[tuple[int, int], set[bytes]] = {}
    for row in await conn.fetch(DIGESTS_SQL, [key for key, _ in docs], [doc for _, doc in docs]):
        found.setdefault((row["scope_key"], row["doc"]), set()).add(row["digest"])
    return found


async def remove(conn: Connection, docs: Sequence[tuple[int, int]]) -> None:
    """Take all vectors of these docs away."""
    await conn.execute(REMOVE_SQL, [key for key, _ in docs], [doc for _, doc in docs])


async def clear(conn: Connection, scope_key: int, space_key: int | None, limit: int) -> bool:
    """Take away a bounded number of vectors of a scope, of one space or of all; whether some may be left."""
    return int((await conn.execute(CLEAR_SQL, scope_key, space_key, limit)).rsplit(" ", 1)[1]) >= limit


async def move_watermarks(conn: Connection, scope_keys: Collection[int]) -> None:
    """The vector indexes of these scopes are complete up to before what waits for them."""
    await conn.execute(MOVE_VECTOR_WATERMARKS_SQL, list(scope_keys), INDEX_PREFIX)


async def show_space(conn: Connection, scope_keys: Collection[int], space_id: str, *, automatic: bool) -> None:
    """Note that these scopes have the space."""
    await conn.execute(SHOW_SPACES_SQL, list(scope_keys), space_id, automatic)
