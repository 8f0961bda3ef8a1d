"""Promote: a new object of working memory, which it supersedes, in one commit (PAMSPEC P137-P141, S1-S3).

Invariant: all three versions are composed before the first of them is added, so a refusal leaves nothing behind.
"""

from __future__ import annotations

from msgspec import structs

from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest
from pamspec_common.strict_json import dumps
from pamspec_write.documents.parts import Provenance
from pamspec_write.documents.promotion import Promote
from pamspec_write.model.facts import Document, Ends, Head
from pamspec_write.model.making import Making, carried_provenance, expected_head, following
from pamspec_write.model.objects import first_version
from pamspec_write.model.records import positions, promotion_answer
from pamspec_write.model.relationships import first_edge
from pamspec_write.model.states import check_changeable, check_promotable
from pamspec_write.model.versions import Draft, Made, add_version, compose, version_facts

_ACTIVITY = "promote"
_LABEL = "derived_from"
_NO_RECORD = bytes(16)
"""The operation's record answers with the new object alone; nobody's erasure else is the record's affair."""


def promote(making: Making) -> Answer:
    """The new object, the superseded source, the relationship between them, and the event that links all three."""
    state, request = making.state, making.command.request
    assert isinstance(request, Promote)
    source = _source(making, request)
    target = _target(making, request, source)
    relation = _relation(making, target, source)
    making.check(target)
    drafts = (target, _superseded(making, source), relation)
    for draft in drafts:
        making.permit(draft, "promote")
    making.check_room(drafts)
    new, old, edge = (
        compose(state, draft, making.now, making.entropy, ahead) for ahead, draft in enumerate(drafts, start=1)
    )
    moved = {"dimension": "lifecycle", "from": source.lifecycle_state, "to": "superseded"}
    event_ids = [
        _add(making, new, "object_created"),
        _add(making, old, "lifecycle_transitioned", moved),
        _add(making, edge, "relationship_created"),
        making.tell(
            old.head, "working_memory_promoted", version_facts(old.head, old.digest) | _link(new, edge, source)
        ),
    ]
    making.exercise(new.head)
    beside = dumps(
        {
            "event_ids": event_ids,
            "relationship_id": edge.head.object_id,
            "source": {"version_id": old.head.version_id, "sequence": old.head.version_seq},
        }
    )
    body = promotion_answer(making.answer_body(new, event_ids[0]), beside)
    answer = Answer(201, body, positions(state, state.last_seq))
    making.remember(answer, ledger_seq=new.head.ledger_seq, event_id=event_ids[0], beside=beside)
    return answer


def _source(making: Making, request: Promote) -> Head:
    """The working memory that is promoted; what forbids it is told before what the target lacks."""
    head = expected_head(making, request.expected_version_id, check_changeable)
    if head.object_type != "working_memory":
        raise InvalidRequest(
            "Only working memory is promoted; source_object_id names an object of another type.",
            details={"field": "source_object_id"},
        )
    check_promotable(head.lifecycle_state)
    return head


def _target(making: Making, request: Promote, source: Head) -> Draft:
    provenance = making.command.provenance
    assert provenance is not None
    draft = first_version(
        making,
        object_id=request.target_object_id,
        object_type=request.target_object_type,
        schema_id=request.target_schema_id,
        lifecycle=request.target_lifecycle_state,
        validation=request.target_validation_state,
    )
    making.account(draft, structs.replace(provenance, transformation_parent=source.version_id))
    return draft


def _superseded(making: Making, source: Head) -> Draft:
    """S1: the edge to superseded is the promotion's own, and its basis."""
    draft = following(source, making.command)
    draft.states["lifecycle_state"] = "superseded"
    draft.operation_hash = _NO_RECORD
    making.account(draft, carried_provenance(source, _ACTIVITY), _ACTIVITY)
    return draft


def _relation(making: Making, target: Draft, source: Head) -> Draft:
    """S2: directed, from the new object to the working memory."""
    draft = first_edge(
        making,
        relationship_id=making.entropy.mint("rel"),
        label=_LABEL,
        ends=Ends(target.object_id, source.object_id, None, "directed"),
    )
    draft.content, draft.operation_hash = b"null", _NO_RECORD
    making.account(draft, Provenance(activity=_ACTIVITY, transformation_parent=source.version_id))
    return draft


def _add(making: Making, made: Made, event_type: str, facts: Document | None = None) -> str:
    """Add a version and its event; the event's id."""
    add_version(making.state, making.rows, made)
    return making.tell(made.head, event_type, version_facts(made.head, made.digest) | (facts or {}))


def _link(new: Made, edge: Made, source: Head) -> Document:
    return {
        "source_version_id": source.version_id,
        "target_object_id": new.head.object_id,
        "target_version_id": new.head.version_id,
        "target_object_type": new.head.object_type,
        "relationship_id": edge.head.object_id,
    }
