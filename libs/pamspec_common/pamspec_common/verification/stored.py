"""The stored documents that a verification looks into, as far as it does; msgspec.DecodeError for anything else."""

from __future__ import annotations

from datetime import datetime

import msgspec


class ErasedRange(msgspec.Struct):
    """Versions of an object that lost what can be erased, both ends included."""

    from_sequence: int
    to_sequence: int


class Payload(msgspec.Struct):
    """What a verification needs of an event's payload."""

    version_digest: str | None = None
    erased: list[ErasedRange] = []


class Event(msgspec.Struct):
    """What a verification needs of an event."""

    payload: Payload
    recorded_at: datetime
    event_id: str = ""
    event_type: str = ""
    scope_id: str = ""
    sequence: int = 0
    object_id: str | None = None
    relationship_id: str | None = None
    version_id: str | None = None


class Metadata(msgspec.Struct):
    """What a verification needs of a version's metadata."""

    version_id: str = ""
    sequence: int = 0
    object_id: str | None = None
    relationship_id: str | None = None
    delegation_id: str | None = None
    object_type: str | None = None
    relationship_type: str | None = None
    lifecycle_state: str | None = None
    availability_state: str | None = None
    retention_state: str | None = None
    validation_state: str | None = None
    content_digest: str | None = None
    private_digest: str | None = None


decode_event = msgspec.json.Decoder(Event).decode
decode_metadata = msgspec.json.Decoder(Metadata).decode
