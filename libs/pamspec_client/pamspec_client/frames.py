"""What a channel carries, one JSON document per frame, whichever channel it is."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import msgspec

from pamspec_client.errors import ProtocolError
from pamspec_client.models import NOTHING, Closed, Envelope, Event


@dataclass(frozen=True)
class Position:
    """A place in a scope's ledger; the sequence counts within its epoch."""

    ledger_epoch: int
    sequence: int


class Ended(msgspec.Struct, kw_only=True):
    """The end of a channel; the subscription stays."""

    reason: str
    last_sequence: int


class Frame(msgspec.Struct, kw_only=True, dict=True):
    """An event, progress, the end of the channel, or the close of the subscription: exactly one of the four."""

    ledger_epoch: int = 1
    event: msgspec.Raw = NOTHING
    envelope: msgspec.Raw = NOTHING
    prev_sequence: int | None = None
    traceparent: str | None = None
    progress: int | None = None
    ended: Ended | None = None
    closed: Closed | None = None

    @cached_property
    def decoded(self) -> Event | None:
        """The event with its envelope, or None for another kind of frame."""
        if not bytes(self.event):
            return None
        event = Event.of(self.event).with_envelope(Envelope.of(self.envelope) if bytes(self.envelope) else None)
        return event.with_traceparent(self.traceparent)


_decoder = msgspec.json.Decoder(Frame)


def decode(data: bytes | str) -> Frame:
    """A frame from its JSON text; ProtocolError when it is none."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"no frame came: {error}") from None


class Lost(Exception):
    """Frames are missing, or the connection is: go on from the cursor over a new one."""


class Source(Protocol):
    """One way to the frames of a subscription."""

    def frames(self, after: Position) -> AsyncGenerator[Frame, None]:
        """Frames after a position over one connection, until it ends; raises Lost or a transport error."""
