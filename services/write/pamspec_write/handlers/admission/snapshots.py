"""Admission of a snapshot's sealing."""

from __future__ import annotations

from typing import Any

from pamspec_write.documents.snapshots import SealSnapshot, check_seal
from pamspec_write.model.commands import Command


def fill_seal(command: Command, request: SealSnapshot, document: dict[str, Any]) -> None:
    """What the snapshot is to hold; its members and its id are looked up under the scope's lock."""
    check_seal(request)
