"""The background task of checkpoints: which scopes are due, at what pace, and what readiness says of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import asyncpg
from nats.aio.client import Client

from pamspec_common.checkpoint_bucket import CheckpointBucket
from pamspec_common.checkpoint_files import CheckpointFiles
from pamspec_common.checkpoints import Signer, public_keys
from pamspec_common.postgres import Connection, Pool
from pamspec_common.service import Part
from pamspec_common.telemetry import metrics
from pamspec_relay.handlers.checkpoints import BUS_AWAY, SCOPES_AT_ONCE, Checkpointer
from pamspec_relay.handlers.lease import Lease
from pamspec_relay.queries import checkpoints as queries
from pamspec_relay.settings import Settings

_log = logging.getLogger(__name__)

STORE_AWAY = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_RETRY_S = 1.0
_SCAN = 100_000
_SHARE = 20
"""A scan of a partition takes at most one part of so many of the time."""
_SHOWN = 5


class Checkpointing:
    """Checkpoints of the partitions that this process holds."""

    def __init__(self, settings: Settings, signer: Signer, leases: Callable[[], Iterable[Lease]]) -> None:
        known = {**public_keys(settings.checkpoint_public_keys), signer.key_id: signer.public_key}
        files = None if settings.checkpoint_dir is None else CheckpointFiles(settings.checkpoint_dir)
        self._checkpointer = Checkpointer(signer, known, files)
        self._settings, self._leases = settings, leases
        self._bucket: CheckpointBucket | None = None
        self._scan_at: dict[tuple[int, int], float] = {}
        self._behind: dict[int, list[int]] = {}
        self._moved: dict[int, set[int]] = {}
        self._entries = 0
        self._failed = ""
        self.crowded = asyncio.Event()
        """Set when so many entries wait that the interval is not awaited."""

    def told(self, lease: Lease, scope_keys: Iterable[int], entries: int) -> None:
        """A partition's owner has moved entries of these scopes."""
        waiting = self._moved.setdefault(lease.claim.partition, set())
        waiting.update(scope_keys)
        self._entries += entries
        if self._entries >= self._settings.checkpoint_events:
            self.crowded.set()

    async def run(self, pool: Pool, client: Callable[[], Client | None], stopping: asyncio.Event) -> None:
        """Rounds until the stop; a round that fails is followed by another."""
        while not stopping.is_set():
            try:
                async with pool.acquire() as conn:
                    await self._open(conn, client())
                    await self._round(conn)
                self._failed = ""
            except (*BUS_AWAY, *STORE_AWAY) as error:
                self._failed = f"{type(error).__name__}: {error}"
            await self._pause(stopping)

    def part(self) -> Part:
        """What readiness says; nothing here keeps the service from its work."""
        found = self._checkpointer
        detail: dict[str, Any] = {
            "key_id": found.signer.key_id,
            "behind": sum(map(len, (*self._behind.values(), *self._moved.values()))),
        }
        reason = self._failed or found.away
        if reason:
            detail["reason"] = reason
        if found.refused:
            detail["refused"] = len(found.refused)
            detail["reasons"] = sorted(set(found.refused.values()))[:_SHOWN]
        return Part("checkpoints", not reason and not found.refused, detail, essential=False)

    async def _open(self, conn: Connection, client: Client | None) -> None:
        """The bucket, made where it is missing; after trouble it is looked at again."""
        if self._checkpointer.away:
            self._bucket = None
        if self._bucket is None and client is not None and client.is_connected:
            bucket = CheckpointBucket(client, self._settings.relay_publish_timeout_ms / 1000)
            ensured = await bucket.ensure(self._settings.stream_replicas)
            if ensured.made and await queries.forget_anchors(conn):
                _log.error("the bucket of checkpoints was gone", extra={"action": "checkpoint_bucket_lost"})
                metrics.RELAY_ALARMS.add(1, {"kind": "checkpoint_bucket_lost"})
                self._scan_at.clear()
            self._bucket = bucket

    async def _round(self, conn: Connection) -> None:
        held: Mapping[int, Lease] = {lease.claim.partition: lease for lease in self._leases() if not lease.lost}
        self._entries = 0
        for partition, lease in held.items():
            keys = {*self._behind.pop(partition, ()), *self._moved.pop(partition, ()), *await self._scan(conn, lease)}
            ordered = sorted(keys)
            try:
                while ordered:
                    left = await self._checkpointer.advance(conn, self._bucket, lease.claim, ordered[:SCOPES_AT_ONCE])
                    self._behind.setdefault(partition, []).extend(left)
                    ordered = ordered[SCOPES_AT_ONCE:]
            finally:
                if ordered:
                    self._moved.setdefault(partition, set()).update(ordered)
        for partition in self._moved.keys() - held.keys():
            del self._moved[partition]

    async def _scan(self, conn: Connection, lease: Lease) -> list[int]:
        """Now and then, and first after a take-over: scopes that nobody told of."""
        place = lease.claim.partition, lease.claim.epoch
        started = time.monotonic()
        if started < self._scan_at.get(place, 0.0):
            return []
        found = await queries.fetch_behind(conn, lease.claim.partition, _SCAN)
        took = time.monotonic() - started
        self._scan_at = {other: at for other, at in self._scan_at.items() if other[0] != place[0]}
        self._scan_at[place] = time.monotonic() + max(self._settings.checkpoint_scan_ms / 1000, took * _SHARE)
        return found

    async def _pause(self, stopping: asyncio.Event) -> None:
        """Until the next round is due: after the interval, or as soon as many entries wait."""
        if any(self._behind.values()) and not self._failed:
            return
        waits = [asyncio.ensure_future(event.wait()) for event in (self.crowded, stopping)]
        await asyncio.wait(waits, timeout=self._settings.checkpoint_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if not self._failed:
            self.crowded.clear()
        elif not stopping.is_set():
            await asyncio.sleep(min(_RETRY_S, self._settings.checkpoint_ms / 1000))
