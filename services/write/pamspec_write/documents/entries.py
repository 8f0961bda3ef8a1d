"""The request for an entry that tells of no version."""

from __future__ import annotations

from typing import Any, Literal

from pamspec_common import contracts
from pamspec_common.errors import InvalidRequest
from pamspec_common.ids import Id
from pamspec_write.documents.parts import Common

RecordedType = Literal[
    "embedding_generated", "index_rebuilt", "access_denied", "subscription_opened", "subscription_closed"
]


class RecordEvent(Common, kw_only=True):
    event_type: RecordedType
    payload: dict[str, Any]
    object_id: Id | None = None
    version_id: Id | None = None


def check_event(event: RecordEvent) -> None:
    """Raise InvalidRequest unless the event keeps its type's contract: its ids, and a payload without floats."""
    given = {name: value for name in ("object_id", "version_id") if (value := getattr(event, name)) is not None}
    broken = contracts.events()[event.event_type].broken_presence(given)
    try:
        contracts.check(f"event-payload#/$defs/{event.event_type}", event.payload)
    except contracts.ContractViolation as violation:
        broken = str(violation)
    if any(isinstance(value, float) for value in event.payload.values()):
        broken = "a payload holds integers only"
    if broken is not None:
        raise InvalidRequest(f"{event.event_type}: {broken}.", details={"field": "payload"})
