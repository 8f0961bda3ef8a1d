"""Forgets: begun by the query service with the set that it found, worked off here through the group commit.

Invariants: what becomes of an item is decided under the lock of the scope, by the holds and the version of that moment;
how far the work is stands in the rows of its items, so a killed process's work goes on where it was and nothing is
erased twice. Whoever ordered it was allowed to delete and redact everything in the scope; it acts in that actor's name.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pamspec_common import ids
from pamspec_common.calls import Answer
from pamspec_common.documents import Actor
from pamspec_common.errors import AccessDenied, PamspecError
from pamspec_common.postgres import Connection, Pool, connection, scoped
from pamspec_common.principal import RIGHT_SERVICE, Principal
from pamspec_common.service import Background
from pamspec_common.strict_json import dumps
from pamspec_write.documents.decoding import decode
from pamspec_write.documents.forgetting import BeginForget
from pamspec_write.handlers.access import Access
from pamspec_write.handlers.admission.acting import actor_of
from pamspec_write.handlers.lanes import Lanes
from pamspec_write.model.commands import Command, operation_hash
from pamspec_write.model.forgetting import ACCOUNT, DONE, next_step, outcome
from pamspec_write.model.leases import lease_s
from pamspec_write.queries import forgetting as queries
from pamspec_write.queries.forgetting import Item, LeasedForget
from pamspec_write.settings import Settings

_AT_ONCE = 16
_GROUPS_A_TURN = 20
"""After so many groups the next forget has its turn, however much is left of this one."""


class Forgets:
    """Answers begin_forget."""

    def __init__(self, pool: Pool, settings: Settings, access: Access) -> None:
        self._pool, self._settings, self._access = pool, settings, access

    async def begin(self, document: dict[str, Any], body: bytes, principal: Principal) -> Awaitable[Answer]:
        """The work of beginning; AccessDenied for others than services."""
        if not principal.has(RIGHT_SERVICE):
            raise AccessDenied("begin_forget is for the services themselves; send forget.")
        request = decode(BeginForget, body)
        actor, _ = actor_of(principal, request, document)
        return self._begin(request, principal, actor)

    async def _begin(self, request: BeginForget, principal: Principal, actor: Actor) -> Answer:
        scope = await self._access.resolve(principal, request.scope_id)
        operation_id = request.operation_id or ids.mint("op")
        name = "erasure:" + hashlib.sha256(f"{scope.scope_key} {request.token}".encode()).hexdigest()[:32]
        who = (actor.actor_id, actor.actor_kind)
        async with connection(self._pool, self._settings.pool_wait_ms) as conn, scoped(conn, [scope.scope_key]):
            total = await queries.begin_forget(conn, scope, name, request, who, operation_id)
        return Answer(200, dumps({"operation_id": operation_id, "erasure_id": name, "total": total}))


class ForgetJob:
    """Works off what forgets named."""

    def __init__(self, pool: Pool, settings: Settings, lanes: Lanes) -> None:
        self._pool, self._settings, self._lanes = pool, settings, lanes
        waits_ms = settings.lock_timeout_ms + settings.statement_timeout_ms + settings.pool_wait_ms
        self._lease_s = lease_s(waits_ms / 1000)

    async def run(self, background: Background) -> None:
        """Work until the service stops."""
        busy = False
        while not (
            background.stopping.is_set() if busy else await background.pause(self._settings.forget_poll_ms / 1000)
        ):
            try:
                busy = await self._round(background)
            except PamspecError:
                busy = False
                continue
            background.recovered("forgets")

    async def _round(self, background: Background) -> bool:
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            due = await queries.due(conn, _AT_ONCE)
        busy = False
        for ref, erasure_id in due:
            async with connection(self._pool, self._settings.pool_wait_ms) as conn, scoped(conn, [ref.scope_key]):
                work = await queries.lease(conn, ref, erasure_id, self._lease_s)
            if work is not None:
                busy |= await self._turn(work, background)
            if background.stopping.is_set():
                return False
        return busy

    async def _turn(self, work: LeasedForget, background: Background) -> bool:
        """Some groups of a forget; whether it made progress and has more to do."""
        after, progress = "", False
        for _ in range(_GROUPS_A_TURN):
            async with self._scope(work) as conn:
                items = await queries.next_items(conn, work, after, self._settings.forget_group)
            if not items or background.stopping.is_set():
                break
            after = items[-1].object_id
            found = await self._take(work, items)
            progress |= bool(found)
            async with self._scope(work) as conn:
                await queries.mark(conn, work, found, self._lease_s)
        async with self._scope(work) as conn:
            await queries.mark(conn, work, [], 0.0)
            await queries.finish(conn, work)
        return progress

    async def _take(self, work: LeasedForget, items: Sequence[Item]) -> list[tuple[str, str, str | None]]:
        """The items that are settled now, each with its state and the code that refused it."""
        steps = [(item, self._command(work, item)) for item in items]
        asked = [(item, command) for item, command in steps if command is not None]
        answers = await asyncio.gather(*(self._lanes.submit(command) for _, command in asked))
        found: list[tuple[str, str, str | None]] = [
            (item.object_id, DONE, None) for item, command in steps if command is None
        ]
        for (item, _), answer in zip(asked, answers, strict=True):
            settled = outcome(answer, whole=item.whole)
            if settled is not None:
                found.append((item.object_id, *settled))
        return found

    def _command(self, work: LeasedForget, item: Item) -> Command | None:
        head = None if item.version_id is None else (item.version_id, str(item.availability_state))
        step = next_step(
            work.ref.scope_id,
            item.object_id,
            relationship=item.kind == b"r",
            whole=item.whole,
            head=head,
            left=item.version_ids or [],
            policy_basis=work.policy_basis,
        )
        if step is None:
            return None
        operation_id = ids.mint("op")
        return Command(
            operation=step.operation,
            request=step.request,
            scope=work.ref,
            actor=Actor(work.actor_id, work.actor_kind),
            actor_id=work.actor_id,
            rights=None,
            authenticated_as=None,
            operation_id=operation_id,
            operation_hash=operation_hash(work.actor_id, operation_id),
            key_hash=None,
            repeatable=None,
            provenance=ACCOUNT if step.operation == "update" else None,
            object_id=item.object_id,
            kind=item.kind.decode(),
            past=step.past,
            part_of=work.erasure_id,
        )

    @asynccontextmanager
    async def _scope(self, work: LeasedForget) -> AsyncIterator[Connection]:
        async with connection(self._pool, self._settings.pool_wait_ms) as conn, scoped(conn, [work.ref.scope_key]):
            yield conn
