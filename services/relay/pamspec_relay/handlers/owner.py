"""The life of a partition's owner: read back, drain, and on any doubt begin again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import asyncpg
import nats.errors
from nats.aio.client import Client

from pamspec_common import streams
from pamspec_common.postgres import Pool
from pamspec_common.telemetry import metrics
from pamspec_relay.handlers.drain import Drain
from pamspec_relay.handlers.lease import Lease
from pamspec_relay.handlers.resync import resync
from pamspec_relay.handlers.tenure import Settled, Status, Tenure
from pamspec_relay.model import CHAIN_MESSAGES, Doubt, Halted, LeaseLost
from pamspec_relay.publisher import Publisher
from pamspec_relay.settings import Settings

_log = logging.getLogger(__name__)

PASSING = (
    Doubt,
    LeaseLost,
    streams.StreamRefused,
    streams.StreamIncomplete,
    nats.errors.Error,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    TimeoutError,
    OSError,
)
"""What another try may mend: the servers, or what they disagree about."""

_FIRST_PAUSE_S = 0.01


class Owner:
    """Owns one partition until its lease ends."""

    def __init__(
        self,
        lease: Lease,
        pool: Pool,
        client: Client,
        publisher: Publisher,
        settings: Settings,
        stream: Mapping[str, Any],
        settled: Settled,
    ) -> None:
        self.lease, self.status = lease, Status()
        self._pool, self._client, self._publisher = pool, client, publisher
        self._settings, self._stream, self._settled = settings, stream, settled
        self._chain = CHAIN_MESSAGES
        self._halted = ""

    async def run(self) -> None:
        """Keep the partition moving; returns when the lease is lost or to be given up."""
        longest = self._settings.relay_retry_ms / 1000
        pause = _FIRST_PAUSE_S
        while not self.lease.ending.is_set():
            moved = False
            try:
                moved = await self._hold()
            except Halted as error:
                self._halt(error)
                pause = longest
            except PASSING as error:
                self._doubt(error)
            if moved:
                pause, self._halted = _FIRST_PAUSE_S, ""
            else:
                pause = min(pause * 2, longest)
            await self._pause(pause)

    async def _hold(self) -> bool:
        """Read back and drain, until the lease ends or a doubt comes up; whether events moved."""
        async with self._pool.acquire() as conn, self._pool.acquire() as settling:
            tenure = Tenure(
                lease=self.lease,
                conn=conn,
                client=self._client,
                publisher=self._publisher,
                settings=self._settings,
                stream=self._stream,
                status=self.status,
                settled=self._settled,
                chain=self._chain,
            )
            drain = Drain(tenure, settling, await resync(tenure))
            try:
                await drain.run()
            except (Doubt, LeaseLost) as error:
                self._doubt(error)
            finally:
                self._chain = tenure.chain
            return drain.moved

    def _halt(self, error: Halted) -> None:
        if self._halted != str(error):
            self._halted = str(error)
            _log.error("%s", error, extra={"action": "relay_halted", "partition": self.lease.claim.partition})
            metrics.RELAY_ALARMS.add(1, {"kind": "halted"})
        self.status.became("halted", str(error))

    def _doubt(self, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {error}"
        if self.status.reason != reason:
            _log.warning("%s", reason, extra={"action": "relay_doubt", "partition": self.lease.claim.partition})
        self.status.became("retrying", reason)
        metrics.RELAY_RESYNCS.add(1, {"partition": str(self.lease.claim.partition)})

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.lease.ending.wait()
        except TimeoutError:
            return
