"""import: a whole file is checked before anything of it is stored, and stored in one transaction (PAMSPEC P15, P192).

Invariant: a scope shows all of an import or nothing, whatever dies meanwhile. While the file comes, only a temporary
file of this process grows; no connection is held. Storing needs nothing from the client any more.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import asyncpg

from pamspec_common import strict_json
from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest, ServiceUnavailable
from pamspec_common.postgres import Pool, connection
from pamspec_common.principal import Principal
from pamspec_common.quotas import quotas_of
from pamspec_common.telemetry import metrics
from pamspec_common.transfer import MAX_LINE, Manifest
from pamspec_write.documents.transfer import Import
from pamspec_write.handlers.access import Access, own_actor
from pamspec_write.handlers.outbox import OutboxBound
from pamspec_write.handlers.spool import Spool
from pamspec_write.handlers.storage import StorageQuotas
from pamspec_write.handlers.storing import File, Storing
from pamspec_write.model.intake import Intake
from pamspec_write.settings import Settings

Chunks = AsyncIterator[bytes]
Wake = Callable[[int], Awaitable[None]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """An import as it was asked for."""

    request: Import
    principal: Principal
    operation_id: str

    def target(self, manifest: Manifest) -> str:
        """The scope that the file goes to; InvalidRequest when scope_id says another one."""
        request = self.request
        scope_id = manifest.scope_id if request.remap is None else request.remap.scope_id
        if request.scope_id not in (None, scope_id):
            raise InvalidRequest(
                f"scope_id is not the scope that the file goes to, which is {scope_id}; leave it out, or send remap.",
                details={"field": "scope_id"},
            )
        if request.remap is not None and scope_id == manifest.scope_id:
            raise InvalidRequest(
                "remap names the scope of the file itself; leave it out to keep the scope's identity.",
                details={"field": "remap"},
            )
        return scope_id


class Imports:
    """Takes imports, a few at once."""

    def __init__(self, pool: Pool, settings: Settings, access: Access, outbox: OutboxBound, wake: Wake) -> None:
        self._pool, self._settings, self._outbox, self._wake = pool, settings, outbox, wake
        self._access = access
        self._quotas = StorageQuotas(quotas_of(settings.quota_defaults))
        self._under_way = 0

    async def run(self, asked: Asked, chunks: Chunks) -> Answer:
        """The answer to a file, once its scope holds all of it.

        A file brings a history with authors of its own, so it takes the right of an administrator of the tenant.
        """
        await self._access.permitted("import", asked.principal, own_actor(asked.principal), None, now=True)
        self._check_outbox()
        if self._under_way >= self._settings.imports_at_once:
            raise ServiceUnavailable("Too many imports are under way; try again shortly.", retry_after=5)
        self._under_way += 1
        try:
            async with Spool(self._settings.import_directory, self._settings.import_max_bytes) as spool:
                intake = await self._take(asked, chunks, spool)
                return await self._store(asked, intake, spool)
        finally:
            self._under_way -= 1

    async def _take(self, asked: Asked, chunks: Chunks, spool: Spool) -> Intake:
        """Check all lines of a file and keep them."""
        intake, rest = Intake(), b""
        async for chunk in chunks:
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                intake.feed(line)
                if intake.number == 1 and intake.manifest is not None:
                    asked.target(intake.manifest)
            if len(rest) > MAX_LINE:
                intake.feed(rest)
            if whole:
                await spool.add(b"\n".join(whole) + b"\n")
        if rest:
            intake.number += 1
            raise intake.refused("it has no line feed; the file was cut, export again.")
        intake.finish()
        return intake

    async def _store(self, asked: Asked, intake: Intake, spool: Spool) -> Answer:
        assert intake.manifest is not None
        assert intake.scope is not None
        self._check_outbox()
        storing = Storing(_file(asked, intake, self._settings.partitions), self._quotas)
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            try:
                answer = await storing.run(conn, spool)
            except asyncpg.UniqueViolationError as error:
                _log.info("an import repeats an id: %s", error.constraint_name, extra={"action": "import_refused"})
                raise storing.refused("an id in it, or just before it, stands twice.") from None
        if storing.partition is not None:
            metrics.LEDGER_ENTRIES.add(str(storing.partition), amount=storing.stored)
            await self._wake(storing.partition)
        return answer

    def _check_outbox(self) -> None:
        if self._outbox.full:
            raise ServiceUnavailable(
                "The bus has been away for too long and the outbox is full; writes go on when it drains.",
                details={"reason": "outbox_full"},
                retry_after=5,
            )


def _file(asked: Asked, intake: Intake, partitions: int) -> File:
    """A checked file with what was asked of it."""
    assert intake.manifest is not None
    assert intake.scope is not None
    request, end = asked.request, intake.finish()
    remap = None if request.remap is None else request.remap.scope_id
    repeatable = strict_json.dumps({"digest": end.digest, "on_conflict": request.on_conflict, "remap": remap})
    return File(
        tenant_id=asked.principal.tenant_id,
        scope_id=asked.target(intake.manifest),
        scope=intake.scope,
        old_scope_id=intake.manifest.scope_id,
        end=end,
        remapped=request.remap is not None,
        skip=request.on_conflict == "skip",
        actor_id=asked.principal.actor_id,
        operation_id=asked.operation_id,
        idempotency_key=request.idempotency_key,
        repeatable=b"import\x00" + repeatable,
        partitions=partitions,
    )
