"""Admission of entries that tell of no version."""

from __future__ import annotations

from typing import Any

from pamspec_write.documents.entries import RecordEvent, check_event
from pamspec_write.model.commands import Command


def fill_entry(command: Command, request: RecordEvent, document: dict[str, Any]) -> None:
    """The event keeps its type's contract."""
    check_event(request)
