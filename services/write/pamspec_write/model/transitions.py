"""Transition: the versions that move a state."""

from __future__ import annotations

import msgspec

from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest
from pamspec_write.documents.states import Transition
from pamspec_write.model import states as rules
from pamspec_write.model.erasures import delete, redact
from pamspec_write.model.holds import check_retention
from pamspec_write.model.making import Making, carried_provenance, expected_head, following
from pamspec_write.model.permission import override_roles, transition_action
from pamspec_write.model.relationships import check_free


def transition(making: Making) -> Answer:
    """P115-P117: one dimension moves along its table; redaction and deletion run as Redact and Delete (S21)."""
    command = making.command
    request = command.request
    assert isinstance(request, Transition)
    dimension, target = request.dimension, request.target_state
    if dimension == "availability":
        rules.check_availability_target(target)
        if target == "deleted":
            return delete(making)
        if target == "redacted":
            return redact(making)
    head = expected_head(making, request.expected_version_id, rules.check_present)
    current = head.states()[f"{dimension}_state"]
    if dimension == "retention":
        check_retention(making.state.rules, head, target)
    rules.check_edge(making.state.rules, dimension, current, target, override_roles(command.rights))
    rules.check_correction(dimension, current, target, has_provenance=command.provenance is not None)
    draft = following(head, making.command)
    if dimension == "availability":
        if request.canonical_content is msgspec.UNSET:
            raise InvalidRequest("Going back to available needs the content; send canonical_content.")
        draft.content, draft.projection = command.content, command.projection
    if target == "active":
        check_free(making.state, head.ends, head.object_type)
    draft.states[f"{dimension}_state"] = target
    making.account(draft, command.provenance or carried_provenance(head, "transition"), request.policy_basis)
    made = making.version(draft, transition_action(dimension, current, target))
    moved = {"dimension": dimension, "from": current, "to": target}
    return making.finish(made, f"{dimension}_transitioned", facts=moved)
