"""Working on jobs: rebuild, drop and verify, a page at a time.

Invariant: a page and how far the job is are one transaction, which holds the job's row and the scope's inbox row;
so a killed process's page did not happen, no two work on the same job, and the consumer waits a page at most.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from pamspec_common.calls import Call
from pamspec_common.consuming.intake import PASSING
from pamspec_common.peers import Peer
from pamspec_common.postgres import Connection, show_scopes
from pamspec_common.principal import TokenSigner, service_principal
from pamspec_common.service import Background
from pamspec_common.strict_json import dumps
from pamspec_common.telemetry import metrics
from pamspec_indexing.handlers.entries import Projection
from pamspec_indexing.model import Head
from pamspec_indexing.queries import clearing, jobs, objects
from pamspec_indexing.queries.jobs import Job
from pamspec_indexing.queries.objects import Indexed
from pamspec_indexing.store import Store

_log = logging.getLogger(__name__)

PAGE = 500


class Rebuildable(Projection, Protocol):
    """A projection that has jobs."""

    async def rewrite(self, conn: Connection, indexed: Sequence[Indexed]) -> None:
        """Let what is derived of these be that of their heads, whatever the rows say now."""

    async def compare(self, conn: Connection, indexed: Sequence[Indexed]) -> int:
        """How many of these have other rows than `replace` would give them."""

    async def drift(self, conn: Connection, scope_key: int) -> int:
        """How many rows of a scope nothing accounts for."""

    async def repair(self, conn: Connection, scope_key: int) -> None:
        """Remove them, and put right what is derived of rows."""


class Building:
    """The job of one process; any number work side by side."""

    def __init__(
        self, store: Store, write: Peer, signer: TokenSigner, projections: Sequence[Rebuildable], every_s: float
    ) -> None:
        self._store, self._write, self._signer, self._every_s = store, write, signer, every_s
        self._projections: Mapping[str | None, Rebuildable] = {one.index_id: one for one in projections}

    async def run(self, background: Background) -> None:
        """Work until the service stops."""
        while not background.stopping.is_set():
            try:
                while await self.step() and not background.stopping.is_set():
                    continue
                background.recovered("building")
            except PASSING as error:
                _log.info("built later: %s", error, extra={"action": "building_waits"})
            await background.pause(self._every_s)

    async def step(self) -> bool:
        """One page of one job, or what the ledger has to tell of one; whether there was something to do."""
        async with self._store.scoped(()) as conn:
            job = await jobs.claim(conn)
            if job is not None:
                await show_scopes(conn, [job.scope_key])
                await clearing.lock(conn, job.scope_key)
                await self._page(conn, job, self._projections[job.index_id])
                return True
            job = await jobs.claim_untold(conn)
            return job is not None and await self._tell(conn, job)

    async def _page(self, conn: Connection, job: Job, projection: Rebuildable) -> None:
        if job.kind == "drop":
            if not await projection.clear(conn, job.scope_key):
                await jobs.finish(conn, job)
            return
        heads = await objects.fetch_scope_heads(conn, job.scope_key, job.below, PAGE)
        if not heads:
            await self._finish(conn, job, projection)
            return
        below = heads[-1].sequence
        if job.kind == "rebuild":
            await projection.rewrite(conn, await objects.guard_again(conn, heads))
            await jobs.progress(conn, job, below, len(heads))
        else:
            missing, stale = await self._compare(conn, job, projection, heads)
            await jobs.progress(conn, job, below, len(heads), missing, stale)
        metrics.INDEX_JOB_OBJECTS.add(len(heads), {"index": job.index_id or "index:vectors", "kind": job.kind})

    async def _compare(
        self, conn: Connection, job: Job, projection: Rebuildable, heads: Sequence[Head]
    ) -> tuple[int, int]:
        """How many of these are missing, and stale; what the consumer has not come to yet is neither."""
        taken = await objects.fetch_taken(conn, job.scope_key)
        due = [head for head in heads if head.sequence <= taken]
        missing = sum(head.known == 0 for head in due)
        stale = sum(head.known not in (0, head.sequence) for head in due)
        right = [head for head in due if head.known == head.sequence]
        return missing, stale + await projection.compare(conn, await objects.with_docs(conn, right))

    async def _finish(self, conn: Connection, job: Job, projection: Rebuildable) -> None:
        """What is left once every head was looked at: rows that nothing accounts for, and the watermark."""
        await jobs.take_time(conn)
        stray = await projection.drift(conn, job.scope_key)
        if job.kind == "rebuild":
            if stray:
                await projection.repair(conn, job.scope_key)
            await jobs.ready(conn, job.scope_key, job.index_id)
            await objects.move_watermark(conn, [job.scope_key], job.index_id)
        await jobs.finish(conn, job, stray)

    async def _tell(self, conn: Connection, job: Job) -> bool:
        """Let the ledger tell of a rebuilt index, once however often it is tried."""
        tenant_id, scope_id = await jobs.fetch_scope_name(conn, job.scope_key)
        document = {
            "operation_id": job.operation_id,
            "scope_id": scope_id,
            "event_type": "index_rebuilt",
            "payload": {"index_id": job.index_id, "watermark": job.watermark},
        }
        token = self._signer.sign(service_principal("indexing", tenant_id))
        answer = await self._write.call(Call("record_event", token, dumps(document)))
        if answer.status in (429, 500, 503):
            return False
        if answer.status >= 400:
            _log.error("a rebuilt index is not told of", extra={"action": "rebuild_untold", "scope_key": job.scope_key})
        await jobs.note_told(conn, job)
        return True
