"""Subscriptions and the pages of a poll."""

from __future__ import annotations

from typing import Any

import msgspec

from pamspec_client.models.document import Channel, Document
from pamspec_client.models.objects import Envelope, Event


class Closed(msgspec.Struct, kw_only=True):
    """The end of a subscription."""

    reason: str
    last_delivered_sequence: int


class WebhookEndpoint(msgspec.Struct, kw_only=True):
    """Where a subscription is posted to; `secret` in the first answer of subscribe alone."""

    url: str
    secret: str | None = None


class Subscribed(Document, kw_only=True):
    """An opened subscription."""

    subscription_id: str
    start_sequence: int
    ledger_epoch: int
    channel_ref: str
    channel: Channel
    include_content: bool
    subscription: dict[str, Any]
    operation_id: str = ""
    webhook: WebhookEndpoint | None = None


class SubscriptionEntry(Document, kw_only=True):
    """A subscription and its durable cursor `next_after_sequence`."""

    subscription: dict[str, Any]
    channel: Channel
    include_content: bool
    next_after_sequence: int
    ledger_epoch: int
    closed: Closed | None = None
    webhook: WebhookEndpoint | None = None


class SubscriptionPage(Document, kw_only=True):
    """A page of subscriptions, by subscription_id."""

    subscriptions_raw: list[msgspec.Raw] = msgspec.field(name="subscriptions")
    next_cursor: str | None = None

    @property
    def subscriptions(self) -> list[SubscriptionEntry]:
        """The subscriptions."""
        return [SubscriptionEntry.of(raw) for raw in self.subscriptions_raw]


class Unsubscribed(Document, kw_only=True):
    """An ended subscription."""

    subscription_id: str
    closed: Closed
    operation_id: str = ""


class CursorMoved(Document, kw_only=True):
    """Where a subscription's delivery goes on."""

    subscription_id: str
    next_after_sequence: int
    ledger_epoch: int
    operation_id: str = ""


class ParkedEvent(msgspec.Struct, kw_only=True):
    """The event at which a webhook stands, tried seldom until `next_attempt_at` or a replay."""

    sequence: int
    event_id: str
    outcome: str
    status: int | None
    attempts: int
    failing_since: str
    next_attempt_at: str


class ParkedPage(Document, kw_only=True):
    """Where a webhook stands still; nothing after a parked event is delivered before it."""

    subscription_id: str
    next_after_sequence: int
    ledger_epoch: int
    parked: list[ParkedEvent]


class DeliveryAttempt(msgspec.Struct, kw_only=True):
    """One request to the endpoint of a webhook; `events` is 0 for the end of the subscription."""

    attempt: int
    at: str
    outcome: str
    status: int | None
    latency_ms: int
    events: int
    first_sequence: int
    last_sequence: int


class DeliveryPage(Document, kw_only=True):
    """Attempts to deliver, the newest first."""

    subscription_id: str
    deliveries: list[DeliveryAttempt]
    next_cursor: str | None = None


class SecretRotated(Document, kw_only=True):
    """The new secret of a webhook, shown here alone; earlier ones sign beside it until `earlier_until`."""

    subscription_id: str
    secret: str
    earlier_until: str
    operation_id: str = ""


class PollPage(Document, kw_only=True):
    """A page of events; the next poll passes `next_after_sequence`, which acknowledges this page."""

    events_raw: list[msgspec.Raw] = msgspec.field(name="events")
    next_after_sequence: int
    ledger_epoch: int
    closed: Closed | None = None
    envelopes: dict[str, msgspec.Raw] | None = None

    @property
    def events(self) -> list[Event]:
        """The events in ledger order, each with its envelope where the subscription includes content."""
        return [self._joined(Event.of(raw)) for raw in self.events_raw]

    def _joined(self, event: Event) -> Event:
        raw = (self.envelopes or {}).get(event.version_id or "")
        return event.with_envelope(Envelope.of(raw) if raw is not None else None)
