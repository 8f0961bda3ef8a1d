"""Create and update: the versions that carry content."""

from __future__ import annotations

import msgspec
from msgspec import structs

from pamspec_common.calls import Answer
from pamspec_common.errors import ObjectNotFound, ObjectRedacted, VersionConflict
from pamspec_common.instants import wire
from pamspec_write.documents.objects import Create, Update
from pamspec_write.model.facts import Head
from pamspec_write.model.making import TIME_FIELDS, Making, expected_head, extra_of, following, statements_of
from pamspec_write.model.projection import carried_projection
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
    "restore_version_id",
)


def create(making: Making) -> Answer:
    """P104-P108: a first version, and object_created."""
    command = making.command
    request = command.request
    assert isinstance(request, Create)
    scratch = "scratch" if request.object_type == "working_memory" else "active"
    draft = first_version(
        making,
        object_id=command.object_id,
        object_type=request.object_type,
        schema_id=request.schema_id,
        lifecycle=request.lifecycle_state or scratch,
        validation=request.validation_state,
    )
    draft.times = {name: wire(value) for name in TIME_FIELDS if (value := getattr(request, name)) is not None}
    draft.extra = extra_of(command, {})
    assert command.provenance is not None
    making.account(draft, command.provenance)
    made = making.version(draft)
    companion = _COMPANION_EVENT.get(request.object_type)
    return making.finish(made, "object_created", companion=companion, status=201)


def first_version(
    making: Making, *, object_id: str | None, object_type: str, schema_id: str | None, lifecycle: str, validation: str
) -> Draft:
    """The draft of a new object with the command's content; the id is minted where it is None.

    VersionConflict when that id exists, UnsupportedObjectType where the scope takes no such type.
    """
    command, state = making.command, making.state
    object_id = object_id or making.entropy.mint("obj")
    if object_id in state.heads or object_id in state.others:
        raise VersionConflict(
            "An object of that id exists already; update it, or create under another id.",
            details={"reason": "object_exists", "object_id": object_id},
        )
    state.rules.check_type(object_type)
    return Draft(
        object_id=object_id,
        kind="o",
        object_type=object_type,
        schema_id=schema_id,
        states={
            "lifecycle_state": lifecycle,
            "availability_state": "available",
            "retention_state": "retained",
            "validation_state": validation,
        },
        times={},
        content=command.content,
        projection=command.projection,
        provenance={},
        private=statements_of(command),
        extra={},
        previous=None,
        actor=command.actor,
        operation_hash=command.operation_hash,
    )


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
    if command.restored is not None:
        _restore(making, draft, head)
    if request.schema_id is not None:
        draft.schema_id = request.schema_id
    for name in TIME_FIELDS:
        value = getattr(request, name)
        if value is not None:
            draft.times[name] = wire(value)
    assert command.provenance is not None
    provenance = command.provenance
    if command.restored is not None and provenance.transformation_parent is None:
        provenance = structs.replace(provenance, transformation_parent=command.restored)
    making.account(draft, provenance)
    made = making.version(draft)
    event = "provenance_updated" if provenance_only else "object_updated"
    return making.finish(made, event)


def _restore(making: Making, draft: Draft, head: Head) -> None:
    """Take content and schema_id of a past version of the object.

    ObjectNotFound for a version of anything else, ObjectRedacted where its content was erased, or would bring back what
    a redaction took from the current one.
    """
    restored = making.command.restored
    if restored == head.version_id:
        return
    old = making.state.old.get(restored or "")
    if old is None or old.object_id != head.object_id:
        raise ObjectNotFound(
            "restore_version_id is no version of this object; take it from its history.",
            details={"field": "restore_version_id"},
        )
    if old.content is None:
        raise ObjectRedacted(
            "The content of that version was erased; restore another one.", details={"field": "restore_version_id"}
        )
    if head.availability_state == "partially_redacted" and old.availability_state != head.availability_state:
        raise ObjectRedacted(
            "That version holds what a redaction took from the current one; transition availability to available with"
            " the content that may come back.",
            details={"field": "restore_version_id"},
        )
    draft.content, draft.projection, draft.schema_id = old.content, carried_projection(old.content), old.schema_id
