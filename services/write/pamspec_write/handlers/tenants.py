"""Tenants: made, listed, suspended, resumed and taken off by operators.

Invariant: a tenant that is not active opens to nobody from the commit on, whatever the credential: its keys are not
found, and its rights forbid everything. An offboarding can be asked for again at any time, and says how far it is.
"""

from __future__ import annotations

from typing import Any

import asyncpg

from pamspec_common.calls import Answer
from pamspec_common.errors import DuplicateOperation, InvalidRequest, LegalHold, ObjectNotFound
from pamspec_common.ids import is_id
from pamspec_common.instants import wire
from pamspec_common.postgres import Connection
from pamspec_write.documents.tenants import CreateTenant, ListTenants, OffboardTenant, ResumeTenant, SuspendTenant
from pamspec_write.handlers.administering import Asked, RolledBack, no_cursor, page_of, record
from pamspec_write.queries import tenants as queries


async def create_tenant(conn: Connection, asked: Asked, request: CreateTenant) -> Answer:
    """A new tenant; one that is active already stays as it is and is no change."""
    created = await conn.execute(queries.CREATE_SQL, request.tenant_id) == "INSERT 0 1"
    row = await _known(conn, request.tenant_id)
    if row["state"] != "active":
        raise DuplicateOperation(
            "A tenant of that id exists and is not active; resume it, or use another id.",
            details={"state": row["state"]},
        )
    if created:
        await record(conn, asked, request.policy_basis, None, request.tenant_id)
    return asked.answer(tenant=_shown(row), changed=created)


async def list_tenants(conn: Connection, asked: Asked, request: ListTenants) -> Answer:
    """A page of tenants by their ids; a single one with what it has."""
    limit, cursor = page_of(request.pagination)
    if cursor is not None and not is_id(cursor):
        raise no_cursor()
    rows = await conn.fetch(queries.TENANTS_SQL, cursor or "", request.state, request.tenant_id, limit + 1)
    found = [_shown(row) for row in rows[:limit]]
    if request.tenant_id is not None and found:
        found[0]["counts"] = await queries.counts(conn, request.tenant_id)
    return asked.answer(tenants=found, next_cursor=found[-1]["tenant_id"] if len(rows) > limit else None)


async def suspend_tenant(conn: Connection, asked: Asked, request: SuspendTenant) -> Answer:
    """Close a tenant to everybody, with everything kept."""
    row = await _known(conn, request.tenant_id)
    if row["state"] in ("offboarding", "offboarded"):
        raise InvalidRequest("The tenant is being taken off, which closed it.", details={"state": row["state"]})
    return await _moved(conn, asked, row, "suspended", request.policy_basis)


async def resume_tenant(conn: Connection, asked: Asked, request: ResumeTenant) -> Answer:
    """Open a tenant again; one that is being taken off keeps the scopes that are not deleted yet, and no keys."""
    row = await _known(conn, request.tenant_id)
    if row["state"] == "offboarded":
        raise InvalidRequest("Nothing is left of the tenant; create another one.", details={"state": row["state"]})
    return await _moved(conn, asked, row, "active", request.policy_basis)


async def offboard_tenant(conn: Connection, asked: Asked, request: OffboardTenant) -> Answer:
    """End a tenant: its keys, roles and rules now, its scopes by the job; with dry_run only counted."""
    row = await _known(conn, request.tenant_id)
    counts = await queries.counts(conn, request.tenant_id)
    if request.dry_run or row["state"] == "offboarded":
        raise RolledBack(asked.answer(tenant=_shown(row), changed=False, counts=counts))
    if counts["scopes_on_hold"]:
        raise LegalHold(
            "Scopes of the tenant are under legal holds; it can be taken off when they are released.",
            details={"scopes": counts["scopes_on_hold"]},
        )
    changed = row["state"] != "offboarding"
    if changed:
        row = await queries.move(conn, request.tenant_id, "offboarding")
        await record(conn, asked, request.policy_basis, None, f"{counts['scopes']} scopes, {counts['keys']} keys")
    for sql in (queries.REVOKE_KEYS_SQL, queries.UNBIND_ALL_SQL, queries.UNRULE_ALL_SQL):
        await conn.execute(sql, request.tenant_id)
    return asked.answer(tenant=_shown(row), changed=changed, counts=counts)


async def _moved(conn: Connection, asked: Asked, row: asyncpg.Record, state: str, basis: str) -> Answer:
    changed = row["state"] != state
    if changed:
        row = await queries.move(conn, row["tenant_id"], state)
        await record(conn, asked, basis, None, state)
    return asked.answer(tenant=_shown(row), changed=changed)


async def _known(conn: Connection, tenant_id: str) -> asyncpg.Record:
    row = await queries.lock_tenant(conn, tenant_id)
    if row is None:
        raise ObjectNotFound("There is no such tenant; create it first.", details={"field": "tenant_id"})
    return row


def _shown(row: asyncpg.Record) -> dict[str, Any]:
    """A tenant as it is answered."""
    return {
        "tenant_id": row["tenant_id"],
        "state": row["state"],
        "created_at": wire(row["created_at"]),
        "state_at": wire(row["state_at"]),
    }
