"""What operations on subscriptions and their webhooks take."""

from __future__ import annotations

from typing import Required

from pamspec_client.documents import Channel, Delivery, EventFilter, Webhook
from pamspec_client.requests.common import Common, PageRequest, Writing


class SubscribeRequest(Writing, total=False):
    """Open a durable subscription; without after_sequence it delivers what is written from now on."""

    scope_id: Required[str]
    filter: EventFilter
    after_sequence: int
    delivery: Delivery
    channel: Channel
    include_content: bool
    webhook: Webhook


class UnsubscribeRequest(Writing, total=False):
    """End a subscription for good."""

    subscription_id: Required[str]
    scope_id: str


class PollRequest(Common, total=False):
    """Fetch events; passing after_sequence acknowledges everything up to it (at least once)."""

    subscription_id: Required[str]
    scope_id: str
    after_sequence: int
    max: int


class AckRequest(Common, total=False):
    """Acknowledge up to `sequence`, or these `sequences`."""

    subscription_id: Required[str]
    scope_id: str
    sequence: int
    sequences: list[int]


class ResetRequest(Common, total=False):
    """Put the cursor anywhere."""

    subscription_id: Required[str]
    scope_id: str
    after_sequence: Required[int]


class ListParkedRequest(Common, total=False):
    """Where a webhook stands still."""

    subscription_id: Required[str]
    scope_id: str


class ReplayRequest(Common, total=False):
    """Try a failing webhook at once; with `skip`, pass over the parked event of that `sequence`."""

    subscription_id: Required[str]
    scope_id: str
    sequence: int
    skip: bool


class ListDeliveriesRequest(PageRequest, total=False):
    """The attempts to deliver a webhook, the newest first."""

    subscription_id: Required[str]
    scope_id: str


class RotateWebhookSecretRequest(Common, total=False):
    """A new secret; the earlier ones sign beside it for `overlap_s` seconds, a day by default."""

    subscription_id: Required[str]
    scope_id: str
    overlap_s: int


class ListSubscriptionsRequest(PageRequest, total=False):
    """The subscriptions of one scope or of all, or one by its id."""

    scope_id: str
    subscription_id: str
