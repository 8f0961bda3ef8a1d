"""Admission of redact and delete."""

from __future__ import annotations

from typing import Any

from pamspec_common.errors import InvalidRequest
from pamspec_write.documents.erasures import Delete, Redact, RedactionTarget
from pamspec_write.handlers.admission.states import set_subject
from pamspec_write.model.commands import Command
from pamspec_write.model.pointers import Pointer, pointer


def fill_delete(command: Command, request: Delete, document: dict[str, Any]) -> None:
    """One object or relationship."""
    set_subject(command, request)


def fill_redact(command: Command, request: Redact, document: dict[str, Any]) -> None:
    """One object or relationship, what goes of its content, and the versions that go whole."""
    set_subject(command, request)
    command.pointers = _pointers(request.redaction_target)
    command.past = tuple(request.version_ids or ())


def _pointers(target: RedactionTarget) -> list[Pointer] | None:
    """The parts of the content that go; None for all of it."""
    if (target.whole is None) == (target.paths is None) or target.whole is False:
        raise InvalidRequest(
            'redaction_target is {"whole": true}, or {"paths": [JSON Pointers into the content]}.',
            details={"field": "redaction_target"},
        )
    if target.paths is None:
        return None
    found: list[Pointer] = []
    for index, text in enumerate(target.paths):
        names = pointer(text)
        if names is None:
            raise InvalidRequest(
                f"redaction_target.paths[{index}] is no JSON Pointer to a part of the content: it begins with / and"
                ' writes ~ as ~0 and / as ~1. For all of the content send {"whole": true}.',
                details={"field": "redaction_target.paths", "index": index},
            )
        found.append(names)
    return found
