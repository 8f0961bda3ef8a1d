"""Leases of subscriptions that the service pushes itself: claimed, renewed, run and given back.

Invariants: a process runs a subscription only while its lease holds by its own clock; what it gave back is run again
only after another claim; an orderly stop gives every lease back, so that another process takes over at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta

from pamspec_common import ids
from pamspec_common.errors import PamspecError
from pamspec_common.postgres import Connection
from pamspec_common.service import Background
from pamspec_subscription.queries import leases
from pamspec_subscription.store import Store

_log = logging.getLogger(__name__)

_RESTART_PAUSE_S = 0.1
Key = tuple[str, str]
Claim = Callable[[Connection, str, timedelta], Awaitable[tuple[Sequence[Key], bool]]]
"""Claims for an owner; whether there may be more to claim at once."""


class Leaseholder:
    """The leases of one kind of channel in this process."""

    def __init__(
        self, kind: str, store: Store, lease_s: float, claim: Claim, run: Callable[[Key], Awaitable[bool]]
    ) -> None:
        self._kind, self._store, self._lease_s, self._claim, self._run_one = kind, store, lease_s, claim, run
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{ids.uuid7()}"
        self._held: dict[Key, float] = {}
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._done: set[Key] = set()
        self._given_back: set[Key] = set()
        self._again = asyncio.Event()
        self._stopping = False

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held(self) -> Collection[Key]:
        """What this process holds."""
        return self._held.keys()

    def look(self) -> None:
        """There is something new to claim."""
        self._again.set()

    def look_in(self, seconds: float) -> None:
        """There will be; a pause longer than a round needs no call."""
        if seconds < self._lease_s:
            asyncio.get_running_loop().call_later(max(0.0, seconds), self._again.set)

    def holds(self, key: Key) -> bool:
        """Whether the lease holds by this process's clock."""
        return self._held.get(key, 0.0) > _now()

    def give_back(self, key: Key) -> None:
        """The lease was given back in the database."""
        self._held.pop(key, None)
        self._given_back.add(key)

    async def run(self, background: Background) -> None:
        """Claim and renew until the service stops."""
        while not (background.stopping.is_set() or self._stopping):
            self._again.clear()
            try:
                await self._round()
            except PamspecError as error:
                _log.info("leases wait: %s", error, extra={"action": "leases_wait"})
            background.recovered(f"{self._kind}_deliverer")
            try:
                async with asyncio.timeout(self._lease_s / 3):
                    await self._again.wait()
            except TimeoutError:
                continue
        await background.stopping.wait()

    async def _round(self) -> None:
        if self._stopping:
            return
        lease = timedelta(seconds=self._lease_s)
        until = _now() + self._lease_s
        self._given_back.clear()
        async with self._store.for_channels() as conn:
            renewed = await leases.renew(conn, self.owner, lease, list(self._held)) if self._held else set()
            lost = set(self._held) - renewed
            claimed, more = await self._claim(conn, self.owner, lease)
        for key in lost:
            self._drop(key)
        for key in (renewed - self._given_back) | set(claimed):
            self._held[key] = until
            if key not in self._running and key not in self._done:
                self._start(key)
        if more:
            self._again.set()

    def _start(self, key: Key) -> None:
        task = self._running[key] = asyncio.create_task(self._run(key), name=f"{self._kind}-{key[1]}")
        task.add_done_callback(lambda _: self._ended(key, task))

    async def _run(self, key: Key) -> None:
        if await self._run_one(key):
            self._done.add(key)

    def _ended(self, key: Key, task: asyncio.Task[None]) -> None:
        if self._running.get(key) is task:
            del self._running[key]
            task.get_loop().call_later(_RESTART_PAUSE_S, self._again.set)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a channel over %s failed", self._kind, exc_info=error, extra={"action": "channel_failed"})

    def _drop(self, key: Key) -> None:
        """Another process holds it now, or it is closed."""
        self._held.pop(key, None)
        self._done.discard(key)
        task = self._running.pop(key, None)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        """Give the leases back once the channels have had their end."""
        self._stopping = True
        self._again.set()
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        held, self._held = list(self._held), {}
        if held:
            try:
                async with asyncio.timeout(2), self._store.session() as conn:
                    await leases.release(conn, self.owner, held)
            except (PamspecError, TimeoutError) as error:
                _log.info("leases run out instead: %s", error, extra={"action": "leases_unreleased"})


def _now() -> float:
    return asyncio.get_running_loop().time()
