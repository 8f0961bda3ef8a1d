"""Relate: the versions of relationships (PAMSPEC P71-P78, P118-P119).

Invariant: what a relationship joins, and how that is called, never changes; two active ones of a type never join the
same objects. Neither end gets a version.
"""

from __future__ import annotations

import msgspec
from msgspec import structs

from pamspec_common.authorization.rights import Rights
from pamspec_common.calls import Answer
from pamspec_common.errors import (
    InvalidRequest,
    ObjectDeleted,
    ObjectNotFound,
    PolicyDenied,
    RelationshipConflict,
    VersionConflict,
)
from pamspec_common.instants import wire
from pamspec_write.documents.relationships import Relate
from pamspec_write.model.facts import Ends, Head, ScopeState, edge_key
from pamspec_write.model.making import TIME_FIELDS, Making, expected_head, following, statements_of
from pamspec_write.model.permission import sees
from pamspec_write.model.states import check_changeable
from pamspec_write.model.versions import Draft


def relate(making: Making) -> Answer:
    """A new relationship, or the next version of a known one."""
    request = making.command.request
    assert isinstance(request, Relate)
    return _create(making, request) if request.expected_version_id is None else _update(making, request)


def _create(making: Making, request: Relate) -> Answer:
    command, state = making.command, making.state
    (near, source), (far, target) = command.others
    label = request.relationship_type
    assert label is not None
    assert request.directionality is not None
    assert command.provenance is not None
    if far is not near:
        check_crossing(state, making.states[far.scope_key], label)
    check_end(making, state, command.rights, source, "source_object_id")
    check_end(making, making.states[far.scope_key], command.far_rights or command.rights, target, "target_object_id")
    relationship_id = command.object_id or making.entropy.mint("rel")
    if relationship_id in state.heads:
        raise VersionConflict(
            "Something of that id exists already; update it, or relate under another id.",
            details={"reason": "object_exists", "relationship_id": relationship_id},
        )
    ends = Ends(source, target, request.target_scope_id, request.directionality)
    draft = first_edge(making, relationship_id=relationship_id, label=label, ends=ends)
    draft.states["lifecycle_state"] = request.lifecycle_state or "active"
    draft.states["validation_state"] = request.validation_state or "unverified"
    draft.times = {name: wire(value) for name in TIME_FIELDS if (value := getattr(request, name)) is not None}
    draft.content, draft.projection = command.content, command.projection
    if draft.states["lifecycle_state"] == "active":
        check_free(state, draft.ends, label)
    if request.policy_basis is not None:
        draft.private["policy_basis"] = request.policy_basis
    making.account(draft, command.provenance)
    return making.finish(making.version(draft), "relationship_created", status=201)


def _update(making: Making, request: Relate) -> Answer:
    """P72: the next version of the relationship alone."""
    command = making.command
    assert request.expected_version_id is not None
    assert command.provenance is not None
    head = expected_head(making, request.expected_version_id, check_changeable)
    _check_same(head, request)
    draft = following(head, command)
    assert draft.ends is not None
    if draft.ends.target_scope_id is not None:
        check_leaving(making.state, draft.ends.target_scope_id, head.object_type)
    if request.directionality is not None:
        draft.ends = structs.replace(draft.ends, directionality=request.directionality)
    if request.canonical_content is not msgspec.UNSET:
        draft.content, draft.projection = command.content, command.projection
    if request.policy_basis is not None:
        draft.private["policy_basis"] = request.policy_basis
    for name in TIME_FIELDS:
        value = getattr(request, name)
        if value is not None:
            draft.times[name] = wire(value)
    making.account(draft, command.provenance)
    return making.finish(making.version(draft), "relationship_updated")


def first_edge(making: Making, *, relationship_id: str, label: str, ends: Ends) -> Draft:
    """The draft of a new relationship, active and without content."""
    return Draft(
        object_id=relationship_id,
        kind="r",
        object_type=label,
        schema_id=None,
        states={
            "lifecycle_state": "active",
            "availability_state": "available",
            "retention_state": "retained",
            "validation_state": "unverified",
        },
        times={},
        content=None,
        projection=None,
        provenance={},
        private=statements_of(making.command),
        extra={},
        previous=None,
        actor=making.command.actor,
        operation_hash=making.command.operation_hash,
        ends=ends,
    )


def check_end(making: Making, state: ScopeState, rights: Rights | None, object_id: str, field: str) -> None:
    """Raise ObjectNotFound unless the actor sees an object of that id there, ObjectDeleted for its tombstone."""
    head = state.heads.get(object_id)
    found = state.others.get(object_id) if head is None else (head.kind, head.memory())
    covered = found is not None and (state is not making.state or making.covers(found[0], found[1]["object_type"]))
    if found is None or found[0] != "o" or not covered or not sees(rights, found[1]):
        raise ObjectNotFound(
            f"No such object is visible to this actor in that scope; check {field}.", details={"field": field}
        )
    if found[1]["availability_state"] == "deleted":
        raise ObjectDeleted(f"{field} names a deleted object; relate one that is there.", details={"field": field})


def check_free(state: ScopeState, ends: Ends | None, label: str) -> None:
    """Raise RelationshipConflict when an active relationship of that type joins the same objects."""
    if ends is None:
        return
    rival = state.edges.get(edge_key(ends.source, ends.target, label, ends.target_scope_id))
    if rival is not None:
        raise RelationshipConflict(details={"relationship_id": rival})


def check_crossing(state: ScopeState, far: ScopeState, label: str) -> None:
    """Raise PolicyDenied unless both scopes' policies let that type lead from one to the other (P13, P74-P75, P224)."""
    check_leaving(state, far.ref.scope_id, label)
    if not far.policy.accepts_from(state.ref.scope_id, label):
        raise PolicyDenied(
            "The other scope's policy takes no such relationship from here; its cross_scope.accept_from would have to"
            " name this scope."
        )


def check_leaving(state: ScopeState, target_scope_id: str, label: str) -> None:
    """Raise PolicyDenied unless the scope's policy lets that type lead from here to the other."""
    if not state.policy.relates_to(target_scope_id, label):
        raise PolicyDenied(
            "This scope's policy lets no such relationship lead there; its cross_scope.relate_to would have to name"
            " the other scope.",
            policy_rule_id=state.rules.rule("cross_scope/relate_to"),
        )


def _check_same(head: Head, request: Relate) -> None:
    """Raise InvalidRequest for other ends than those that the relationship has."""
    ends = head.ends
    assert ends is not None
    for name, value in (
        ("source_object_id", ends.source),
        ("target_object_id", ends.target),
        ("target_scope_id", ends.target_scope_id),
        ("relationship_type", head.object_type),
    ):
        sent = getattr(request, name)
        if sent is not None and sent != value:
            raise InvalidRequest(
                f"A relationship keeps its {name}; relate anew and archive this one.", details={"field": name}
            )
