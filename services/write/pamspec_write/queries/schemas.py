"""Registered schemas: reading those that a batch needs, and adding one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pamspec_common.postgres import Connection
from pamspec_write.model.rows import SchemaRow

SCHEMAS_SQL = """
SELECT s.scope_key, s.schema_id, s.document FROM unnest($1::bigint[], $2::text[]) AS k (scope_key, schema_id)
CROSS JOIN LATERAL (
  SELECT * FROM core.content_schema s
  WHERE s.scope_key = k.scope_key AND s.schema_id = k.schema_id LIMIT 1) s
"""

INSERT_SCHEMA_SQL = """
INSERT INTO core.content_schema
  (scope_key, schema_id, document, digest, actor_id, authenticated_as, operation_id, registered_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""


async def read_schemas(conn: Connection, wanted: Sequence[tuple[int, str]]) -> dict[tuple[int, str], bytes]:
    """The documents of these (scope_key, schema_id)."""
    rows = await conn.fetch(SCHEMAS_SQL, [key for key, _ in wanted], [schema_id for _, schema_id in wanted])
    return {(row["scope_key"], row["schema_id"]): row["document"] for row in rows}


async def insert_schema(conn: Connection, row: SchemaRow) -> None:
    """Add a schema."""
    await conn.execute(
        INSERT_SCHEMA_SQL,
        row.scope_key,
        row.schema_id,
        row.document,
        row.digest,
        row.actor_id,
        row.authenticated_as,
        row.operation_id,
        datetime.fromisoformat(row.registered_at),
    )
