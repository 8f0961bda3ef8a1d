"""Admission of create and update."""

from __future__ import annotations

from typing import Any

import msgspec

from pamspec_common import strict_json
from pamspec_common.errors import InvalidObject, InvalidRequest
from pamspec_write.documents.decoding import decode, plain
from pamspec_write.documents.objects import Create, Update, check_object_type, check_schema_id
from pamspec_write.documents.parts import Integrity, QualitySignals, SourceEvent
from pamspec_write.handlers.admission.schemas import check_early
from pamspec_write.model.commands import Command, source_hash


def fill_create(command: Command, request: Create, document: dict[str, Any]) -> None:
    """A first version: its type and first states are those that a create may have."""
    _fill(command, request, document)
    check_object_type(request.object_type, request.schema_id)
    _check_first_states(request)
    check_early(command, request)


def fill_update(command: Command, request: Update, document: dict[str, Any]) -> None:
    """A version after another."""
    _fill(command, request, document)
    if request.restore_version_id is not None and request.canonical_content is not msgspec.UNSET:
        raise InvalidRequest(
            "The request brings content and names a version to take it from; send canonical_content or"
            " restore_version_id.",
            details={"field": "restore_version_id"},
        )
    command.restored = request.restore_version_id


def _fill(command: Command, request: Create | Update, document: dict[str, Any]) -> None:
    command.object_id = request.object_id
    if request.quality_signals is not msgspec.UNSET:
        command.quality_signals = plain(
            decode(QualitySignals, request.quality_signals, InvalidObject, "quality_signals")
        )
    if request.integrity is not msgspec.UNSET:
        command.integrity = plain(decode(Integrity, request.integrity, InvalidObject, "integrity"))
    check_schema_id(request.schema_id)
    if request.source_event is not None:
        _bind_source(command, request.source_event, document)


def _check_first_states(request: Create) -> None:
    for name, only in (("availability_state", "available"), ("retention_state", "retained")):
        if getattr(request, name) != only:
            raise InvalidRequest(f"A new object's {name} is {only}; transition it afterwards.", details={"field": name})


def _bind_source(command: Command, source: SourceEvent, document: dict[str, Any]) -> None:
    """K6: (source, id) binds the payload: the operation, what it is about, and the content."""
    about = ("object_id", "object_type", "schema_id", "canonical_content", "restore_version_id")
    bound = {name: document[name] for name in about if name in document}
    command.source_hash = source_hash(source.source, source.id)
    command.source_payload = command.operation.encode() + b"\x00" + strict_json.canonical(bound)
