"""Indexes of seeded scopes, written straight into their tables by the rules of the shared analysis.

They stand for what the indexing service keeps, with every detail in the test's hands: how far it is, what it missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from pamspec_common.analysis import analyze, texts_of
from services.query.tests.seeds import Conn, Scope, Version

LEXICAL = "index:lexical"
_GUARD = """
INSERT INTO index_.indexed_object AS x (scope_key, object_id, kind, version_id, sequence, removed, session_key,
  session_position)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::"char"[], $4::text[], $5::bigint[], $6::boolean[], $7::bigint[],
  $8::bigint[])
ON CONFLICT (scope_key, object_id) DO UPDATE
  SET version_id = excluded.version_id, sequence = excluded.sequence, removed = excluded.removed
RETURNING object_id, doc"""
_ADD = """
SELECT index_.add_lexical($1, $2, $3::smallint[], $4, $5, $6, $7, $8, $9::bigint[], $10::smallint[])"""
_MARK = """
INSERT INTO index_.watermark (scope_key, index_id, ledger_epoch, sequence) VALUES ($1, $2, $3, $4)
ON CONFLICT (scope_key, index_id) DO UPDATE SET sequence = excluded.sequence, ledger_epoch = excluded.ledger_epoch"""


async def index(conn: Conn, scope: Scope, versions: Iterable[Version] | None = None, **sessions: int) -> dict[str, int]:
    """Index these versions, by default all heads, and move the watermark to the head of the ledger; docs by object.

    `sessions` has the session of objects, by the name behind their scheme.
    """
    chosen = [*(scope.heads.values() if versions is None else versions)]
    chosen = [one for one in chosen if one.span["kind"] != "d"]
    docs = await _guarded(conn, scope, chosen, sessions)
    await conn.execute("SELECT index_.remove_lexical($1, $2)", [scope.key] * len(docs), list(docs.values()))
    kept = [one for one in chosen if one.content is not None]
    found = [analyze(texts_of(one.content)) for one in kept if one.content is not None]
    places = [place for place, one in enumerate(found, 1) for _ in one.terms]
    await conn.execute(
        _ADD,
        [scope.key] * len(kept),
        [docs[one.object_id] for one in kept],
        [one.language for one in found],
        [one.length for one in found],
        [one.order for one in found],
        [one.truncated for one in found],
        [b"digest"] * len(kept),
        places,
        [term for one in found for term in one.terms],
        [times for one in found for times in one.terms.values()],
    )
    await mark(conn, scope, LEXICAL, scope.last_seq)
    return docs


async def _guarded(conn: Conn, scope: Scope, chosen: Sequence[Version], sessions: dict[str, int]) -> dict[str, int]:
    keys = [sessions.get(one.object_id.partition(":")[2]) for one in chosen]
    rows = await conn.fetch(
        _GUARD,
        [scope.key] * len(chosen),
        [one.object_id for one in chosen],
        [one.span["kind"].encode() for one in chosen],
        [one.version_id for one in chosen],
        [one.ledger_seq for one in chosen],
        [one.content is None for one in chosen],
        keys,
        [None if key is None else one.ledger_seq for key, one in zip(keys, chosen, strict=True)],
    )
    return {row["object_id"]: row["doc"] for row in rows}


async def mark(conn: Conn, scope: Scope, index_id: str, sequence: int) -> None:
    """Say up to where an index is complete."""
    await conn.execute(_MARK, scope.key, index_id, scope.epoch, sequence)


def lexical(text: str, **query: Any) -> dict[str, Any]:
    """A query by words alone."""
    return {"kind": "hybrid", "text": text, "modes": ["lexical"], **query}


SPACE: dict[str, Any] = {
    "embedding_space_id": "space:axes",
    "provider": "test",
    "model": "axes",
    "model_revision": "1",
    "dimensions": 3,
    "distance_metric": "cosine",
    "normalization": "none",
    "preprocessing_profile": "none",
    "embedding_kind": "dense",
    "canonicalization_rules": "none",
}


async def vectors(conn: Conn, scope: Scope, given: Mapping[str, Sequence[float]], **space: Any) -> str:
    """Vectors of indexed objects, by the name behind their scheme, in a space of the tenant; its id."""
    described = {**SPACE, **space}
    space_id: str = described["embedding_space_id"]
    await conn.execute(
        "INSERT INTO core.embedding_space (tenant_id, embedding_space_id, descriptor, dimensions, distance_metric,"
        " operation_id) VALUES ($1, $2, $3, $4, $5, 'op:test') ON CONFLICT DO NOTHING",
        scope.tenant_id,
        space_id,
        orjson.dumps(described).decode(),
        described["dimensions"],
        described["distance_metric"],
    )
    await conn.execute(
        "INSERT INTO index_.scope_space (scope_key, embedding_space_id, automatic, state)"
        " VALUES ($1, $2, false, 'current') ON CONFLICT DO NOTHING",
        scope.key,
        space_id,
    )
    await conn.execute(
        "INSERT INTO index_.vectors (scope_key, space_key, doc, chunk, dimensions, metric, embedding, digest)"
        ' SELECT $1, s.space_key, i.doc, 0, s.dimensions, left(s.distance_metric, 1)::"char", g.vector::vector,'
        " 'digest' FROM unnest($3::text[], $4::text[]) g (object_id, vector)"
        " JOIN index_.indexed_object i ON i.scope_key = $1 AND i.object_id = g.object_id"
        " JOIN core.embedding_space s ON s.tenant_id = $5 AND s.embedding_space_id = $2",
        scope.key,
        space_id,
        [f"obj:{name}" for name in given],
        [orjson.dumps(list(vector)).decode() for vector in given.values()],
        scope.tenant_id,
    )
    await mark(conn, scope, f"index:vector:{space_id}", scope.last_seq)
    return space_id


def near(vector: Sequence[float], **query: Any) -> dict[str, Any]:
    """A query by a vector alone."""
    return {"kind": "semantic", "vector": list(vector), **query}
