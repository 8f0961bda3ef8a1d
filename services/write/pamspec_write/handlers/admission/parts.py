"""The parts of a command that several operations have: the client's account of it, and content."""

from __future__ import annotations

from typing import Any

import msgspec

from pamspec_common import strict_json
from pamspec_common.errors import AccessDenied, InvalidRequest
from pamspec_write.documents.parts import MAX_CONTENT, Provenance
from pamspec_write.model.commands import Command
from pamspec_write.model.projection import projection


def set_provenance(command: Command, provenance: Provenance) -> None:
    """Take the client's account; an actor in it that is not the operation's falls under S9."""
    if provenance.actor is not None and provenance.actor.actor_id != command.actor.actor_id:
        raise AccessDenied(
            "provenance.actor is not the actor of the operation; leave it out, or act as that actor.",
            details={"field": "provenance.actor"},
        )
    command.provenance = provenance


def set_content(command: Command, raw: msgspec.Raw, value: Any, field: str = "canonical_content") -> None:
    """Take content: compacted, numbers as written; InvalidRequest beyond the limit of S20."""
    content = strict_json.compact(raw)
    if len(content) > MAX_CONTENT:
        raise InvalidRequest(
            f"{field} is larger than {MAX_CONTENT} bytes; store it outside and refer to it.",
            details={"limit": MAX_CONTENT, "size": len(content), "field": field},
            status=413,
        )
    command.content = content
    command.projection = projection(content, value)
