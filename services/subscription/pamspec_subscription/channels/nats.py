"""Delivery over NATS: the process that holds a subscription's lease publishes its frames on the delivery subject.

Invariants: a process publishes only while its lease holds by its own clock; at most `nats_window` events are
unacknowledged, then the channel waits (S13, block); it starts at the cursor, so that what another process had in
flight comes again. The subject may lose frames: each names the one before it, and progress frames name the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from nats.errors import Error as NatsError

from pamspec_common.asgi import ClientGone
from pamspec_common.bus import HEADER_EPOCH
from pamspec_common.postgres import Connection
from pamspec_common.telemetry.tracing import HEADER
from pamspec_subscription.channels.leaseholder import Key, Leaseholder
from pamspec_subscription.channels.opening import Opener
from pamspec_subscription.describing import channel_ref
from pamspec_subscription.frames import Frame
from pamspec_subscription.link import BusLink
from pamspec_subscription.model import FLUSH_FRAMES, AckWindow
from pamspec_subscription.queries import leases, subscriptions
from pamspec_subscription.store import Store

_CLAIM_AT_ONCE = 200


class NatsSink:
    """Frames as messages on a delivery subject."""

    kind = "nats"
    silent_ends = frozenset({"replaced", "idle", "too_slow"})
    at_once = FLUSH_FRAMES
    bounds_itself = False

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
                headers = self._headers
                if frame.traceparent is not None:
                    headers = {**headers, HEADER: frame.traceparent}
                await self._link.client.publish(self._subject, frame.data, headers=headers)
            except (NatsError, OSError) as error:
                raise ClientGone from error


class NatsDeliverer:
    """Runs the subscriptions over NATS whose leases this process holds."""

    def __init__(self, store: Store, opener: Opener, link: BusLink, lease_s: float, window: int) -> None:
        self._store, self._opener, self._link, self._window = store, opener, link, window
        self.leases = Leaseholder("nats", store, lease_s, _claim, self._deliver)

    async def _deliver(self, key: Key) -> bool:
        """One run of a channel; the next round starts another while the lease holds and the subscription is open."""
        async with self._store.for_channels() as conn:
            subscription = await subscriptions.load(conn, *key)
        if subscription is None or subscription.state == "closed":
            self.leases.give_back(key)
            return False
        window = AckWindow(self._window)
        epoch = subscription.head.ledger_epoch
        sink = NatsSink(self._link, channel_ref(subscription), epoch, lambda: self.leases.holds(key))
        opened = await self._opener.pushed(subscription, "nats", subscription.cursor)
        return await self._opener.run(opened, sink, window)


async def _claim(conn: Connection, owner: str, lease: timedelta) -> tuple[Sequence[Key], bool]:
    claimed = await leases.claim(conn, owner, lease, _CLAIM_AT_ONCE)
    return list(claimed), len(claimed) == _CLAIM_AT_ONCE
