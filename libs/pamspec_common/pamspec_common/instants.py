"""Instants: RFC 3339 in UTC with microseconds and `Z`, the only form that leaves the service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""A msgspec type for a time that a client sends: RFC 3339 with an offset; leap seconds are refused."""

MICROSECOND = timedelta(microseconds=1)


def wire(instant: datetime) -> str:
    """An aware datetime as `2026-01-01T00:00:00.000000Z`."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z"


def parse(text: str) -> datetime:
    """The UTC datetime of an RFC 3339 text; ValueError when it has no offset, is no time or leaves years 1 to 9999."""
    try:
        return msgspec.convert(text, Instant).astimezone(UTC)
    except (msgspec.ValidationError, OverflowError) as error:
        raise ValueError(f"not an RFC 3339 time with an offset: {error}") from None
