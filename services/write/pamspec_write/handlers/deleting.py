"""The deletion of scopes: decided in one transaction, erased by a job in bounded steps.

Invariants: from the commit of the deletion on, the scope is for nobody (S15): its rights forbid everything but the
verification of what is left of its ledger. A hold refuses it, judged under the lock of the scope. How far the erasure
is stands in its row, written with each step: a killed process's work goes on where it was, and a step that comes twice
changes nothing. Names are not used again (S8).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from pamspec_common.calls import Answer
from pamspec_common.errors import LegalHold, PamspecError, ScopeNotFound
from pamspec_common.instants import wire
from pamspec_common.postgres import SHOW_TENANT_SQL, Connection, Pool, connection, scoped
from pamspec_common.service import Background
from pamspec_write.documents.tenants import DeleteScope
from pamspec_write.handlers.administering import Asked, RolledBack, record
from pamspec_write.model.leases import lease_s
from pamspec_write.model.rows import AdministrationRow
from pamspec_write.queries import deletion as queries
from pamspec_write.queries import tenants
from pamspec_write.queries.administration import Place, policy_version, raise_epoch, record_change
from pamspec_write.queries.deletion import LeasedDeletion
from pamspec_write.settings import Settings

ACTOR_ID = "service:scope-deletion"
_AT_ONCE = 16
_STEPS_A_TURN = 50
"""After so many steps the next scope has its turn, however much is left of this one."""
_SCOPES_A_TURN = 200


async def delete_scope(conn: Connection, asked: Asked, request: DeleteScope) -> Answer:
    """Delete a scope for good; of one that is deleted already, how far its erasure is."""
    assert asked.scope is not None
    key = asked.scope.scope_key
    await raise_epoch(conn, asked.place)
    known = await queries.deletion(conn, key)
    if known is not None:
        raise RolledBack(asked.answer(scope_id=request.scope_id, **_shown(known)))
    if not asked.in_sight:
        raise ScopeNotFound
    await _refuse_held(conn, key)
    row = await conn.fetchrow(queries.COUNTS_SQL, key, asked.tenant_id)
    assert row is not None
    if request.dry_run:
        raise RolledBack(asked.answer(scope_id=request.scope_id, state="present", counts=dict(row)))
    await begin_deletion(conn, key, asked.tenant_id, (asked.actor.actor_id, asked.operation_id, request.policy_basis))
    await record(conn, asked, request.policy_basis, request.scope_id, f"{row['versions']} versions")
    return asked.answer(scope_id=request.scope_id, state="erasing", counts=dict(row))


async def begin_deletion(conn: Connection, scope_key: int, tenant_id: str, by: tuple[str, str, str]) -> None:
    """Note the deletion (actor, operation, basis) of a scope that is locked, and take its roles."""
    await conn.execute(queries.INSERT_DELETION_SQL, scope_key, *by)
    await conn.execute(queries.DELETE_BINDINGS_SQL, tenant_id, scope_key)


async def _refuse_held(conn: Connection, scope_key: int) -> None:
    held = await queries.held(conn, scope_key)
    if held.hold_id is not None or held.objects:
        details = {} if held.hold_id is None else {"hold_id": held.hold_id}
        raise LegalHold(
            "Something of the scope is under a legal hold; it goes when the hold is released.", details=details
        )


def _shown(row: asyncpg.Record) -> dict[str, Any]:
    """How far a deletion is."""
    found: dict[str, Any] = {
        "state": "erasing" if row["finished_at"] is None else "erased",
        "erased_versions": row["erased_versions"],
        "requested_at": wire(row["requested_at"]),
    }
    if row["finished_at"] is not None:
        found["finished_at"] = wire(row["finished_at"])
    return found


async def _note(conn: Connection, place: Place, operation: str, said: tuple[str, str, str]) -> None:
    """Note what the job has brought to its end: operation id, basis and detail."""
    operation_id, basis, detail = said
    version = await policy_version(conn, place)
    row = AdministrationRow(*place, operation, operation_id, ACTOR_ID, None, basis, detail, version)
    await record_change(conn, row)


class DeletionJob:
    """Erases what deleted scopes held, and takes the scopes of tenants that leave."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self._pool, self._settings = pool, settings
        self._lease_s = lease_s((2 * settings.statement_timeout_ms + settings.pool_wait_ms) / 1000)

    async def run(self, background: Background) -> None:
        """Work until the service stops."""
        busy = False
        while not (
            background.stopping.is_set() if busy else await background.pause(self._settings.deletion_poll_ms / 1000)
        ):
            try:
                busy = await self._round(background)
            except PamspecError:
                busy = False
                continue
            background.recovered("deletions")

    async def _round(self, background: Background) -> bool:
        """A turn for everything that waits; whether there is more to do."""
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            leaving = [row["tenant_id"] for row in await conn.fetch(tenants.OFFBOARDING_SQL, _AT_ONCE)]
            due = await conn.fetch(queries.DUE_SQL, _AT_ONCE)
        busy = False
        for row in due:
            busy |= await self._erase(row["scope_key"], row["tenant_id"], background)
            if background.stopping.is_set():
                return False
        for tenant_id in leaving:
            busy |= await self._take_scopes(tenant_id)
        return busy

    async def _erase(self, scope_key: int, tenant_id: str, background: Background) -> bool:
        """Erase a scope step by step; whether it is to go on at once."""
        async with self._scope(scope_key, tenant_id) as conn:
            work = await queries.lease(conn, scope_key, tenant_id, self._lease_s)
        if work is None:
            return False
        for _ in range(_STEPS_A_TURN):
            async with self._scope(scope_key, tenant_id) as conn:
                done = await queries.erase_step(conn, work, self._settings.deletion_versions, self._lease_s)
                more = done is not None or await queries.erase_records(
                    conn, scope_key, self._settings.deletion_versions
                )
                if not more:
                    await self._finish(conn, work)
                    return False
            work = done or work
            if await background.pause(self._settings.deletion_pause_ms / 1000):
                return False
        async with self._scope(scope_key, tenant_id) as conn:
            await conn.execute(queries.PROGRESS_SQL, scope_key, work.done_seq, work.erased_versions, 0.0)
        return True

    async def _finish(self, conn: Connection, work: LeasedDeletion) -> None:
        await queries.finish(conn, work)
        place = Place(work.tenant_id, work.scope_key)
        detail = f"{work.erased_versions} versions erased"
        await _note(conn, place, "delete_scope", (work.operation_id, work.policy_basis, detail))

    async def _take_scopes(self, tenant_id: str) -> bool:
        """Delete the next scopes of a tenant that leaves; once all are erased it is gone."""
        after, taken = 0, 0
        while taken < _SCOPES_A_TURN:
            async with connection(self._pool, self._settings.pool_wait_ms) as conn:
                rows = await conn.fetch(tenants.DUE_SQL, tenant_id, after, _AT_ONCE)
            for row in rows:
                after = row["scope_key"]
                taken += await self._take(tenant_id, after)
            if len(rows) < _AT_ONCE:
                break
        if taken:
            return True
        async with connection(self._pool, self._settings.pool_wait_ms) as conn, scoped(conn, []):
            await conn.execute(SHOW_TENANT_SQL, tenant_id)
            state = await tenants.lock_tenant(conn, tenant_id)
            left = await tenants.counts(conn, tenant_id)
            if state is not None and state["state"] == "offboarding" and left["scopes"] == left["scopes_erased"]:
                await tenants.move(conn, tenant_id, "offboarded")
                detail = f"{left['scopes']} scopes erased"
                said = ("op:offboarding", "all of its scopes are erased", detail)
                await _note(conn, Place(tenant_id, 0), "offboard_tenant", said)
        return False

    async def _take(self, tenant_id: str, scope_key: int) -> bool:
        """Whether a scope of a tenant that leaves was taken; one under a hold stays until it is released."""
        async with self._scope(scope_key, tenant_id) as conn:
            await raise_epoch(conn, Place(tenant_id, scope_key))
            held = await queries.held(conn, scope_key)
            if held.hold_id is not None or held.objects:
                return False
            by = (ACTOR_ID, "op:offboarding", "the tenant is offboarded")
            await begin_deletion(conn, scope_key, tenant_id, by)
        return True

    @asynccontextmanager
    async def _scope(self, scope_key: int, tenant_id: str) -> AsyncIterator[Connection]:
        async with connection(self._pool, self._settings.pool_wait_ms) as conn, scoped(conn, [scope_key]):
            await conn.execute(SHOW_TENANT_SQL, tenant_id)
            yield conn
