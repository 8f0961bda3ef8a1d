"""The composition root of the subscription service."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from functools import partial

from pamspec_common.authorization.rights import Authorizer
from pamspec_common.calls import Operations
from pamspec_common.denials import Denials
from pamspec_common.errors import PamspecError
from pamspec_common.peers import Peer, RemotePeer, closing, peer_session
from pamspec_common.principal import Principal, TokenSigner, TokenVerifier
from pamspec_common.quotas import quotas_of
from pamspec_common.service import Background, Part, Service
from pamspec_subscription.channels.channel import Surroundings
from pamspec_subscription.channels.doors import StreamDoors
from pamspec_subscription.channels.nats import NatsDeliverer
from pamspec_subscription.channels.opening import Opener
from pamspec_subscription.documents import (
    Ack,
    ListDeliveries,
    ListSubscriptions,
    OnSubscription,
    Poll,
    Replay,
    Reset,
    RotateSecret,
    Subscribe,
)
from pamspec_subscription.fanout import Fanout
from pamspec_subscription.grants import Grants
from pamspec_subscription.handlers.acknowledging import Acknowledging
from pamspec_subscription.handlers.asked import handler
from pamspec_subscription.handlers.endpoints import Endpoints
from pamspec_subscription.handlers.polling import Polling
from pamspec_subscription.handlers.subscribing import Subscribing
from pamspec_subscription.lifecycle import Lifecycle
from pamspec_subscription.link import BusLink
from pamspec_subscription.model import Subscription
from pamspec_subscription.quotas import SubscriptionQuotas
from pamspec_subscription.registry import Registry
from pamspec_subscription.rights import Access
from pamspec_subscription.settings import Settings
from pamspec_subscription.store import Store
from pamspec_subscription.webhooks.deliverer import WebhookDeliverer
from pamspec_subscription.webhooks.posting import Limits, Lookup, Poster

_HEADS_MISSED = 5

_log = logging.getLogger(__name__)


class _App:
    def __init__(self, settings: Settings, write: Peer, lookup: Lookup | None) -> None:
        self._settings = settings
        verifier, signer = TokenVerifier(settings.token_key_bytes(), "subscription"), TokenSigner.of(settings)
        self._denials = Denials("subscription", signer, write.call, settings.denial_window_s)
        self._store = Store(settings)
        access = Access(Authorizer(self._store.rights), Grants(self._store.session))
        self._fanout = Fanout(self._store, settings.follow_linger_s)
        self._registry = Registry(self._store, settings.channel_limit)
        self._lifecycle = Lifecycle(self._store, write, signer, access)
        around = Surroundings(
            self._store, self._fanout, settings.channel_stall_s, self._revoke, self._registry.compare_soon
        )
        opener = Opener(around, self._registry, verifier, access, self._denials, settings.channel_buffer)
        self._link = BusLink(settings, self._fanout)
        self._nats = NatsDeliverer(self._store, opener, self._link, settings.lease_s, settings.nats_window)
        terms = settings.webhook_terms()
        limits = Limits(settings.webhook_timeout_s, settings.webhook_connect_s)
        lane = partial(Poster, terms.targets, limits, settings.webhook_ca_file, lookup)
        self._webhooks = WebhookDeliverer(self._store, opener, terms, lane, settings.lease_s, self._lifecycle.close)
        self._background = Background()
        self._heads_at = 0.0
        self.service = Service(
            "subscription",
            self._operations(verifier, access),
            self._readiness,
            self._start,
            self._stop,
            app=StreamDoors(opener),
            on_drain=self._drain,
        )

    def _operations(self, verifier: TokenVerifier, access: Access) -> Operations:
        store, registry, lifecycle = self._store, self._registry, self._lifecycle
        denials, terms = self._denials, self._settings.webhook_terms()
        pushed = {"nats": self._nats.leases.look, "webhook": self._webhooks.leases.look}
        endpoints = Endpoints(store, registry, access, terms.sealing, pushed["webhook"])
        keepalive_ms = self._settings.keepalive_ms
        quotas = SubscriptionQuotas(quotas_of(self._settings.quota_defaults))
        opening = Subscribing(
            store, lifecycle, registry, access, quotas, keepalive_ms, terms.targets, endpoints, pushed
        )
        cursor = Acknowledging(store, registry, access)
        polling = Polling(store, self._fanout, registry, lifecycle, access)
        return {
            "subscribe": handler(verifier, denials, Subscribe, opening.subscribe),
            "unsubscribe": handler(verifier, denials, OnSubscription, opening.unsubscribe),
            "list_subscriptions": handler(verifier, denials, ListSubscriptions, opening.list_subscriptions),
            "poll": handler(verifier, denials, Poll, polling.poll),
            "ack": handler(verifier, denials, Ack, cursor.ack),
            "reset": handler(verifier, denials, Reset, cursor.reset),
            "list_parked": handler(verifier, denials, OnSubscription, endpoints.list_parked),
            "replay": handler(verifier, denials, Replay, endpoints.replay),
            "list_deliveries": handler(verifier, denials, ListDeliveries, endpoints.list_deliveries),
            "rotate_webhook_secret": handler(verifier, denials, RotateSecret, endpoints.rotate),
        }

    async def _start(self) -> None:
        await self._store.open()
        self._heads_at = _now()
        background = self._background
        background.spawn("heads", self._compare_heads)
        background.spawn("upkeep", self._upkeep)
        background.spawn("denials", lambda: self._denials.run(background))
        background.spawn("bus", lambda: self._link.run(background))
        background.spawn("nats_deliverer", lambda: self._nats.leases.run(background))
        self._webhooks.start()
        background.spawn("webhook_deliverer", lambda: self._webhooks.leases.run(background))

    async def _compare_heads(self) -> None:
        """One query for the followed scopes and one for the channels, every interval."""
        while not self._background.stopping.is_set():
            try:
                await self._fanout.compare_heads()
                await self._registry.compare()
                self._heads_at = _now()
                self._background.recovered("heads")
            except PamspecError as error:
                _log.info("heads are not compared: %s", error, extra={"action": "heads_wait"})
            await self._background.pause(self._settings.heads_interval_s)

    async def _upkeep(self) -> None:
        """Finish what was interrupted, close what nobody acknowledges, note how far channels are."""
        every = self._settings.upkeep_interval_s
        unacknowledged = timedelta(seconds=self._settings.unacknowledged_limit_s)
        while not await self._background.pause(every):
            try:
                await self._registry.note_progress()
                await self._lifecycle.finish_leftovers(timedelta(seconds=every))
                await self._lifecycle.close_deleted()
                await self._lifecycle.close_unacknowledged(unacknowledged)
                await self._lifecycle.close_delegated()
                await self._lifecycle.remove_offboarded()
                await self._store.forget_deliveries(timedelta(seconds=self._settings.webhook_log_s))
                self._background.recovered("upkeep")
            except PamspecError as error:
                _log.info("upkeep waits: %s", error, extra={"action": "upkeep_waits"})

    async def _revoke(self, subscription: Subscription, principal: Principal, position: int) -> str | None:
        """Close what may not be received any more; the reason as its terminal record has it, None where it is kept."""
        try:
            found = await self._lifecycle.revoke(subscription, principal, position)
        except PamspecError as error:
            _log.warning("a revoked subscription is closed later: %s", error, extra={"action": "close_waits"})
            return None
        return None if found.state == "open" else found.closed_reason

    async def _drain(self) -> None:
        await self._registry.drain(self._settings.drain_s)

    async def _stop(self) -> None:
        await self._webhooks.stop()
        await self._nats.leases.stop()
        await self._background.stop(1.0)
        await self._denials.close(self._settings.drain_s / 4)
        await self._fanout.close()
        await self._link.close()
        await self._store.close()

    async def _readiness(self) -> list[Part]:
        age = _now() - self._heads_at
        late = age > _HEADS_MISSED * max(1.0, self._settings.heads_interval_s)
        own = [part for part in self._background.parts() if part.name not in ("bus", "heads")]
        return [
            Part("heads", not late, {"age_s": round(age, 1), "lag": self._fanout.lag}),
            Part("bus", self._fanout.bus_connected, {}, essential=False),
            Part("channels", True, {"open": len(self._registry)}),
            *own,
        ]


def build(settings: Settings, write: Peer, lookup: Lookup | None = None) -> Service:
    """The subscription service; nothing runs before its `start`. `lookup` takes the place of the system's resolver."""
    return _App(settings, write, lookup).service


def build_remote(settings: Settings) -> Service:
    """The same in a process of its own, with the write service behind its URL; to be called in a running loop."""
    session = peer_session(settings.tls())
    return closing(build(settings, RemotePeer(session, settings.write_url, "write")), session)


def _now() -> float:
    return asyncio.get_running_loop().time()
