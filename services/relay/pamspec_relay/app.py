"""The relay put together: connections, the keeper of leases, owners of partitions, gauges and readiness.

It owns no operations. It starts while the bus or the store is away and goes on as soon as they are there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import asyncpg
from nats.aio.client import Client
from nats.aio.msg import Msg

from pamspec_common import bus, contracts, telemetry
from pamspec_common.checkpoints import Signer
from pamspec_common.postgres import Pool, close_pool, create_pool
from pamspec_common.service import Background, Part, Service
from pamspec_common.telemetry import metrics
from pamspec_relay import queries
from pamspec_relay.checkpointing import Checkpointing
from pamspec_relay.erasure_log import ErasureLogging
from pamspec_relay.handlers import lease as leases
from pamspec_relay.handlers.lease import Lease
from pamspec_relay.handlers.owner import Owner
from pamspec_relay.publisher import Publisher
from pamspec_relay.queries import Waiting
from pamspec_relay.settings import Settings

_log = logging.getLogger(__name__)

_CONNECTIONS_PER_PARTITION = 2
_OTHER_CONNECTIONS = 4
_OLD_PARTITIONS = 64
"""Room for partitions beyond today's number; a connection is opened only when it is used."""
_PARTITIONS_EVERY_S = 30.0
_STORE_AWAY = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError, OSError)


def build(settings: Settings) -> Service:
    """The relay service; nothing runs before its start."""
    relay = Relay(settings)
    return Service(name="relay", operations={}, readiness=relay.readiness, on_start=relay.start, on_stop=relay.stop)


