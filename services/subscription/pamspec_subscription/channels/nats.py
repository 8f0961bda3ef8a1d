"""Delivery over NATS: the process that holds a subscription's lease publishes its frames on the delivery subject.

Invariants: a process publishes only while its lease holds by its own clock; at most `nats_window` events are
unacknowledged, then the channel waits (S13, block); it starts at the cursor, so that what another process had in
flight comes again. The subject may lose frames: each names the one before it, and progress frames name the end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta

from nats.errors import Error as NatsError

from pamspec_common import ids
from pamspec_common.asgi import ClientGone
from pamspec_common.bus import HEADER_EPOCH
from pamspec_common.errors import PamspecError
from pamspec_common.service import Background
from pamspec_subscription.channels.opening import Opener
from pamspec_subscription.describing import channel_ref
from pamspec_subscription.frames import Frame
from pamspec_subscription.link import BusLink
from pamspec_subscription.model import AckWindow
from pamspec_subscription.queries import leases, subscriptions
from pamspec_subscription.store import Store

_log = logging.getLogger(__name__)

_CLAIM_AT_ONCE = 200
_RESTART_PAUSE_S = 0.1
_Key = tuple[str, str]


class NatsSink:
    """Frames as messages on a delivery subject."""

    kind = "nats"
    silent_ends = frozenset({"replaced", "idle", "too_slow"})

    def __init__(self, link: BusLink, subject: str, ledger_epoch: int, holds: Callable[[], bool]) -> None:
        self._link, self._subject, self._holds = link, subject, holds
        self._headers = {HEADER_EPOCH: str(ledger_epoch)}

    async def send(self, frames: Sequence[Frame], *, keepalive: bool = False) -> None:
        """Publish; waits while the bus is away, ClientGone once the lease is lost."""
        for frame in frames:
            await self._link.connected.wait()
            if not self._holds() or self._link.client is None:
                raise ClientGone
            try:
                await self._link.client.publish(self._subject, frame.data, headers=self._headers)
            except (NatsError, OSError) as error:
                raise ClientGone from error


class NatsDeliverer:
    """Claims, renews and runs the subscriptions over NATS of this process."""

    def __init__(self, store: Store, opener: Opener, link: BusLink, lease_s: float, window: int) -> None:
        self._store, self._opener, self._link = store, opener, link
        self._lease_s, self._window = lease_s, window
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{ids.uuid7()}"
        self._held: dict[_Key, float] = {}
        self._running: dict[_Key, asyncio.Task[None]] = {}
        self._done: set[_Key] = set()
        self._again = asyncio.Event()
        self._stopping = False

    def look(self) -> None:
        """There is something new to claim."""
        self._again.set()

    async def run(self, background: Background) -> None:
        """Claim and renew until the service stops."""
        while not (background.stopping.is_set() or self._stopping):
            self._again.clear()
            try:
                await self._round()
            except PamspecError as error:
                _log.info("leases wait: %s", error, extra={"action": "leases_wait"})
            background.recovered("nats_deliverer")
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
        async with self._store.for_channels() as conn:
            renewed = await leases.renew(conn, self._owner, lease, list(self._held)) if self._held else set()
            claimed = await leases.claim(conn, self._owner, lease, _CLAIM_AT_ONCE)
        for key in set(self._held) - renewed:
            self._drop(key)
        for key in renewed | set(claimed):
            self._held[key] = until
            if key not in self._running and key not in self._done:
                self._start(key)
        if len(claimed) == _CLAIM_AT_ONCE:
            self._again.set()

    def _start(self, key: _Key) -> None:
        task = self._running[key] = asyncio.create_task(self._deliver(key), name=f"nats-{key[1]}")
        task.add_done_callback(lambda _: self._ended(key, task))

    def _ended(self, key: _Key, task: asyncio.Task[None]) -> None:
        if self._running.get(key) is task:
            del self._running[key]
            task.get_loop().call_later(_RESTART_PAUSE_S, self._again.set)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a channel over NATS failed", exc_info=error, extra={"action": "channel_failed"})

    def _drop(self, key: _Key) -> None:
        """Another process holds it now, or it is closed."""
        self._held.pop(key, None)
        self._done.discard(key)
        task = self._running.pop(key, None)
        if task is not None:
            task.cancel()

    async def _deliver(self, key: _Key) -> None:
        """One run of a channel; the next round starts another while the lease holds and the subscription is open."""
        async with self._store.for_channels() as conn:
            subscription = await subscriptions.load(conn, *key)
        if subscription is None or subscription.state == "closed":
            self._held.pop(key, None)
            return
        window = AckWindow(self._window)
        sink = NatsSink(self._link, channel_ref(subscription), subscription.head.ledger_epoch, lambda: self._holds(key))
        if await self._opener.run(await self._opener.pushed(subscription), sink, window):
            self._done.add(key)

    def _holds(self, key: _Key) -> bool:
        return self._held.get(key, 0.0) > _now()

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
                    await leases.release(conn, self._owner, held)
            except (PamspecError, TimeoutError) as error:
                _log.info("leases run out instead: %s", error, extra={"action": "leases_unreleased"})


def _now() -> float:
    return asyncio.get_running_loop().time()
