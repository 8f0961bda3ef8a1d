"""Embedding spaces as queries need them."""

from __future__ import annotations

import orjson

from pamspec_common.embedding_spaces import EmbeddingSpace, described, unknown_space
from pamspec_common.postgres import Connection

TENANT_SQL = "SELECT set_config('pamspec.tenant_id', $1, true)"
SPACE_SQL = """
SELECT descriptor FROM core.embedding_space WHERE tenant_id = $1 AND embedding_space_id = $2
"""

COUNTS_SQL = "SELECT descriptor, objects, vectors FROM index_.space_counts($1)"


async def counts(conn: Connection, scope_key: int) -> list[tuple[EmbeddingSpace, int, int]]:
    """The spaces in which a scope has vectors, by their ids: each with how many objects and vectors."""
    rows = await conn.fetch(COUNTS_SQL, scope_key)
    return [(described(orjson.loads(row["descriptor"])), row["objects"], row["vectors"]) for row in rows]


async def space(conn: Connection, tenant_id: str, embedding_space_id: str) -> EmbeddingSpace:
    """A space of the tenant, in the caller's transaction; EmbeddingSpaceMismatch when it has none of that name."""
    await conn.execute(TENANT_SQL, tenant_id)
    found = await conn.fetchval(SPACE_SQL, tenant_id, embedding_space_id)
    if found is None:
        raise unknown_space()
    return described(orjson.loads(found))
