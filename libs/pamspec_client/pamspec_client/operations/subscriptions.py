"""Durable subscriptions and their webhooks."""

from __future__ import annotations

from typing import Unpack

from pamspec_client import requests as r
from pamspec_client.errors import ObjectNotFound
from pamspec_client.models import (
    CursorMoved,
    DeliveryPage,
    ParkedPage,
    PollPage,
    SecretRotated,
    Subscribed,
    SubscriptionEntry,
    SubscriptionPage,
    Unsubscribed,
)
from pamspec_client.operations.caller import Caller


class Subscriptions(Caller):
    """Durable subscriptions and their webhooks."""

    async def subscribe(self, **request: Unpack[r.SubscribeRequest]) -> Subscribed:
        """Open a durable subscription (PAMSPEC P125); `follow` it."""
        return await self._typed(Subscribed, "subscribe", request)

    async def unsubscribe(self, **request: Unpack[r.UnsubscribeRequest]) -> Unsubscribed:
        """End a subscription for good."""
        return await self._typed(Unsubscribed, "unsubscribe", request)

    async def poll(self, **request: Unpack[r.PollRequest]) -> PollPage:
        """Fetch events, waiting for the first up to wait_ms.

        Pass `after_sequence`, the last page's `next_after_sequence`: that acknowledges the page and delivers at least
        once. Without it the service goes on after its last answer, and an answer that is lost is not repeated.
        """
        return await self._typed(PollPage, "poll", request)

    async def ack(self, **request: Unpack[r.AckRequest]) -> CursorMoved:
        """Acknowledge events of a subscription."""
        return await self._typed(CursorMoved, "ack", request)

    async def reset(self, **request: Unpack[r.ResetRequest]) -> CursorMoved:
        """Put the cursor of a subscription anywhere."""
        return await self._typed(CursorMoved, "reset", request)

    async def list_parked(self, **request: Unpack[r.ListParkedRequest]) -> ParkedPage:
        """The event at which a webhook stands still, if it does."""
        return await self._typed(ParkedPage, "list_parked", request)

    async def replay(self, **request: Unpack[r.ReplayRequest]) -> CursorMoved:
        """Try a failing webhook at once, or pass over its parked event."""
        return await self._typed(CursorMoved, "replay", request)

    async def list_deliveries(self, **request: Unpack[r.ListDeliveriesRequest]) -> DeliveryPage:
        """One page of the attempts to deliver a webhook, the newest first."""
        return await self._typed(DeliveryPage, "list_deliveries", request)

    async def rotate_webhook_secret(self, **request: Unpack[r.RotateWebhookSecretRequest]) -> SecretRotated:
        """Make a new secret for a webhook; it is shown here and never again."""
        return await self._typed(SecretRotated, "rotate_webhook_secret", request)

    async def list_subscriptions(self, **request: Unpack[r.ListSubscriptionsRequest]) -> SubscriptionPage:
        """One page of subscriptions with their cursors."""
        return await self._typed(SubscriptionPage, "list_subscriptions", request)

    async def get_subscription(self, subscription_id: str) -> SubscriptionEntry:
        """One subscription with its cursor; ObjectNotFound when there is none."""
        page = await self.list_subscriptions(subscription_id=subscription_id)
        for entry in page.subscriptions:
            return entry
        raise ObjectNotFound("No such subscription is visible to this actor; check subscription_id.", status=404)
