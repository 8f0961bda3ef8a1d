"""Transition and delete: the versions that move a state."""

from __future__ import annotations

import msgspec

from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest
from pamspec_write.documents.parts import Provenance
from pamspec_write.documents.states import Delete, Transition
from pamspec_write.model import states as rules
from pamspec_write.model.making import Making, carried_provenance, expected_head, following


def transition(making: Making) -> Answer:
    """P115-P117: one dimension moves along its table; deletion runs as Delete (S21)."""
    command = making.command
    request = command.request
    assert isinstance(request, Transition)
    dimension, target = request.dimension, request.target_state
    if dimension == "availability":
        rules.check_availability_target(target)
        if target == "deleted":
            return delete(making)
    head = expected_head(making, request.expected_version_id, rules.check_present)
    current = head.states()[f"{dimension}_state"]
    rules.check_edge(making.state.rules, dimension, current, target, command.roles)
    rules.check_correction(dimension, current, target, has_provenance=command.provenance is not None)
    draft = following(head, making.command)
    if dimension == "availability":
        if request.canonical_content is msgspec.UNSET:
            raise InvalidRequest("Going back to available needs the content; send canonical_content.")
        draft.content, draft.projection = command.content, command.projection
    draft.states[f"{dimension}_state"] = target
    making.account(draft, command.provenance or carried_provenance(head), request.policy_basis)
    made = making.version(draft)
    moved = {"dimension": dimension, "from": current, "to": target}
    return making.finish(made, f"{dimension}_transitioned", facts=moved)


def delete(making: Making) -> Answer:
    """P142: a final tombstone; content, provenance and salts of every earlier version go at once."""
    command, state = making.command, making.state
    request = command.request
    assert isinstance(request, Delete | Transition)
    head = expected_head(making, request.expected_version_id, rules.check_removable)
    draft = following(head, making.command)
    draft.states["availability_state"] = "deleted"
    draft.content, draft.projection, draft.private, draft.extra = None, None, {}, {}
    provenance = command.provenance or Provenance(activity="delete", transformation_parent=head.version_id)
    making.account(draft, provenance, request.policy_basis)
    first = state.last_seq + 1
    made = making.version(draft)
    making.rows.erase_before(state.ref.scope_key, head.object_id, first)
    state.forget(head.object_id)
    erased = [{"from_sequence": 1, "to_sequence": head.version_seq}]
    return making.finish(made, "object_deleted", facts={"erased": erased}, erasing=True)
