"""A consumer put together: its leases, an owner for each partition that it holds, and what readiness tells.

It starts while the bus or the store is away and goes on as soon as they are there. While the bus is away the ledger
alone feeds it, a comparison later.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from datetime import timedelta

from nats.aio.client import Client

from pamspec_common import bus, contracts
from pamspec_common.consuming import intake, queries
from pamspec_common.consuming.intake import PASSING, Effect
from pamspec_common.consuming.model import share
from pamspec_common.consuming.owner import Owner
from pamspec_common.consuming.settings import ConsumingSettings
from pamspec_common.postgres import Connection, Pool, close_pool, connection, create_pool
from pamspec_common.service import Background, Part
from pamspec_common.telemetry import metrics

_log = logging.getLogger(__name__)

_PARTITIONS_EVERY_S = 30.0
_OLD_PARTITIONS = 64
_OTHER_CONNECTIONS = 3


class Consumer:
    """One process of a service among any number."""

    def __init__(self, service: str, schema: str, settings: ConsumingSettings, effect: Effect) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._service, self._schema, self._settings, self._effect = service, schema, settings, effect
        self._pool: Pool | None = None
        self._client: Client | None = None
        self._owners: dict[int, tuple[Owner, asyncio.Task[None]]] = {}
        self._partitions = list(range(settings.partitions))
        self._parked = 0
        self._store_away = ""
        self._look_at = 0.0

    async def start(self, background: Background) -> None:
        """Begin to connect and to look for partitions."""
        size = self._settings.partitions + _OLD_PARTITIONS + _OTHER_CONNECTIONS
        self._pool = await create_pool(
            self._settings,
            f"{self._service}-consumer",
            max_size=size,
            planner={"search_path": self._schema},
            content=True,
        )
        background.spawn("consumer_bus", lambda: self._connect(background))
        background.spawn("consumer", lambda: self._keep(background))
        background.spawn("consumer_parked", lambda: self._carry_out(background))

    async def stop(self) -> None:
        """End the owners, give their partitions to others, close; after the background tasks have ended."""
        await self._give_back()
        await bus.close(self._client)
        await close_pool(self._pool)

    def parts(self) -> list[Part]:
        """Each partition held here, and how many entries are parked; none of it is essential."""
        found = []
        for partition, (owner, _) in sorted(self._owners.items()):
            status = owner.status
            detail: dict[str, object] = {"state": status.state, "lag": status.lag}
            if status.reason:
                detail["reason"] = status.reason
            found.append(Part(f"partition_{partition}", status.state != "retrying", detail, essential=False))
        stored = {"error": self._store_away} if self._store_away else {"parked": self._parked}
        found.append(Part("inbox", not self._store_away and not self._parked, stored, essential=False))
        return found

    async def parked(self, after: tuple[int, int] = (0, 0), limit: int = 100) -> list[queries.Parked]:
        """Entries that could not be taken, with the reason of each."""
        async with connection(self._store(), self._settings.pool_wait_ms) as conn:
            return await queries.fetch_parked(conn, after, limit)

    async def replay(self, scope_key: int, sequence: int) -> bool:
        """Take a parked entry in now; False when there is none. Raises what the effect raises."""
        async with connection(self._store(), self._settings.pool_wait_ms) as conn:
            return await intake.replay(conn, self._effect, scope_key, sequence)

    async def _connect(self, background: Background) -> None:
        self._client = await bus.connect(self._settings, f"{self._service}-consumer")
        await background.stopping.wait()

    async def _keep(self, background: Background) -> None:
        """Hold leases and run an owner for each, until the stop."""
        while not background.stopping.is_set():
            try:
                async with connection(self._store(), self._settings.pool_wait_ms) as conn:
                    await self._balance(conn)
                    self._parked = await queries.count_parked(conn)
                metrics.CONSUMER_PARKED_NOW.set(self._parked, {"service": self._service})
                self._store_away = ""
                background.recovered("consumer")
            except PASSING as error:
                if not self._store_away:
                    _log.info("store: %s", error, extra={"action": "store_away", "service": self._service})
                self._store_away = type(error).__name__
            await background.pause(self._settings.consumer_lease_poll_ms / 1000)

    async def _carry_out(self, background: Background) -> None:
        """Replay and pass over what operators ask for, until the stop."""
        while not background.stopping.is_set():
            try:
                async with connection(self._store(), self._settings.pool_wait_ms) as conn:
                    await intake.carry_out(conn, self._effect)
                background.recovered("consumer_parked")
            except PASSING as error:
                _log.info("parked entries wait: %s", error, extra={"action": "parked_wait", "service": self._service})
            await background.pause(self._settings.consumer_lease_poll_ms / 1000)

    async def _balance(self, conn: Connection) -> None:
        """Renew what is held, end what is lost, take free partitions up to this process's share, give up the rest."""
        if _now() >= self._look_at:
            self._partitions = sorted({*range(self._settings.partitions), *await queries.fetch_partitions(conn)})
            self._look_at = _now() + _PARTITIONS_EVERY_S
        ttl = timedelta(milliseconds=self._settings.consumer_lease_ms)
        members = await queries.upsert_member(conn, self.name, ttl)
        most = share(len(self._partitions), members)
        for partition in sorted(self._owners)[most:][:1]:
            await self._end(partition)
            await queries.release_lease(conn, partition, self.name)
        kept = await queries.keep_leases(conn, self.name, sorted(self._owners), ttl)
        for partition in [one for one in self._owners if one not in kept or self._owners[one][1].done()]:
            await self._end(partition)
        room = most - len(self._owners)
        free = [one for one in await queries.fetch_free(conn, self._partitions) if one not in self._owners][:room]
        for partition in await queries.keep_leases(conn, self.name, free, ttl) if free else ():
            self._begin(partition)

    def _begin(self, partition: int) -> None:
        stream = contracts.streams().streams["ledger"]
        consumer = next(one for one in stream.consumers if one.service == self._service)
        owner = Owner(
            self._service,
            partition,
            self._store(),
            lambda: self._client,
            stream.stream_name(partition),
            consumer.request(partition),
            self._effect,
            self._settings,
        )
        self._owners[partition] = owner, asyncio.create_task(owner.run(), name=f"{self._service}-{partition}")
        metrics.CONSUMER_OWNED.set(1, {"service": self._service, "partition": str(partition)})

    async def _end(self, partition: int) -> None:
        owner, task = self._owners.pop(partition)
        metrics.CONSUMER_OWNED.set(0, {"service": self._service, "partition": str(partition)})
        owner.ending.set()
        _, late = await asyncio.wait([task], timeout=self._settings.drain_s / 2)
        if late:
            task.cancel()
        failed = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(failed, Exception):
            extra = {"action": "owner_failed", "service": self._service, "partition": partition}
            _log.error("an owner failed", exc_info=failed, extra=extra)

    async def _give_back(self) -> None:
        for partition in list(self._owners):
            self._owners[partition][0].ending.set()
        for partition in list(self._owners):
            await self._end(partition)
        if self._pool is None:
            return
        try:
            async with asyncio.timeout(2), connection(self._pool, 1000) as conn:
                await queries.leave(conn, self.name)
        except PASSING as error:
            _log.info("leases end by time: %s", error, extra={"action": "store_away", "service": self._service})

    def _store(self) -> Pool:
        assert self._pool is not None, "start comes first"
        return self._pool


def _now() -> float:
    return asyncio.get_running_loop().time()