class Relay:
    """One relay process among any number."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._background = Background()
        self._pool: Pool | None = None
        self._client: Client | None = None
        self._publisher: Publisher | None = None
        self._owners: dict[int, tuple[Owner, asyncio.Task[None]]] = {}
        self._partitions: list[int] = list(range(settings.partitions))
        self._members = 1
        self._waiting: list[Waiting] = []
        self._store_away = ""
        self._erasures = ErasureLogging(settings)
        key = settings.checkpoint_key
        self._checkpoints = (
            None
            if key is None
            else Checkpointing(
                settings,
                Signer.of_seed(key.get_secret_value()),
                lambda: [owner.lease for owner, _ in self._owners.values()],
            )
        )

    async def start(self) -> None:
        """Begin to connect, and to look for partitions as soon as the bus is there."""
        self._pool = await create_pool(
            self._settings,
            "relay",
            max_size=_CONNECTIONS_PER_PARTITION * (self._settings.partitions + _OLD_PARTITIONS) + _OTHER_CONNECTIONS,
        )
        self._background.spawn("leases", self._keep)
        self._background.spawn("gauges", self._measure)
        self._background.spawn("erasures", self._log_erasures)
        if self._checkpoints is None:
            _log.warning("no checkpoints are made: PAMSPEC_CHECKPOINT_KEY is not set", extra={"action": "unsigned"})
        else:
            self._background.spawn("signing", self._sign)

    async def stop(self) -> None:
        """Claim nothing more, finish what is in flight, give every lease back, close."""
        await self._background.stop(self._settings.drain_s)
        if self._publisher is not None:
            await self._publisher.close()
        await bus.close(self._client)
        await close_pool(self._pool)

    async def readiness(self) -> list[Part]:
        """The bus, the outbox with its depth and age, and each partition that this process owns.

        None of them is essential: a relay that can't move events just now is where it should be.
        """
        connected = self._client is not None and self._client.is_connected
        depth, age = self._lag()
        parts = [
            Part("bus", connected, essential=False),
            Part(
                "store", not self._store_away, {"error": self._store_away} if self._store_away else {}, essential=False
            ),
            Part(
                "outbox",
                not self._lags(),
                {"depth": depth, "oldest_s": round(age, 3), "members": self._members},
                essential=False,
            ),
        ]
        parts += [Part(part.name, part.ok, part.detail, essential=False) for part in self._background.parts()]
        parts.append(self._erasures.part())
        if self._checkpoints is not None:
            parts.append(self._checkpoints.part())
        for partition, (owner, _) in sorted(self._owners.items()):
            status = owner.status
            detail = {"state": status.state, "epoch": owner.lease.claim.epoch, "stream_seq": status.stream_seq}
            if status.state in ("retrying", "halted", "repairing"):
                detail["reason"] = status.reason
            if status.drift:
                detail["drift"] = status.drift
            well = status.state not in ("halted", "retrying") and not status.drift
            parts.append(Part(f"partition_{partition}", well, detail, essential=False))
        return parts

    async def _keep(self) -> None:
        """Hold leases and run an owner for each, until the stop; then give them back."""
        client, publisher = await self._connect()
        if client is None or publisher is None:
            return
        subscription = await client.subscribe(contracts.streams().subjects["wake"].filter(), cb=self._woken)
        try:
            renew_at = look_at = 0.0
            while not self._background.stopping.is_set():
                now = time.monotonic()
                try:
                    if now >= look_at:
                        look_at = now + _PARTITIONS_EVERY_S
                        await self._look_for_partitions()
                    if now >= renew_at:
                        renew_at = now + self._ttl_s / 4
                        await self._renew()
                    await self._balance(client, publisher)
                    self._store_away = ""
                    self._background.recovered("leases")
                except _STORE_AWAY as error:
                    self._store_is_away(error)
                    renew_at = look_at = 0.0
                await self._background.pause(self._settings.relay_lease_poll_ms / 1000)
        finally:
            await self._give_back()
            if not client.is_closed:
                await subscription.unsubscribe()

    async def _connect(self) -> tuple[Client | None, Publisher | None]:
        """The bus, however long it takes; None when the stop comes first."""
        if self._client is None:
            connecting = asyncio.create_task(bus.connect(self._settings, "relay", on_disconnect=self._disconnected))
            stopping = asyncio.create_task(self._background.stopping.wait())
            try:
                await asyncio.wait((connecting, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not connecting.done():
                    return None, None
                self._client = connecting.result()
            finally:
                stopping.cancel()
                connecting.cancel()
        if self._publisher is None:
            self._publisher = Publisher(self._client, self._settings.relay_publish_timeout_ms / 1000)
            await self._publisher.open()
        return self._client, self._publisher

    async def _disconnected(self) -> None:
        if self._publisher is not None:
            self._publisher.disconnected()

    async def _woken(self, message: Msg) -> None:
        partition = message.subject.rpartition(".")[2]
        held = self._owners.get(int(partition)) if partition.isdigit() else None
        if held is not None:
            held[0].lease.wake.set()

    @property
    def _ttl_s(self) -> float:
        return self._settings.relay_lease_ms / 1000

    async def _look_for_partitions(self) -> None:
        async with self._store().acquire() as conn:
            known = await queries.fetch_partitions(conn)
        self._partitions = sorted({*range(self._settings.partitions), *known})

    async def _renew(self) -> None:
        held = [owner.lease for owner, _ in self._owners.values()]
        async with self._store().acquire() as conn:
            await leases.renew(conn, held, self.name, self._ttl_s)
            self._members = await queries.upsert_member(conn, self.name, timedelta(seconds=self._ttl_s))

    async def _balance(self, client: Client, publisher: Publisher) -> None:
        """Collect owners that ended, take free partitions, give up one that is too many."""
        for partition, (owner, task) in list(self._owners.items()):
            if task.done():
                del self._owners[partition]
                metrics.RELAY_OWNED.set(0, {"partition": str(partition)})
                if not task.cancelled() and (error := task.exception()) is not None:
                    _log.error("owner failed", exc_info=error, extra={"action": "owner_failed", "partition": partition})
                await self._release(owner.lease)
        async with self._store().acquire() as conn:
            taken = await leases.take(conn, self.name, self._partitions, self._owners, self._members, self._ttl_s)
        for lease in taken:
            self._begin(lease, client, publisher)
        for partition in leases.surplus(self._partitions, self._owners, self._members)[:1]:
            self._owners[partition][0].lease.end()

    def _begin(self, lease: Lease, client: Client, publisher: Publisher) -> None:
        partition = lease.claim.partition
        owner = Owner(lease, self._store(), client, publisher, self._settings, self._stream(partition), self._settled)
        self._owners[partition] = owner, asyncio.create_task(owner.run(), name=f"partition-{partition}")
        telemetry.begin("relay", partition)
        metrics.RELAY_OWNED.set(1, {"partition": str(partition)})
        metrics.RELAY_LEASE_EPOCH.set(lease.claim.epoch, {"partition": str(partition)})

    def _stream(self, partition: int) -> Mapping[str, Any]:
        request = contracts.streams().stream_request("ledger", partition, replicas=self._settings.stream_replicas)
        if self._settings.stream_max_age_s is not None:
            request["max_age"] = self._settings.stream_max_age_s * 1_000_000_000
        return request

    async def _give_back(self) -> None:
        """End all owners, then their leases, so that another relay takes over at once."""
        held = list(self._owners.values())
        for owner, _ in held:
            owner.lease.end()
        if held:
            _, late = await asyncio.wait([task for _, task in held], timeout=self._settings.drain_s / 2)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for partition, (owner, _) in list(self._owners.items()):
            metrics.RELAY_OWNED.set(0, {"partition": str(partition)})
            await self._release(owner.lease)
        self._owners.clear()
        try:
            async with self._store().acquire(timeout=1.0) as conn:
                await queries.delete_member(conn, self.name)
        except _STORE_AWAY as error:
            self._store_is_away(error)

    async def _release(self, lease: Lease) -> None:
        if lease.lost:
            return
        try:
            async with self._store().acquire(timeout=1.0) as conn:
                await queries.release_lease(conn, lease.claim)
        except _STORE_AWAY as error:
            self._store_is_away(error)

    async def _sign(self) -> None:
        assert self._checkpoints is not None
        await self._checkpoints.run(self._store(), lambda: self._client, self._background.stopping)

    async def _log_erasures(self) -> None:
        await self._erasures.run(self._store(), lambda: self._client, self._background)

    def _settled(self, lease: Lease, scope_keys: Sequence[int], entries: int) -> None:
        if self._checkpoints is not None:
            self._checkpoints.told(lease, scope_keys, entries)

    async def _measure(self) -> None:
        """Keep the gauges of depth and age true, also of partitions that another relay owns."""
        limit = self._settings.relay_alert_depth + 1
        alarmed = False
        while not self._background.stopping.is_set():
            try:
                async with self._store().acquire() as conn:
                    waiting = await queries.fetch_waiting(conn, self._partitions, limit)
                self._waiting = waiting
            except _STORE_AWAY as error:
                self._store_is_away(error)
            if self._lags() and not alarmed:
                depth, age = self._lag()
                _log.error("outbox: %d rows wait, the oldest %.0f s", depth, age, extra={"action": "relay_outbox_lags"})
                metrics.RELAY_ALARMS.add(1, {"kind": "outbox"})
            alarmed = self._lags()
            for item in self._waiting:
                metrics.OUTBOX_DEPTH.set(item.depth, {"partition": str(item.partition)})
                metrics.OUTBOX_AGE.set(item.age_s, {"partition": str(item.partition)})
            await self._background.pause(self._settings.relay_gauge_ms / 1000)

    def _lag(self) -> tuple[int, float]:
        """The largest depth and age of any partition."""
        return (
            max((item.depth for item in self._waiting), default=0),
            max((item.age_s for item in self._waiting), default=0.0),
        )

    def _lags(self) -> bool:
        depth, age = self._lag()
        return depth > self._settings.relay_alert_depth or age > self._settings.relay_alert_age_s

    def _store_is_away(self, error: BaseException) -> None:
        reason = type(error).__name__
        if self._store_away != reason:
            _log.warning("store: %s", reason, extra={"action": "store_away", "error": reason})
        self._store_away = reason

    def _store(self) -> Pool:
        assert self._pool is not None, "start comes first"
        return self._pool
