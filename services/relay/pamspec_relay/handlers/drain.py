"""Draining: from the outbox to the stream, in order, one batch in flight.

Invariant: every read starts at the lowest waiting id and leaves out only what is in flight, so rows that commit late
under lower ids are never passed over; a batch is sent only behind the acknowledgement of the one before it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from opentelemetry.trace import Span, SpanKind

from pamspec_common.postgres import Connection
from pamspec_common.telemetry import metrics, tracing
from pamspec_relay import queries
from pamspec_relay.handlers import resync
from pamspec_relay.handlers.settle import Settling
from pamspec_relay.handlers.tenure import Tenure
from pamspec_relay.model import Doubt, Position, Prepared, fitting

_UNSETTLED_BATCHES = 2
"""How far publishing may be ahead of the deletes: what waits is left out of every read, one by one."""


@dataclass
class _Batch:
    """Outbox rows that travel together."""

    ids: list[int]
    prepared: Prepared
    traces: list[str | None]
    sent_at: float = 0.0
    span: Span | None = None

    def landed(self, failure: str | None = None) -> None:
        """End the span, where there is one."""
        if self.span is not None:
            if failure is not None:
                tracing.failed(self.span, failure)
            self.span.end()
            self.span = None


class Drain:
    """The drain of one tenure, from a position that was just read back."""

    def __init__(self, tenure: Tenure, settling: Connection, position: Position) -> None:
        self._tenure, self._position = tenure, position
        self._last_seq = position.stream_seq
        self._flight: tuple[_Batch, asyncio.Future[int]] | None = None
        self._settling = Settling(tenure, settling, position.stream_created)
        self._check_at = time.monotonic() + tenure.settings.relay_stream_check_ms / 1000
        self._mark_at = time.monotonic() + self._mark_every

    @property
    def moved(self) -> bool:
        """Whether events were published and settled."""
        return self._settling.settled > 0

    async def run(self) -> None:
        """Publish until the lease is to end; what is in flight then is finished and settled first.

        Raises Doubt, LeaseLost, Halted or an error of the servers; then the window is dropped.
        """
        self._tenure.status.became("publishing")
        try:
            await self._until_ending()
            await self._land()
            await self._settling.room(0)
        finally:
            self._drop()
            await self._settling.close(self._tenure.timeout_s)

    async def _until_ending(self) -> None:
        lease, unsettled = self._tenure.lease, _UNSETTLED_BATCHES * self._tenure.settings.relay_batch_messages
        more = True
        while not lease.ending.is_set():
            batch, full = await self._next() if more else (None, False)
            await self._land()
            await self._settling.room(unsettled)
            await self._check()
            if batch is not None:
                await self._launch(batch)
            more = full or lease.wake.is_set()
            if not more and self._flight is None:
                await self._rest()
                more = True

    async def _next(self) -> tuple[_Batch | None, bool]:
        """The next batch, and whether more may be waiting behind it."""
        tenure, limit = self._tenure, self._tenure.settings.relay_batch_messages
        tenure.lease.wake.clear()
        under_way = self._settling.ids + (self._flight[0].ids if self._flight is not None else [])
        ids, entries = await queries.fetch_outbox(tenure.conn, tenure.claim, under_way, limit)
        if not ids:
            return None, False
        count = fitting((len(entry.message) for entry in entries), limit, tenure.settings.relay_batch_bytes)
        full = len(ids) == limit or count < len(ids)
        traces = [entry.traceparent for entry in entries[:count]] if tracing.enabled else []
        return _Batch(ids[:count], tenure.publisher.prepare(entries[:count], tenure.chain), traces), full

    async def _launch(self, batch: _Batch) -> None:
        self._tenure.lease.check()
        batch.sent_at = time.monotonic()
        if batch.traces:
            batch.span = self._span(batch)
        self._flight = (batch, await self._tenure.publisher.send(batch.prepared, self._last_seq))

    def _span(self, batch: _Batch) -> Span | None:
        name = self._tenure.stream_name
        attributes = tracing.messages("nats", "publish", "send", name, len(batch.ids))
        return tracing.batch("relay", f"publish {name}", SpanKind.PRODUCER, batch.traces, attributes)

    async def _land(self) -> None:
        """Wait for the batch in flight, and hand it over to be settled."""
        if self._flight is None:
            return
        batch, acknowledged = self._flight
        try:
            self._last_seq = await acknowledged
        except Doubt:
            batch.landed("Doubt")
            if batch.prepared.count > 1 and not batch.prepared.tail:
                self._tenure.chain = 1
            raise
        self._flight = None
        batch.landed()
        metrics.RELAY_BATCH_SECONDS.observe(time.monotonic() - batch.sent_at)
        metrics.RELAY_BATCH_EVENTS.observe(batch.prepared.count)
        self._settling.add(batch.ids, self._last_seq)

    async def _rest(self) -> None:
        """Wait for a wake-up or the poll interval."""
        tenure = self._tenure
        try:
            async with asyncio.timeout(tenure.settings.relay_poll_ms / 1000):
                await tenure.lease.wake.wait()
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
            batch, acknowledged = self._flight
            batch.landed("dropped")
            if acknowledged.done() and not acknowledged.cancelled():
                acknowledged.exception()
            acknowledged.cancel()
            self._flight = None
