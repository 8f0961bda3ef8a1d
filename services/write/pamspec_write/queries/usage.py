"""What tenants and scopes have stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pamspec_common.postgres import Connection
from pamspec_write.model.facts import Stored

# In the order in which every commit locks them.
LOCK_USAGE_SQL = """
SELECT x.tenant_id, min(x.quotas_version) AS quotas_version, sum(x.objects)::bigint AS objects,
  sum(x.versions)::bigint AS versions, sum(x.content_bytes)::bigint AS content_bytes
FROM (SELECT * FROM core.tenant_usage WHERE tenant_id = ANY ($1::text[])
      ORDER BY tenant_id, shard FOR NO KEY UPDATE) x
GROUP BY x.tenant_id
"""
USAGE_SQL = """
SELECT sum(objects)::bigint AS objects, sum(versions)::bigint AS versions, sum(content_bytes)::bigint AS content_bytes
FROM core.tenant_usage WHERE tenant_id = $1
"""
SCOPE_USAGE_SQL = "SELECT objects, versions, content_bytes FROM core.scope_head WHERE scope_key = $1"

# What an import has stored, counted once at its end.
COUNT_SCOPE_SQL = """
SELECT
  (SELECT count(*) FROM core.version_span
   WHERE scope_key = $1 AND to_seq = 9223372036854775807 AND availability_state <> 'deleted') AS objects,
  (SELECT count(*) FROM core.version WHERE scope_key = $1) AS versions,
  (SELECT coalesce(sum(core.value_bytes(content)), 0)::bigint FROM core.version_private WHERE scope_key = $1)
    AS content_bytes
"""
SET_SCOPE_USAGE_SQL = """
UPDATE core.scope_head SET objects = $2, versions = $3, content_bytes = $4 WHERE scope_key = $1
"""
ADD_USAGE_SQL = """
UPDATE core.tenant_usage SET objects = objects + $2, versions = versions + $3, content_bytes = content_bytes + $4
WHERE tenant_id = $1 AND shard = 0
"""
# What is left of a deleted scope counts for nobody.
LET_GO_SQL = """
WITH stored AS (
  SELECT objects, versions, content_bytes FROM core.scope_head WHERE scope_key = $1 FOR NO KEY UPDATE),
head AS (UPDATE core.scope_head SET objects = 0, versions = 0, content_bytes = 0 WHERE scope_key = $1)
UPDATE core.tenant_usage u
SET objects = u.objects - s.objects, versions = u.versions - s.versions,
  content_bytes = u.content_bytes - s.content_bytes
FROM stored s WHERE u.tenant_id = $2 AND u.shard = 0
"""
TENANT_QUOTAS_SQL = "SELECT quotas_version, quotas FROM core.quotas_in_force WHERE tenant_id = $1"


class Usage(NamedTuple):
    """What a tenant has stored, under the quotas of this version."""

    quotas_version: int
    stored: Stored


async def lock_usage(conn: Connection, tenants: Sequence[str]) -> dict[str, Usage]:
    """What these tenants have stored; no other commit of theirs ends before this one."""
    rows = await conn.fetch(LOCK_USAGE_SQL, tenants)
    return {row["tenant_id"]: Usage(row["quotas_version"], Stored(*row[2:])) for row in rows}


async def usage_of(conn: Connection, tenant_id: str, scope_key: int) -> tuple[Stored, Stored | None]:
    """What a tenant and, where its key is not 0, a scope have stored."""
    tenant = await conn.fetchrow(USAGE_SQL, tenant_id)
    scope = await conn.fetchrow(SCOPE_USAGE_SQL, scope_key) if scope_key else None
    return Stored(*(value or 0 for value in tenant or (0, 0, 0))), None if scope is None else Stored(*scope)


async def count_scope(conn: Connection, scope_key: int, timeout_s: float) -> Stored:
    """What a scope has stored, counted row by row."""
    row = await conn.fetchrow(COUNT_SCOPE_SQL, scope_key, timeout=timeout_s)
    assert row is not None
    return Stored(*row)


async def add_scope(conn: Connection, tenant_id: str, scope_key: int, stored: Stored) -> None:
    """Count a scope that was filled at once; the tenant's usage is locked."""
    counts = (stored.objects, stored.versions, stored.content_bytes)
    await conn.execute(SET_SCOPE_USAGE_SQL, scope_key, *counts)
    await conn.execute(ADD_USAGE_SQL, tenant_id, *counts)


async def let_go(conn: Connection, scope_key: int, tenant_id: str) -> None:
    """Give back everything that a scope has stored, once."""
    await conn.execute(LET_GO_SQL, scope_key, tenant_id)


async def tenant_quotas(conn: Connection, tenant_id: str) -> tuple[int, str | None]:
    """The version and the text of the quotas in force; 0 and None where there never were any."""
    row = await conn.fetchrow(TENANT_QUOTAS_SQL, tenant_id)
    return (0, None) if row is None else (row["quotas_version"], row["quotas"])
