"""Taking a subscription over for a channel: whose it is, from where, and that no other holds it any more."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from pamspec_common.denials import Denials
from pamspec_common.errors import InvalidRequest, PamspecError
from pamspec_common.principal import Principal, TokenVerifier
from pamspec_subscription.channels.channel import Channel, Sink, Surroundings
from pamspec_subscription.fanout import Subscriber
from pamspec_subscription.frames import closed_frame
from pamspec_subscription.lifecycle import closed_record
from pamspec_subscription.matching import Matcher
from pamspec_subscription.model import STREAMED, AckWindow, Subscription, check_position
from pamspec_subscription.queries import cursors, subscriptions
from pamspec_subscription.registry import Registry, Seat
from pamspec_subscription.rights import REVOKED, Access, Permitted, Right
from pamspec_subscription.visibility import own

_log = logging.getLogger(__name__)

_LEAVE_S = 2.0


@dataclass
class Opened:
    """A channel that may run: who holds it, with which right, from where."""

    subscription: Subscription
    principal: Principal
    seat: Seat
    start: int


class Opener:
    """Opens and runs channels."""

    def __init__(
        self,
        around: Surroundings,
        registry: Registry,
        verifier: TokenVerifier,
        access: Access,
        denials: Denials,
        buffer: int,
    ) -> None:
        self._around, self._registry, self._verifier = around, registry, verifier
        self._access, self._denials, self._buffer = access, denials, buffer

    async def open(
        self, token: str, subscription_id: str, kind: str, position: tuple[int | None, int] | None
    ) -> Opened:
        """Take the subscription over for a stream, acknowledging up to `position` (epoch, sequence) if given."""
        principal = self._verifier.verify(token)
        self._registry.check_room()
        async with self._around.store.session() as conn:
            subscription = own(await subscriptions.load(conn, principal.tenant_id, subscription_id), principal)
        try:
            permitted = await self._access.permitted(
                principal, subscription.actor, subscription.scope_key, subscription.head.epochs
            )
        except REVOKED as error:
            self._denials.note(principal, "subscribe", {"scope_id": subscription.scope_id}, error)
            raise
        async with self._around.store.session() as conn:
            if subscription.channel not in STREAMED:
                raise InvalidRequest(
                    "This subscription is delivered by the service itself; poll it, or subscribe with channel sse."
                )
            start = subscription.cursor
            if position is not None:
                check_position(position[1], position[0], subscription.head, subscription.resume_after)
                start = position[1]
            epoch = await cursors.take(conn, subscription, kind, start)
            if epoch is None:
                subscription = own(await subscriptions.load(conn, *subscription.key), principal)
                epoch = subscription.channel_epoch
        return Opened(subscription, principal, self._seat(subscription, permitted, kind, epoch), start)

    async def pushed(self, subscription: Subscription, kind: str, start: int) -> Opened:
        """The channel of a subscription that this process pushes under its lease, from a position on."""
        permitted = await self._access.viewer(
            subscription.principal, subscription.actor, subscription.scope_key, subscription.head.epochs
        )
        seat = self._seat(subscription, permitted, kind, subscription.channel_epoch)
        return Opened(subscription, subscription.principal, seat, start)

    def _seat(self, subscription: Subscription, permitted: Permitted, kind: str, epoch: int) -> Seat:
        matcher = Matcher(subscription.filter, permitted.viewer)
        subscriber = Subscriber(subscription.key, matcher, self._buffer, epoch)
        return Seat(subscriber, kind, keeps_pace=kind in ("sse", "websocket"))

    async def run(self, opened: Opened, sink: Sink, window: AckWindow | None = None) -> bool:
        """Run the channel until it ends, and note where it stood; whether the subscription's own end was delivered."""
        subscription, seat = opened.subscription, opened.seat
        if subscription.state == "closed" or (subscription.state == "closing" and seat.kind != "nats"):
            record = closed_record(subscription)
            last = closed_frame(record["reason"], record["last_delivered_sequence"], subscription.head.ledger_epoch)
            await sink.send([last])
            return True
        right = Right(self._access, opened.principal, subscription.actor, subscription.scope_key)
        self._registry.enter(seat)
        channel = Channel(subscription, seat, sink, right, self._around, opened.start, window)
        try:
            await channel.run()
        finally:
            self._registry.leave(seat)
            await asyncio.shield(self._note_end(subscription, seat))
        return channel.closed

    async def _note_end(self, subscription: Subscription, seat: Seat) -> None:
        try:
            async with asyncio.timeout(_LEAVE_S), self._around.store.session() as conn:
                await cursors.leave(conn, subscription, seat.subscriber.channel_epoch, seat.position)
        except (PamspecError, TimeoutError) as error:
            _log.info("the end of a channel is not noted: %s", error, extra={"action": "leave_unnoted"})
