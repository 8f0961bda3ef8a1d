"""Admission of relate: a new relationship says what it joins, a change says which version it follows."""

from __future__ import annotations

from typing import Any

import msgspec

from pamspec_common.errors import InvalidObject, InvalidRequest, PolicyDenied
from pamspec_write.documents.decoding import decode, plain
from pamspec_write.documents.parts import Integrity
from pamspec_write.documents.relationships import Relate, check_label
from pamspec_write.model.commands import Command
from pamspec_write.model.facts import edge_key

_NEEDED = ("source_object_id", "target_object_id", "relationship_type", "directionality")
_STATES = ("lifecycle_state", "availability_state", "retention_state", "validation_state")


def fill_relate(command: Command, request: Relate, document: dict[str, Any]) -> None:
    """A relationship, new or known; a target_scope_id that is the scope itself says nothing (P75)."""
    command.object_id, command.kind = request.relationship_id, "r"
    if request.target_scope_id == request.scope_id:
        request.target_scope_id = None
    if request.relationship_type is not None:
        check_label(request.relationship_type)
    if request.integrity is not msgspec.UNSET:
        command.integrity = plain(decode(Integrity, request.integrity, InvalidObject, "integrity"))
    if request.expected_version_id is None:
        _fill_new(command, request)
    else:
        _check_change(request)


def _fill_new(command: Command, request: Relate) -> None:
    for name in _NEEDED:
        if getattr(request, name) is None:
            raise InvalidRequest(
                f"A new relationship needs {name}; to change a known one send relationship_id and expected_version_id.",
                details={"field": name},
            )
    for name, only in (("availability_state", "available"), ("retention_state", "retained")):
        if getattr(request, name) not in (None, only):
            raise InvalidRequest(
                f"A new relationship's {name} is {only}; transition it afterwards.", details={"field": name}
            )
    source, target, label = request.source_object_id, request.target_object_id, request.relationship_type
    assert source is not None
    assert target is not None
    assert label is not None
    far = command.scope if command.target_scope is None else command.target_scope
    if request.target_scope_id is not None and request.policy_basis is None:
        raise PolicyDenied(
            "A relationship into another scope needs a policy_basis; say under which rule it is made.",
            details={"field": "policy_basis"},
        )
    if command.content is None:
        command.content = b"null"
    command.others = ((command.scope, source), (far, target))
    command.edge = edge_key(source, target, label, request.target_scope_id)


def _check_change(request: Relate) -> None:
    if request.relationship_id is None:
        raise InvalidRequest(
            "expected_version_id is a version of a relationship; send its relationship_id too.",
            details={"field": "relationship_id"},
        )
    for name in _STATES:
        if getattr(request, name) is not None:
            raise InvalidRequest(
                f"{name} of a known relationship changes by transition; leave it out.", details={"field": name}
            )
