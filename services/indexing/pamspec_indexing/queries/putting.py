"""What the canonical store says of objects that get vectors, and of the spaces that a scope has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pamspec_common.postgres import Connection

CANONICAL_SQL = """
SELECT object_id, version_id, availability_state IN ('deleted', 'redacted') AS gone, object_type, lifecycle_state,
       availability_state, retention_state, validation_state, created_by
FROM core.object_head WHERE scope_key = $1 AND object_id = ANY ($2::text[]) AND kind = 'o'
"""
REMAKE_SQL = """
INSERT INTO index_.scope_space AS s (scope_key, embedding_space_id, automatic, state, backfill)
VALUES ($1, $2, true, CASE WHEN EXISTS (SELECT FROM index_.scope_space o WHERE o.scope_key = $1 AND o.automatic
  AND o.embedding_space_id <> $2 AND o.state = 'current') THEN 'shadow' ELSE 'current' END, 0)
ON CONFLICT (scope_key, embedding_space_id) DO UPDATE
  SET automatic = true, backfill = 0,
      state = CASE WHEN s.automatic AND s.state = 'current' THEN 'current' ELSE excluded.state END
RETURNING state
"""
DROP_SQL = """
WITH queue AS (DELETE FROM index_.embedding_queue WHERE scope_key = $1 AND embedding_space_id = $2),
     mark AS (DELETE FROM index_.watermark WHERE scope_key = $1 AND index_id = $3)
UPDATE index_.scope_space SET automatic = false, state = 'retired', backfill = NULL, since = clock_timestamp()
WHERE scope_key = $1 AND embedding_space_id = $2
"""

RETIRED_SQL = """
SELECT scope_key, embedding_space_id FROM index_.scope_space WHERE state = 'retired' ORDER BY scope_key LIMIT $1
"""
LET_GO_SQL = """
WITH space AS (DELETE FROM index_.scope_space WHERE scope_key = $1 AND embedding_space_id = $2 AND state = 'retired'
               RETURNING scope_key)
DELETE FROM index_.watermark w USING space WHERE w.scope_key = space.scope_key AND w.index_id = $3
"""


class Canonical(NamedTuple):
    """The current version of an object."""

    version_id: str
    gone: bool
    """Whether its content is erased."""
    memory: Mapping[str, str]
    """Its attributes for rules."""


async def canonical(conn: Connection, scope_key: int, object_ids: list[str]) -> dict[str, Canonical]:
    """The current versions of these objects."""
    found = {}
    for row in await conn.fetch(CANONICAL_SQL, scope_key, object_ids):
        states = ("object_type", "lifecycle_state", "availability_state", "retention_state", "validation_state")
        memory = {name: row[name] for name in states} | {"creator": row["created_by"]}
        found[row["object_id"]] = Canonical(row["version_id"], row["gone"], memory)
    return found


async def remake(conn: Connection, scope_key: int, space_id: str) -> str:
    """Embed all of the scope into a space, again or for the first time; the state that the space has."""
    return str(await conn.fetchval(REMAKE_SQL, scope_key, space_id))


async def drop(conn: Connection, scope_key: int, space_id: str, index_id: str) -> None:
    """Embed nothing of the scope into a space any more; its vectors are cleared away afterwards."""
    await conn.execute(DROP_SQL, scope_key, space_id, index_id)
