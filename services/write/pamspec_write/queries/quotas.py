"""Quotas of tenants, version by version."""

from __future__ import annotations

from typing import NamedTuple

import asyncpg

from pamspec_common.postgres import Connection

QUOTAS_SQL = """
SELECT q.quotas_version, q.quotas, q.policy_basis, q.actor_id, q.changed_at
FROM core.tenant t LEFT JOIN core.quotas q
  ON q.tenant_id = t.tenant_id AND q.quotas_version = coalesce($2, t.quotas_version)
WHERE t.tenant_id = $1 AND ($2::bigint IS NULL OR q.quotas_version IS NOT NULL)
"""
BEGIN_CHANGE_SQL = """
UPDATE core.tenant SET epoch_authz = epoch_authz + 1 WHERE tenant_id = $1 RETURNING quotas_version
"""
INSERT_QUOTAS_SQL = """
INSERT INTO core.quotas
  (tenant_id, quotas_version, quotas, policy_basis, actor_id, authenticated_as, operation_id)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
PUT_IN_FORCE_SQL = "UPDATE core.tenant SET quotas_version = $2 WHERE tenant_id = $1"
# A commit that was decided under the quotas before finds no row of this version any more.
TELL_USAGE_SQL = "UPDATE core.tenant_usage SET quotas_version = $2 WHERE tenant_id = $1"


class QuotasRow(NamedTuple):
    """A version of a tenant's quotas."""

    tenant_id: str
    quotas_version: int
    quotas: str
    policy_basis: str
    actor_id: str
    authenticated_as: str | None
    operation_id: str


async def quotas_row(conn: Connection, tenant_id: str, version: int | None) -> asyncpg.Record | None:
    """The quotas in force, or an earlier version; nulls where there never were any, None where there is no tenant."""
    return await conn.fetchrow(QUOTAS_SQL, tenant_id, version)


async def begin_change(conn: Connection, tenant_id: str) -> int | None:
    """Raise the tenant's epoch and lock it; the version in force, None where there is no such tenant."""
    version: int | None = await conn.fetchval(BEGIN_CHANGE_SQL, tenant_id)
    return version


async def change_quotas(conn: Connection, row: QuotasRow) -> None:
    """Put a version in force; the tenant and its usage are locked."""
    await conn.execute(INSERT_QUOTAS_SQL, *row)
    await conn.execute(PUT_IN_FORCE_SQL, row.tenant_id, row.quotas_version)
    await conn.execute(TELL_USAGE_SQL, row.tenant_id, row.quotas_version)
