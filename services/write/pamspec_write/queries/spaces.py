"""The embedding spaces of tenants."""

from __future__ import annotations

from typing import NamedTuple

from pamspec_common.postgres import Connection

INSERT_SPACE_SQL = """
INSERT INTO core.embedding_space
  (tenant_id, embedding_space_id, descriptor, dimensions, distance_metric, authenticated_as, operation_id)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING
"""
SPACES_SQL = """
SELECT descriptor FROM core.embedding_space
WHERE tenant_id = $1 AND embedding_space_id > $2 AND ($3::text IS NULL OR embedding_space_id = $3)
ORDER BY embedding_space_id LIMIT $4
"""
UNKNOWN_SPACES_SQL = """
SELECT u.id FROM unnest($2::text[]) WITH ORDINALITY u (id, at)
WHERE NOT EXISTS (SELECT FROM core.embedding_space s WHERE s.tenant_id = $1 AND s.embedding_space_id = u.id)
ORDER BY u.at
"""
COUNT_SPACES_SQL = "SELECT count(*) FROM core.embedding_space WHERE tenant_id = $1"
LOCK_SPACES_SQL = "SELECT pg_advisory_xact_lock(hashtextextended('embedding_space ' || $1, 0))"


class SpaceRow(NamedTuple):
    """A descriptor as it is stored."""

    tenant_id: str
    embedding_space_id: str
    descriptor: str
    dimensions: int
    distance_metric: str
    authenticated_as: str | None
    operation_id: str


async def insert_space(conn: Connection, row: SpaceRow) -> bool:
    """Whether the space is new."""
    return (await conn.execute(INSERT_SPACE_SQL, *row)).endswith(" 1")


async def spaces(conn: Connection, tenant_id: str, after: str, only: str | None, limit: int) -> list[str]:
    """Descriptors by their ids, after one; the transaction shows the tenant."""
    return [row[0] for row in await conn.fetch(SPACES_SQL, tenant_id, after, only, limit)]


async def count_spaces(conn: Connection, tenant_id: str) -> int:
    """How many the tenant has; nobody else adds one before the transaction ends."""
    await conn.execute(LOCK_SPACES_SQL, tenant_id)
    return int(await conn.fetchval(COUNT_SPACES_SQL, tenant_id))


async def unknown_spaces(conn: Connection, tenant_id: str, named: list[str]) -> list[str]:
    """Those of the ids that the tenant has not described; the transaction shows the tenant."""
    return [row[0] for row in await conn.fetch(UNKNOWN_SPACES_SQL, tenant_id, named)]
