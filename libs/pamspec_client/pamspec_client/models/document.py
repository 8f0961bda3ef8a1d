"""Answers as typed documents.

Invariant: nothing that the service sends is lost. Every document keeps its bytes in `raw`; members that this version
does not know are in `extra`. Content is decoded on access, with integers of any size and floats as Python parses them;
`content_bytes` gives the JSON text itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pamspec_client.errors import ProtocolError

if TYPE_CHECKING:
    from pamspec_client.documents import (
        Actor,
        AvailabilityState,
        Channel,
        Integrity,
        LifecycleState,
        Provenance,
        QualitySignals,
        RetentionState,
        ValidationState,
    )
else:
    # Decoded as they come, so that members and words of a later version stay.
    Actor = Provenance = Integrity = QualitySignals = dict[str, Any]
    LifecycleState = AvailabilityState = RetentionState = ValidationState = Channel = str

__all__ = [
    "NOTHING",
    "Actor",
    "AvailabilityState",
    "Channel",
    "D",
    "Document",
    "Integrity",
    "LifecycleState",
    "Provenance",
    "QualitySignals",
    "RetentionState",
    "ValidationState",
]

D = TypeVar("D", bound="Document")

NOTHING = msgspec.Raw()
"""A member that did not come."""


class Document(msgspec.Struct, kw_only=True, dict=True):
    """A JSON object of the service."""

    @classmethod
    def of(cls: type[D], raw: bytes | msgspec.Raw) -> D:
        """The document in these bytes; ProtocolError when they hold no such document."""
        data = bytes(raw)
        try:
            found = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ProtocolError(f"no {cls.__name__} came: {error}") from None
        found.__dict__["raw"] = data
        return found

    @property
    def raw(self) -> bytes:
        """The document as it came; empty for one that was made here."""
        data: bytes = self.__dict__.get("raw", b"")
        return data

    @property
    def extra(self) -> dict[str, Any]:
        """The members that this version of the client does not know."""
        known = {field.encode_name for field in msgspec.structs.fields(self)}
        document = json.loads(self.raw or b"{}")
        return {name: value for name, value in document.items() if name not in known}
