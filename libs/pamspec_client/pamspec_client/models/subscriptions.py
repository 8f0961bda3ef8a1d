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


class SubscriptionEntry(Document, kw_only=True):
    """A subscription and its durable cursor `next_after_sequence`."""

    subscription: dict[str, Any]
    channel: Channel
    include_content: bool
    next_after_sequence: int
    ledger_epoch: int
    closed: Closed | None = None


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
