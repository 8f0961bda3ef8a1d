"""Admission of legal holds."""

from __future__ import annotations

from typing import Any

from pamspec_common.documents import STANDARD_TYPES, is_extension_type
from pamspec_common.errors import InvalidRequest
from pamspec_write.documents.holds import PlaceHold, ReleaseHold
from pamspec_write.model.commands import Command


def fill_place_hold(command: Command, request: PlaceHold, document: dict[str, Any]) -> None:
    """The type, where one is named, is one that an object can have."""
    held = request.object_type
    if held is not None and held not in STANDARD_TYPES and not is_extension_type(held):
        raise InvalidRequest(
            "object_type is neither a standard type nor a reverse-domain name or URI; leave it out for a hold over"
            " the whole scope.",
            details={"field": "object_type"},
        )


def fill_release_hold(command: Command, request: ReleaseHold, document: dict[str, Any]) -> None:
    """Only the scope's rules can tell whether the hold is in force."""
