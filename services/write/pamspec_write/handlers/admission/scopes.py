"""Admission of another policy for a scope."""

from __future__ import annotations

from typing import Any

from pamspec_common.scope_policy import parse_policy
from pamspec_common.strict_json import canonical
from pamspec_write.documents.scopes import UpdateScope
from pamspec_write.model.commands import Command


def fill_update_scope(command: Command, request: UpdateScope, document: dict[str, Any]) -> None:
    """A policy that keeps its contract; it travels as the command's content."""
    parse_policy(request.policy)
    command.content = canonical(request.policy)
