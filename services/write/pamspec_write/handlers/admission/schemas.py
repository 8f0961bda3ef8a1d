"""Admission of a schema, and the check of content before its scope is locked."""

from __future__ import annotations

from typing import Any

from pamspec_write.documents.objects import Create, check_schema_id
from pamspec_write.documents.schemas import RegisterSchema
from pamspec_write.model.commands import Command
from pamspec_write.model.conformity import breach_of
from pamspec_write.model.content import checked_schema, standard_schema, stored_schema


def fill_register_schema(command: Command, request: RegisterSchema, document: dict[str, Any]) -> None:
    """A schema that can be used here; it travels as the command's content."""
    check_schema_id(request.schema_id)
    command.content = checked_schema(request.schema_id, document["schema"])
    command.schema = stored_schema(request.schema_id, command.content)


def check_early(command: Command, request: Create) -> None:
    """Hold the content of a create against the schema of its type; the outcome is used when it is decided.

    A repetition is answered from its record, whatever the rules say by now, so nothing is refused here.
    """
    schema = standard_schema(request.object_type)
    if schema is not None and command.content is not None:
        breach_of(command, schema, command.content)
