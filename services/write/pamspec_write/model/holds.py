"""Legal holds: placing and releasing them, what they forbid, and the job's steps (S12, S22, decisions 18).

Invariant: from the decision that places a hold to the one that releases it, nothing that it covers is deleted, redacted
or moved towards removal, whatever the retention_state of the object says at that moment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest, LegalHold, ObjectNotFound
from pamspec_common.strict_json import dumps
from pamspec_write.documents.holds import HoldObject, PlaceHold, ReleaseHold
from pamspec_write.model.facts import Document, Head
from pamspec_write.model.making import Making, carried_provenance, following
from pamspec_write.model.records import positions
from pamspec_write.model.rows import HeldRow, HoldRow, ReleaseRow
from pamspec_write.model.rules import Hold, ScopeRules

MAX_HOLDS = 1000
HELD: Literal["legal_hold"] = "legal_hold"
_TOWARDS_REMOVAL = frozenset({"expired", "pending_deletion"})


def check_unheld(rules: ScopeRules, head: Head) -> None:
    """Raise LegalHold where a hold over its type or scope covers an object that is to be erased."""
    hold = rules.hold_over(head.kind, head.object_type)
    if hold is not None:
        raise _refusal(hold)


def check_retention(rules: ScopeRules, head: Head, target: str) -> None:
    """Raise LegalHold where a covering hold forbids a retention edge: out of legal_hold, or towards removal."""
    if head.retention_state != HELD and target not in _TOWARDS_REMOVAL:
        return
    check_unheld(rules, head)


def _refusal(hold: Hold) -> LegalHold:
    what = "the scope" if hold.object_type is None else "its type"
    return LegalHold(
        f"A legal hold over {what} covers the object; it must be released before anything is removed.",
        details={"hold_id": hold.hold_id},
    )


def place_hold(making: Making) -> Answer:
    """A hold over a type or over the whole scope; it bites in every decision after this one."""
    command, state = making.command, making.state
    request = command.request
    assert isinstance(request, PlaceHold)
    rules = state.rules
    if len(rules.holds) >= MAX_HOLDS:
        raise InvalidRequest(
            f"A scope has at most {MAX_HOLDS} holds in force; release some, or place one over the whole scope.",
            details={"limit": MAX_HOLDS},
        )
    hold = Hold(making.entropy.mint("hold"), request.object_type)
    making.change_rules(
        replace(rules, version=rules.version + 1, holds=(*rules.holds, hold)), request.policy_basis, hold.hold_id
    )
    making.rows.holds.append(
        HoldRow(
            scope_key=state.ref.scope_key,
            hold_id=hold.hold_id,
            object_type=hold.object_type,
            policy_basis=request.policy_basis,
            actor_id=command.actor.actor_id,
            authenticated_as=command.authenticated_as,
            operation_id=command.operation_id,
            placed_at=making.now,
            placed_seq=state.last_seq,
        )
    )
    about = {} if hold.object_type is None else {"object_type": hold.object_type}
    return _answer(making, {"hold_id": hold.hold_id, "placed_at": making.now, **about})


def release_hold(making: Making) -> Answer:
    """The end of a hold; what its job had put on hold is let go object by object."""
    command, state = making.command, making.state
    request = command.request
    assert isinstance(request, ReleaseHold)
    rules = state.rules
    left = tuple(hold for hold in rules.holds if hold.hold_id != request.hold_id)
    if len(left) == len(rules.holds):
        raise ObjectNotFound(
            "No hold of that id is in force here; list the scope's holds.", details={"field": "hold_id"}
        )
    making.change_rules(replace(rules, version=rules.version + 1, holds=left), request.policy_basis, request.hold_id)
    making.rows.releases.append(
        ReleaseRow(
            scope_key=state.ref.scope_key,
            hold_id=request.hold_id,
            released_at=making.now,
            release_basis=request.policy_basis,
            released_by=command.actor.actor_id,
            release_operation_id=command.operation_id,
        )
    )
    return _answer(making, {"hold_id": request.hold_id, "released_at": making.now})


def _answer(making: Making, facts: Document) -> Answer:
    document = {"scope_id": making.state.ref.scope_id, "operation_id": making.command.operation_id, **facts}
    answer = Answer(200, dumps(document), positions(making.state, None))
    making.remember(answer)
    return answer


def hold_object(making: Making) -> Answer:
    """The job: an object that a hold in force covers gets retention_state legal_hold.

    What its retention was is remembered beside it, for the release. One that is held already, gone, or covered no more
    stays as it is.
    """
    state = making.state
    head = state.heads.get(making.command.object_id or "")
    hold = None if head is None else state.rules.hold_over(head.kind, head.object_type)
    if head is None or hold is None or head.availability_state == "deleted" or head.retention_state == HELD:
        return _answer(making, {"changed": False})
    making.rows.held.append(HeldRow(state.ref.scope_key, head.object_id, hold.hold_id, head.retention_state))
    return _move(making, head, HELD)


def let_go(making: Making) -> Answer:
    """The job after a release: an object goes back to its retention before, unless another hold covers it.

    What somebody else moved or deleted meanwhile stays as it is.
    """
    state, request = making.state, making.command.request
    assert isinstance(request, HoldObject)
    place = (state.ref.scope_key, request.object_id)
    head = state.heads.get(request.object_id)
    other = None if head is None else state.rules.hold_over(head.kind, head.object_type)
    if other is not None:
        making.rows.passed_on.append((*place, other.hold_id))
        return _answer(making, {"changed": False})
    making.rows.let_go.append(place)
    if head is None or head.availability_state == "deleted" or head.retention_state != HELD:
        return _answer(making, {"changed": False})
    return _move(making, head, request.target)


def _move(making: Making, head: Head, target: str) -> Answer:
    request = making.command.request
    assert isinstance(request, HoldObject)
    draft = following(head, making.command)
    draft.states["retention_state"] = target
    making.account(draft, carried_provenance(head, "transition"), request.policy_basis)
    made = making.version(draft)
    moved = {"dimension": "retention", "from": head.retention_state, "to": target}
    return making.finish(made, "retention_transitioned", facts=moved)
