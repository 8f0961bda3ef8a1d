"""Tenants: their states, and what an offboarding takes."""

from __future__ import annotations

import asyncpg

from pamspec_common.postgres import Connection

_SHOWN = "tenant_id, state, created_at, state_at"

CREATE_SQL = "INSERT INTO core.tenant (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING"
TENANTS_SQL = (
    "SELECT "
    + _SHOWN
    + """ FROM core.tenant
WHERE tenant_id > $1 AND ($2::text IS NULL OR state = $2) AND ($3::text IS NULL OR tenant_id = $3)
ORDER BY tenant_id LIMIT $4"""
)
LOCK_SQL = "SELECT " + _SHOWN + " FROM core.tenant WHERE tenant_id = $1 FOR NO KEY UPDATE"
MOVE_SQL = (
    "UPDATE core.tenant SET state = $2, state_at = clock_timestamp(), epoch_authz = epoch_authz + 1 "
    "WHERE tenant_id = $1 RETURNING " + _SHOWN
)
COUNTS_SQL = """
SELECT c.scopes, c.scopes_deleted, c.scopes_erased, c.scopes_on_hold,
  (SELECT count(*) FROM core.api_key k WHERE k.tenant_id = $1 AND k.revoked_at IS NULL) AS keys,
  (SELECT count(*) FROM core.role_binding b WHERE b.tenant_id = $1) AS role_bindings,
  (SELECT count(*) FROM core.access_rules r WHERE r.tenant_id = $1) AS access_rules
FROM core.tenant_counts($1) c
"""
REVOKE_KEYS_SQL = """
UPDATE core.api_key SET revoked_at = clock_timestamp(), epoch = epoch + 1 WHERE tenant_id = $1 AND revoked_at IS NULL
"""
UNBIND_ALL_SQL = "DELETE FROM core.role_binding WHERE tenant_id = $1"
UNRULE_ALL_SQL = "DELETE FROM core.access_rules WHERE tenant_id = $1"

OFFBOARDING_SQL = "SELECT tenant_id FROM core.tenant WHERE state = 'offboarding' ORDER BY tenant_id LIMIT $1"
DUE_SQL = "SELECT scope_key FROM core.offboarding_due($1, $2, $3)"


async def lock_tenant(conn: Connection, tenant_id: str) -> asyncpg.Record | None:
    """A tenant, held until the transaction ends."""
    return await conn.fetchrow(LOCK_SQL, tenant_id)


async def move(conn: Connection, tenant_id: str, state: str) -> asyncpg.Record:
    """The tenant in its new state, with its epoch raised."""
    row = await conn.fetchrow(MOVE_SQL, tenant_id, state)
    assert row is not None
    return row


async def counts(conn: Connection, tenant_id: str) -> dict[str, int]:
    """What a tenant has."""
    row = await conn.fetchrow(COUNTS_SQL, tenant_id)
    assert row is not None
    return dict(row)
