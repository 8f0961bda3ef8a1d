"""Draining: from the outbox to the stream, in order, one batch in flight.

Invariant: every read starts at the lowest waiting id and leaves out only what is in flight, so rows that commit late
under lower ids are never passed over; a batch is sent only behind the acknowledgement of the one before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pamspec_common import telemetry
from pamspec_relay import queries
from pamspec_relay.handlers import resync
from pamspec_relay.handlers.tenure import Tenure
from pamspec_relay.model import Doubt, Position, Prepared, fitting


@dataclass
class _Batch:
    """Outbox rows that travel together."""

    ids: list[int]
    prepared: Prepared


class Drain:
    """The drain of one tenure, from a position that was just read back."""

    def __init__(self, tenure: Tenure, position: Position) -> None:
        self._tenure, self._position = tenure, position
        self._last_seq = position.stream_seq
        self._flight: tuple[_Batch, asyncio.Future[int]] | None = None
        self._check_at = 0.0
        self.settled = 0
        """Events that this drain has moved for good."""
        self._mark_at = time.monotonic() + self._mark_every

    async def run(self) -> None:
        """Publish until the lease is to end; what is in flight then is finished first.

        Raises Doubt, LeaseLost, Halted or an error of the servers; then the window is dropped.
        """
        lease, tenure = self._tenure.lease, self._tenure
        tenure.status.became("draining")
        self._check_at = time.monotonic() + tenure.settings.relay_stream_check_ms / 1000
        more = True
        try:
            while True:
                ending = lease.ending.is_set()
                batch, full = await self._next() if more and not ending else (None, False)
                landed = await self._land()
                if landed is not None:
                    await self._check()
                    if batch is None and lease.wake.is_set() and not ending:
                        batch, full = await self._next(landed.ids)
                if batch is not None:
                    await self._launch(batch)
                if landed is not None:
                    await self._settle(landed)
                if ending and self._flight is None:
                    return
                more = full or lease.wake.is_set()
                if not more and self._flight is None and not ending:
                    await self._rest()
                    more = True
        finally:
            self._drop()

    async def _next(self, landed: Sequence[int] = ()) -> tuple[_Batch | None, bool]:
        """The next batch, and whether more may be waiting behind it; `landed` is acknowledged and not yet deleted."""
        tenure, limit = self._tenure, self._tenure.settings.relay_batch_messages
        tenure.lease.wake.clear()
        under_way = self._flight[0].ids if self._flight is not None else landed
        ids, entries = await queries.fetch_outbox(tenure.conn, tenure.claim, under_way, limit)
        if not ids:
            return None, False
        count = fitting((len(entry.message) for entry in entries), limit, tenure.settings.relay_batch_bytes)
        full = len(ids) == limit or count < len(ids)
        return _Batch(ids[:count], tenure.publisher.prepare(entries[:count], tenure.chain)), full

    async def _launch(self, batch: _Batch) -> None:
        self._tenure.lease.check()
        self._flight = (batch, await self._tenure.publisher.send(batch.prepared, self._last_seq))

    async def _land(self) -> _Batch | None:
        """Wait for the batch in flight."""
        if self._flight is None:
            return None
        batch, acknowledged = self._flight
        try:
            self._last_seq = await acknowledged
        except Doubt:
            if batch.prepared.count > 1 and not batch.prepared.tail:
                self._tenure.chain = 1
            raise
        self._flight = None
        return batch

    async def _settle(self, batch: _Batch) -> None:
        tenure = self._tenure
        upto = self._last_seq
        if not await queries.settle(tenure.conn, tenure.claim, self._position.stream_created, upto, batch.ids):
            raise Doubt("the position was changed by another")
        tenure.status.stream_seq = upto
        self.settled += len(batch.ids)
        telemetry.RELAYED.add(len(batch.ids), {"partition": str(tenure.partition)})

    async def _rest(self) -> None:
        """Wait for a wake-up or the poll interval."""
        tenure = self._tenure
        await self._check()
        try:
            await asyncio.wait_for(tenure.lease.wake.wait(), tenure.settings.relay_poll_ms / 1000)
        except TimeoutError:
            return

    async def _check(self) -> None:
        """Now and then, with nothing in flight: is the stream still what this owner made of it?"""
        now = time.monotonic()
        if now < self._check_at:
            return
        tenure = self._tenure
        self._check_at = now + tenure.settings.relay_stream_check_ms / 1000
        info = await resync.still_whole(tenure, self._position, self._last_seq)
        if info is None:
            raise Doubt("the stream is not what its owner left")
        if now >= self._mark_at:
            self._mark_at = now + self._mark_every
            await resync.mark(tenure, info)

    @property
    def _mark_every(self) -> float:
        return self._tenure.max_age.total_seconds() / 1000

    def _drop(self) -> None:
        if self._flight is not None:
            acknowledged = self._flight[1]
            if acknowledged.done() and not acknowledged.cancelled():
                acknowledged.exception()
            acknowledged.cancel()
            self._flight = None
