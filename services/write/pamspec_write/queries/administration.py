"""Roles and rules: each change raises the epoch of its scope or tenant in the same transaction."""

from __future__ import annotations

from typing import NamedTuple

import asyncpg

from pamspec_common.postgres import Connection
from pamspec_write.model.rows import AdministrationRow

RAISE_TENANT_EPOCH_SQL = "UPDATE core.tenant SET epoch_authz = epoch_authz + 1 WHERE tenant_id = $1"
RAISE_SCOPE_EPOCH_SQL = """
UPDATE core.scope_head SET epoch_authz = epoch_authz + 1, revision = revision + 1 WHERE scope_key = $1
"""

TENANT_SQL = "SELECT EXISTS (SELECT FROM core.tenant WHERE tenant_id = $1)"

BIND_SQL = """
INSERT INTO core.role_binding (tenant_id, scope_key, actor_id, role, bound_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING
"""
UNBIND_SQL = """
DELETE FROM core.role_binding WHERE tenant_id = $1 AND scope_key = $2 AND actor_id = $3 AND role = $4
"""
BINDINGS_SQL = """
SELECT actor_id, role, bound_by, bound_at FROM core.role_binding
WHERE tenant_id = $1 AND scope_key = $2 AND ($3::text IS NULL OR actor_id = $3) AND (actor_id, role) > ($4, $5)
ORDER BY actor_id, role LIMIT $6
"""

RULES_SQL = """
SELECT rules_version, text, policy_basis, actor_id, changed_at FROM core.access_rules
WHERE tenant_id = $1 AND scope_key = $2 AND ($3::bigint IS NULL OR rules_version = $3)
ORDER BY rules_version DESC LIMIT 1
"""
NEIGHBOURS_SQL = """
SELECT DISTINCT ON (scope_key) scope_key, text FROM core.access_rules
WHERE tenant_id = $1 AND scope_key <> $2 AND ($2 = 0 OR scope_key = 0) ORDER BY scope_key, rules_version DESC
"""
INSERT_RULES_SQL = """
INSERT INTO core.access_rules (tenant_id, scope_key, rules_version, text, policy_basis, actor_id)
VALUES ($1, $2, $3, $4, $5, $6)
"""

RECORD_SQL = """
INSERT INTO core.administration
  (tenant_id, scope_key, operation, operation_id, actor_id, authenticated_as, policy_basis, subject, detail,
   policy_version)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""
EPOCHS_SQL = """
SELECT t.epoch_authz AS tenant_epoch, h.epoch_authz AS scope_epoch
FROM core.tenant t LEFT JOIN core.scope_head h ON h.scope_key = $2 WHERE t.tenant_id = $1
"""
RECORD_REFUSAL_SQL = """
INSERT INTO core.administration
  (tenant_id, scope_key, operation, operation_id, actor_id, authenticated_as, policy_basis, subject, detail, outcome,
   occurrences)
VALUES ($1, 0, $2, $3, $4, $5, $6, $7, $8, 'denied', $9)
"""
ADMINISTRATION_SQL = """
SELECT id, done_at, operation, operation_id, actor_id, authenticated_as, policy_basis, subject, detail, outcome,
       policy_version, occurrences
FROM core.administration
WHERE tenant_id = $1 AND scope_key = $2 AND id < $3 AND ($5::text IS NULL OR actor_id = $5)
  AND ($6::text IS NULL OR operation = $6) AND ($7::text IS NULL OR outcome = $7)
  AND ($8::timestamptz IS NULL OR done_at >= $8) AND ($9::timestamptz IS NULL OR done_at < $9)
ORDER BY id DESC LIMIT $4
"""


class Place(NamedTuple):
    """Where roles and rules hold: a scope, or with the key 0 the whole tenant."""

    tenant_id: str
    scope_key: int


class Rules(NamedTuple):
    """One version of the rules of a place."""

    version: int
    text: str
    record: asyncpg.Record | None


async def raise_epoch(conn: Connection, place: Place) -> None:
    """Let every decision that rests on the rights of this place be made again."""
    if place.scope_key == 0:
        await conn.execute(RAISE_TENANT_EPOCH_SQL, place.tenant_id)
    else:
        await conn.execute(RAISE_SCOPE_EPOCH_SQL, place.scope_key)


async def policy_version_before(conn: Connection, place: Place) -> str:
    """The authorization epochs, as <tenant>.<scope>, before this transaction, which has raised that of the place."""
    row = await conn.fetchrow(EPOCHS_SQL, *place)
    assert row is not None
    tenant, scope = row["tenant_epoch"], row["scope_epoch"] or 0
    if place.scope_key:
        return f"{tenant}.{scope - 1}"
    return f"{tenant - 1}.{scope}"


async def policy_version(conn: Connection, place: Place) -> str:
    """The authorization epochs, as <tenant>.<scope>, as they stand."""
    row = await conn.fetchrow(EPOCHS_SQL, *place)
    assert row is not None
    return f"{row['tenant_epoch']}.{row['scope_epoch'] or 0}"


async def record_change(conn: Connection, row: AdministrationRow) -> None:
    """Add a change to the audit log."""
    await conn.execute(
        RECORD_SQL, row.tenant_id, row.scope_key, row.operation, row.operation_id, row.actor_id, row.authenticated_as,
        row.policy_basis, row.subject, row.detail, row.policy_version,
    )  # fmt: skip


async def access_rules(conn: Connection, place: Place, version: int | None = None) -> Rules:
    """The rules in force, or an earlier version; version 0 with an empty text where there never were any."""
    row = await conn.fetchrow(RULES_SQL, place.tenant_id, place.scope_key, version)
    return Rules(0, "", None) if row is None else Rules(row["rules_version"], row["text"], row)


async def neighbours(conn: Connection, place: Place) -> list[str]:
    """The rules that hold together with those of this place: the tenant's, or those of each of its scopes."""
    return [row["text"] for row in await conn.fetch(NEIGHBOURS_SQL, place.tenant_id, place.scope_key)]


async def tenant_exists(conn: Connection, tenant_id: str) -> bool:
    """Whether there is such a tenant."""
    return bool(await conn.fetchval(TENANT_SQL, tenant_id))


async def record_refusal(
    conn: Connection,
    tenant_id: str,
    *,
    operation: str,
    operation_id: str,
    actor_id: str,
    authenticated_as: str | None,
    basis: str,
    scope_id: str | None,
    reason: str,
    count: int,
) -> None:
    """Add refusals to a tenant's audit log; `scope_id` is the name that was asked for, `basis` the rule."""
    await conn.execute(
        RECORD_REFUSAL_SQL, tenant_id, operation, operation_id, actor_id, authenticated_as, basis, scope_id, reason,
        count,
    )  # fmt: skip
