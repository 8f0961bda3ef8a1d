"""How a subscription is shown: its descriptor (contracts/schemas/subscription.json) and what stands beside it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pamspec_common import bus
from pamspec_common.ids import subject_token
from pamspec_subscription.lifecycle import closed_record
from pamspec_subscription.model import Subscription

_PATHS = {"poll": "events", "sse": "stream", "websocket": "ws"}


def channel_ref(subscription: Subscription) -> str:
    """Where the channel is reached: a path of the gateway, a subject of the bus, or the URL of a webhook."""
    if subscription.webhook_url is not None:
        return subscription.webhook_url
    if subscription.channel in _PATHS:
        return f"/v1/subscriptions/{subscription.subscription_id}/{_PATHS[subscription.channel]}"
    principal = subject_token(subscription.tenant_id, subscription.principal.actor_id)
    return bus.deliver_subject(principal, subject_token(*subscription.key))


def descriptor(subscription: Subscription) -> dict[str, Any]:
    """The subscription as the schema describes it."""
    return {
        "subscription_id": subscription.subscription_id,
        "scope_id": subscription.scope_id,
        "actor": subscription.actor,
        "filter": subscription.filter,
        "start_sequence": subscription.start_sequence,
        "delivery": asdict(subscription.delivery),
        "channel_ref": channel_ref(subscription),
    }


def opened_answer(subscription: Subscription, secret: str | None = None) -> dict[str, Any]:
    """The answer of subscribe; the same for every repetition (S16) but for a webhook's secret, which is shown once."""
    return _with_webhook(subscription, secret) | {
        "subscription_id": subscription.subscription_id,
        "start_sequence": subscription.start_sequence,
        "ledger_epoch": subscription.ledger_epoch,
        "channel_ref": channel_ref(subscription),
        "channel": subscription.channel,
        "include_content": subscription.include_content,
        "subscription": descriptor(subscription),
        "operation_id": subscription.operation_id,
    }


def entry(subscription: Subscription) -> dict[str, Any]:
    """A subscription in a list, with its cursor."""
    return _with_webhook(subscription) | {
        "subscription": descriptor(subscription),
        "channel": subscription.channel,
        "include_content": subscription.include_content,
        "next_after_sequence": subscription.resume_after,
        "ledger_epoch": subscription.head.ledger_epoch,
        "closed": None if subscription.state == "open" else closed_record(subscription),
    }


def _with_webhook(subscription: Subscription, secret: str | None = None) -> dict[str, Any]:
    if subscription.webhook_url is None:
        return {}
    webhook = {"url": subscription.webhook_url}
    return {"webhook": webhook if secret is None else webhook | {"secret": secret}}
