"""The registered content schemas of a scope."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pamspec_common.postgres import Connection

SCHEMA_SQL = """
SELECT schema_id, digest, actor_id, authenticated_as, operation_id, registered_at, document
FROM core.content_schema WHERE scope_key = $1 AND schema_id = $2
"""

SCHEMAS_SQL = """
SELECT schema_id, digest, actor_id, authenticated_as, operation_id, registered_at, NULL::bytea AS document
FROM core.content_schema WHERE scope_key = $1 AND schema_id > $2 ORDER BY schema_id LIMIT $3
"""


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema, who registered it and when; its document where one is asked for by its id."""

    schema_id: str
    digest: bytes
    actor_id: str
    authenticated_as: str | None
    operation_id: str
    registered_at: datetime
    document: bytes | None


async def schema(conn: Connection, scope_key: int, schema_id: str) -> Registered | None:
    """A schema with its document."""
    row = await conn.fetchrow(SCHEMA_SQL, scope_key, schema_id)
    return None if row is None else Registered(*row)


async def schemas(conn: Connection, scope_key: int, after: str, limit: int) -> list[Registered]:
    """Schemas by their ids, after one."""
    return [Registered(*row) for row in await conn.fetch(SCHEMAS_SQL, scope_key, after, limit)]
