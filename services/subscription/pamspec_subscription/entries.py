"""A ledger entry on its way to subscribers: parsed at most once, framed once for all who share a place."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from pamspec_subscription.frames import event_frame


class Entry:
    """One ledger entry with its stored bytes."""

    __slots__ = ("_document", "_frame", "_frame_after", "event", "event_type", "sequence", "traceparent")

    def __init__(self, sequence: int, event_type: str, event: bytes) -> None:
        self.sequence, self.event_type, self.event = sequence, event_type, event
        self.traceparent: str | None = None
        self._document: dict[str, Any] | None = None
        self._frame_after: tuple[int, int] | None = None
        self._frame = b""

    @classmethod
    def hinted(cls, sequence: int, event: bytes, traceparent: str | None = None) -> Entry:
        """The entry of a message from the bus; ValueError when it is not the event that its header names."""
        document = orjson.loads(event)
        if not isinstance(document, dict) or document.get("sequence") != sequence:
            raise ValueError("the message is not the event of its header")
        entry = cls(sequence, str(document.get("event_type")), event)
        entry._document = document
        entry.traceparent = traceparent
        return entry

    @property
    def document(self) -> dict[str, Any]:
        """The event as a document."""
        if self._document is None:
            self._document = orjson.loads(self.event)
        return self._document

    def frame(self, prev_sequence: int, ledger_epoch: int) -> bytes:
        """The frame without content; subscribers that come from the same frame share its bytes."""
        after = (prev_sequence, ledger_epoch)
        if self._frame_after != after:
            self._frame = event_frame(self.event, prev_sequence, ledger_epoch, traceparent=self.traceparent)
            self._frame_after = after
        return self._frame

    def age_s(self) -> float:
        """How long ago it was committed, in seconds; 0 where the clocks of the machines are further apart than that."""
        committed = datetime.fromisoformat(self.document["recorded_at"])
        return max(0.0, (datetime.now(UTC) - committed).total_seconds())

    def closes(self, subscription_id: str) -> bool:
        """Whether it is the subscription_closed of that subscription."""
        return self.event_type == "subscription_closed" and (
            self.document.get("payload", {}).get("subscription_id") == subscription_id
        )
