"""Admission of transition."""

from __future__ import annotations

from typing import Any

import msgspec

from pamspec_common.errors import InvalidRequest
from pamspec_write.documents.erasures import Delete, Redact
from pamspec_write.documents.states import Transition
from pamspec_write.model.commands import Command
from pamspec_write.model.states import ALL_STATES, DIMENSIONS, EDGES


def fill_transition(command: Command, request: Transition, document: dict[str, Any]) -> None:
    """A dimension and a state of it, of one object or relationship."""
    set_subject(command, request)
    _check_transition(request)


def set_subject(command: Command, request: Transition | Redact | Delete) -> None:
    """The object or relationship that the request is about; InvalidRequest unless exactly one is named."""
    if (request.object_id is None) == (request.relationship_id is None):
        raise InvalidRequest("Send exactly one of object_id and relationship_id.", details={"field": "object_id"})
    command.object_id = request.object_id or request.relationship_id
    command.kind = "o" if request.object_id is not None else "r"


def _check_transition(request: Transition) -> None:
    """A state of another dimension is a refused edge; a word that is no state at all is a malformed request."""
    if request.dimension not in DIMENSIONS:
        raise InvalidRequest(
            "dimension must be lifecycle, availability, retention or validation.", details={"field": "dimension"}
        )
    if request.target_state not in ALL_STATES:
        raise InvalidRequest(
            "target_state is no state of any dimension.",
            details={"field": "target_state", "states": sorted(EDGES[request.dimension])},
        )
    restores = (request.dimension, request.target_state) == ("availability", "available")
    if request.canonical_content is not msgspec.UNSET and not restores:
        raise InvalidRequest(
            "Only a transition back to available takes content; send an update for the content.",
            details={"field": "canonical_content"},
        )
