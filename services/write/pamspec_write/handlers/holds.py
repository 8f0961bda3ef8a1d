"""The job behind legal holds: it moves retention_state object by object, with an event for each (S22).

Invariant: the record of a hold is what protects; this job only shows it in the objects. Each step is a command of the
group commit, decided under the scope's lock on the object and the holds of that moment, so a step that comes twice or
too late changes nothing. How far it is stands in the hold's row: a killed process's work goes on where it was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from pamspec_common import ids
from pamspec_common.calls import Answer
from pamspec_common.documents import Actor, Retention
from pamspec_common.errors import PamspecError
from pamspec_common.postgres import Pool, connection, scoped
from pamspec_common.service import Background
from pamspec_common.telemetry import metrics
from pamspec_write.documents.holds import HoldObject
from pamspec_write.handlers.lanes import Lanes
from pamspec_write.model.commands import Command, operation_hash
from pamspec_write.model.holds import HELD
from pamspec_write.model.leases import lease_s
from pamspec_write.queries.holds import (
    LeasedHold,
    NextHeads,
    holds_due,
    lease_hold,
    next_heads,
    next_held,
    renew_hold,
)
from pamspec_write.settings import Settings

ACTOR = Actor("service:legal-hold", "service")
_HOLDS_AT_ONCE = 16
_GROUPS_A_TURN = 10
"""After so many groups the next hold has its turn, however much is left of this one."""


class HoldJob:
    """Brings the objects of a hold under it, and lets them go after its release."""

    def __init__(self, pool: Pool, settings: Settings, lanes: Lanes) -> None:
        self._pool, self._settings, self._lanes = pool, settings, lanes
        group_s = settings.hold_group / settings.hold_objects_per_s
        self._lease_s = lease_s((settings.lock_timeout_ms + settings.statement_timeout_ms) / 1000 + group_s)

    async def run(self, background: Background) -> None:
        """Work until the service stops."""
        busy = False
        while not (
            background.stopping.is_set() if busy else await background.pause(self._settings.hold_poll_ms / 1000)
        ):
            try:
                busy = await self._round(background)
            except PamspecError:
                busy = False
                continue
            background.recovered("holds")

    async def _round(self, background: Background) -> bool:
        """A turn for each of the holds that waited longest; whether one of them has more to do."""
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            due = await holds_due(conn, _HOLDS_AT_ONCE)
        metrics.HOLDS_UNDER_WAY.set(len(due))
        busy = False
        for ref, hold_id in due:
            async with (
                connection(self._pool, self._settings.pool_wait_ms) as conn,
                scoped(conn, [ref.scope_key]),
            ):
                hold = await lease_hold(conn, ref, hold_id, self._lease_s)
            if hold is not None:
                busy |= await (self._let_go(hold, background) if hold.released else self._hold(hold, background))
            if background.stopping.is_set():
                break
        return busy

    async def _hold(self, hold: LeasedHold, background: Background) -> bool:
        """Move what the hold covers, in the order of the ledger; whether more follows."""
        done = hold.done_seq
        for _ in range(_GROUPS_A_TURN):
            found = await self._next_heads(hold, done)
            started = time.monotonic()
            clean = await self._move(hold, [(name, HELD) for name in found.object_ids], "hold_object")
            if clean:
                done = found.until
            if not clean or found.ended or await self._paced(background, len(found.object_ids), started):
                await self._renew(hold, 0, done)
                return False
            await self._renew(hold, self._lease_s, done)
        await self._renew(hold, 0, done)
        return True

    async def _let_go(self, hold: LeasedHold, background: Background) -> bool:
        """Let go of what the hold's job had moved; whether something is left."""
        for _ in range(_GROUPS_A_TURN):
            async with (
                connection(self._pool, self._settings.pool_wait_ms) as conn,
                scoped(conn, [hold.ref.scope_key]),
            ):
                found = await next_held(conn, hold, self._settings.hold_group)
            started = time.monotonic()
            clean = await self._move(hold, found, "let_go")
            if not found or not clean or await self._paced(background, len(found), started):
                await self._renew(hold, 0, 0, undone=not found)
                return False
            await self._renew(hold, self._lease_s, 0)
        await self._renew(hold, 0, 0)
        return True

    async def _next_heads(self, hold: LeasedHold, after: int) -> NextHeads:
        async with connection(self._pool, self._settings.pool_wait_ms) as conn, scoped(conn, [hold.ref.scope_key]):
            return await next_heads(conn, hold, after, self._settings.hold_group)

    async def _move(self, hold: LeasedHold, objects: Sequence[tuple[str, Retention]], operation: str) -> bool:
        """Whether every object was moved, or found to need no move."""
        commands = [self._command(hold, object_id, target, operation) for object_id, target in objects]
        answers: list[Answer] = await asyncio.gather(*(self._lanes.submit(command) for command in commands))
        refused = sum(answer.status >= 400 for answer in answers)
        metrics.HOLD_OBJECTS.add(len(answers) - refused, {"move": operation, "outcome": "done"})
        metrics.HOLD_OBJECTS.add(refused, {"move": operation, "outcome": "refused"})
        return not refused

    def _command(self, hold: LeasedHold, object_id: str, target: Retention, operation: str) -> Command:
        operation_id = ids.mint("op")
        basis = (hold.release_basis if hold.released else None) or hold.policy_basis
        return Command(
            operation=operation,
            request=HoldObject(
                scope_id=hold.ref.scope_id, object_id=object_id, policy_basis=f"{basis} ({hold.hold_id})", target=target
            ),
            scope=hold.ref,
            actor=ACTOR,
            actor_id=ACTOR.actor_id,
            rights=None,
            authenticated_as=None,
            operation_id=operation_id,
            operation_hash=operation_hash(ACTOR.actor_id, operation_id),
            key_hash=None,
            repeatable=None,
            object_id=object_id,
        )

    async def _paced(self, background: Background, count: int, started: float) -> bool:
        """Wait for as long as the rate asks for; True when the service stops."""
        left = count / self._settings.hold_objects_per_s - (time.monotonic() - started)
        return await background.pause(left) if left > 0 else background.stopping.is_set()

    async def _renew(self, hold: LeasedHold, seconds: float, done_seq: int, *, undone: bool = False) -> None:
        async with connection(self._pool, self._settings.pool_wait_ms) as conn, scoped(conn, [hold.ref.scope_key]):
            await renew_hold(conn, hold, seconds, done_seq=done_seq, undone=undone)
