"""Create and update: the versions that carry content."""

from __future__ import annotations

import msgspec

from pamspec_common.calls import Answer
from pamspec_common.errors import VersionConflict
from pamspec_common.instants import wire
from pamspec_write.documents.objects import Create, Update
from pamspec_write.model.making import TIME_FIELDS, Making, expected_head, extra_of, following, statements_of
from pamspec_write.model.states import check_changeable
from pamspec_write.model.versions import Draft

_COMPANION_EVENT = {"tool_invocation": "tool_invoked", "tool_result": "tool_completed"}
_BESIDES_PROVENANCE = (
    *TIME_FIELDS,
    "canonical_content",
    "schema_id",
    "integrity",
    "quality_signals",
    "relationship_refs",
)


def create(making: Making) -> Answer:
    """P104-P108: a first version, and object_created."""
    command = making.command
    request = command.request
    assert isinstance(request, Create)
    object_id = command.object_id or making.entropy.mint("obj")
    if object_id in making.state.heads:
        raise VersionConflict(
            "An object of that id exists already; update it, or create under another id.",
            details={"reason": "object_exists", "object_id": object_id},
        )
    scratch = "scratch" if request.object_type == "working_memory" else "active"
    making.state.rules.check_type(request.object_type)
    draft = Draft(
        object_id=object_id,
        kind="o",
        object_type=request.object_type,
        schema_id=request.schema_id,
        states={
            "lifecycle_state": request.lifecycle_state or scratch,
            "availability_state": request.availability_state,
            "retention_state": request.retention_state,
            "validation_state": request.validation_state,
        },
        times={name: wire(value) for name in TIME_FIELDS if (value := getattr(request, name)) is not None},
        content=command.content,
        projection=command.projection,
        provenance={},
        private=statements_of(command),
        extra=extra_of(command, {}),
        previous=None,
        actor=command.actor,
        operation_hash=command.operation_hash,
    )
    assert command.provenance is not None
    making.account(draft, command.provenance)
    made = making.version(draft)
    companion = _COMPANION_EVENT.get(request.object_type)
    return making.finish(made, "object_created", companion=companion, status=201)


def update(making: Making) -> Answer:
    """P112-P114: a new version after the expected one."""
    command = making.command
    request = command.request
    assert isinstance(request, Update)
    head = expected_head(making, request.expected_version_id, check_changeable)
    draft = following(head, making.command)
    provenance_only = all(getattr(request, name) in (None, msgspec.UNSET) for name in _BESIDES_PROVENANCE)
    if request.canonical_content is not msgspec.UNSET:
        draft.content, draft.projection = command.content, command.projection
    if request.schema_id is not None:
        draft.schema_id = request.schema_id
    for name in TIME_FIELDS:
        value = getattr(request, name)
        if value is not None:
            draft.times[name] = wire(value)
    assert command.provenance is not None
    making.account(draft, command.provenance)
    made = making.version(draft)
    event = "provenance_updated" if provenance_only else "object_updated"
    return making.finish(made, event)
