"""Admission of promote: the source is working memory of the scope, the target an object of another type."""

from __future__ import annotations

from typing import Any

from pamspec_common.errors import InvalidRequest
from pamspec_write.documents.objects import check_object_type, check_schema_id
from pamspec_write.documents.promotion import Promote
from pamspec_write.handlers.admission.parts import set_content
from pamspec_write.model.commands import Command


def fill_promote(command: Command, request: Promote, document: dict[str, Any]) -> None:
    """The command is about the source; the target is a first version."""
    command.object_id = request.source_object_id
    check_schema_id(request.target_schema_id, "target_schema_id")
    check_object_type(request.target_object_type, request.target_schema_id, "target_")
    if request.target_object_type == "working_memory":
        raise InvalidRequest(
            "Working memory is promoted to another type; update it to change it.",
            details={"field": "target_object_type"},
        )
    value = document["target_canonical_content"]
    set_content(command, request.target_canonical_content, value, "target_canonical_content")
    if request.target_object_id is not None:
        command.others = ((command.scope, request.target_object_id),)
