"""What reads answer: single versions, pages of a query, a history."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from pamspec_client.errors import ProtocolError
from pamspec_client.models.document import NOTHING, Document
from pamspec_client.models.objects import Envelope, Event


class QueryItem(Document, kw_only=True):
    """One item of a query: an envelope, or the projection that was asked for."""

    envelope_raw: msgspec.Raw = msgspec.field(name="envelope", default=NOTHING)
    projection_raw: msgspec.Raw = msgspec.field(name="projection", default=NOTHING)
    score: float | None = None
    semantic_score: float | None = None
    path: dict[str, Any] | None = None
    """The way to it, where `traverse.paths` asked for it: `from`, and `steps` of relationship_id and object_id."""
    explanation: dict[str, Any] | None = None

    @property
    def envelope(self) -> Envelope:
        """The version; ProtocolError when a projection was asked for."""
        if not bytes(self.envelope_raw):
            raise ProtocolError("this item is a projection: read `projection`")
        return Envelope.of(self.envelope_raw)

    @property
    def projection(self) -> dict[str, Any] | None:
        """The members that `fields` named, or None."""
        if not bytes(self.projection_raw):
            return None
        found: dict[str, Any] = json.loads(bytes(self.projection_raw))
        return found


class Count(msgspec.Struct, kw_only=True):
    """How many versions match in all; where it is not exact, at least so many."""

    value: int
    exact: bool


class QueryPage(Document, kw_only=True):
    """A page of a query; `hint` says why it is empty when the default filters made it so."""

    items_raw: list[msgspec.Raw] = msgspec.field(name="items")
    next_cursor: str | None = None
    count: Count | None = None
    """Where the request asks for it."""
    hint: str | None = None
    index: dict[str, Any] | None = None

    @property
    def items(self) -> list[QueryItem]:
        """The items in the order of the query."""
        return [QueryItem.of(raw) for raw in self.items_raw]


class HistoryPage(Document, kw_only=True):
    """A page of history: ledger entries in order, their versions, and erasable notes by event_id."""

    versions_raw: list[msgspec.Raw] = msgspec.field(name="versions")
    events_raw: list[msgspec.Raw] = msgspec.field(name="events")
    notes: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    next_cursor: str | None = None

    @property
    def versions(self) -> list[Envelope]:
        """The versions of the events on this page, oldest first."""
        return [Envelope.of(raw) for raw in self.versions_raw]

    @property
    def events(self) -> list[Event]:
        """The ledger entries."""
        return [Event.of(raw) for raw in self.events_raw]


class ReadAnswer(Document, kw_only=True):
    """The answer of a read."""

    envelope_raw: msgspec.Raw = msgspec.field(name="envelope")


class ProjectionAnswer(Document, kw_only=True):
    """The answer of a read that names fields."""

    projection_raw: msgspec.Raw = msgspec.field(name="projection")

    @property
    def projection(self) -> dict[str, Any]:
        """The members that were asked for."""
        found: dict[str, Any] = json.loads(bytes(self.projection_raw))
        return found
