"""Admission of a snapshot's sealing."""

from __future__ import annotations

from typing import Any

from pamspec_common.embedding_spaces import unknown_space
from pamspec_common.principal import Principal
from pamspec_write.documents.snapshots import SealSnapshot, check_seal
from pamspec_write.handlers.access import Access
from pamspec_write.model.commands import Command


def fill_seal(command: Command, request: SealSnapshot, document: dict[str, Any]) -> None:
    """What the snapshot is to hold; its members and its id are looked up under the scope's lock."""
    check_seal(request)


async def check_spaces(request: SealSnapshot, principal: Principal, access: Access) -> None:
    """Raise EmbeddingSpaceMismatch for a space that the tenant has not described; none is ever taken away again."""
    named = request.included_embedding_space_ids
    if named and await access.unknown_spaces(principal, named):
        raise unknown_space("included_embedding_space_ids")
