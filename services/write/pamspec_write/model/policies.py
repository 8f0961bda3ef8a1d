"""Another policy for a scope: a version after the expected one, and with it new rules for all that follows."""

from __future__ import annotations

from dataclasses import replace

from pamspec_common.calls import Answer
from pamspec_common.errors import VersionConflict
from pamspec_common.scope_policy import stored_policy
from pamspec_common.strict_json import Fragment, dumps
from pamspec_write.documents.scopes import UpdateScope
from pamspec_write.model.making import Making
from pamspec_write.model.records import positions
from pamspec_write.model.rows import PolicyRow


def update_scope(making: Making) -> Answer:
    """The policy replaces the one before it whole; VersionConflict where that is not the expected one."""
    command, state = making.command, making.state
    request = command.request
    assert isinstance(request, UpdateScope)
    assert command.content is not None
    rules = state.rules
    if request.expected_policy_version != rules.policy_version:
        raise VersionConflict(
            "The scope has another policy by now; read it again and send its policy_version as expected.",
            details={
                "current_policy_version": rules.policy_version,
                "expected_policy_version": request.expected_policy_version,
            },
        )
    policy = stored_policy(command.content)
    version = rules.policy_version + 1
    changed = replace(rules, version=rules.version + 1, policy_version=version, policy=policy)
    making.change_rules(changed, request.policy_basis, str(version))
    making.rows.policies.append(
        PolicyRow(
            scope_key=state.ref.scope_key,
            policy_version=version,
            policy=command.content,
            policy_basis=request.policy_basis,
            actor_id=command.actor.actor_id,
            authenticated_as=command.authenticated_as,
            operation_id=command.operation_id,
            changed_at=making.now,
        )
    )
    body = dumps(
        {
            "scope_id": state.ref.scope_id,
            "policy": Fragment(command.content),
            "policy_version": version,
            "operation_id": command.operation_id,
        }
    )
    answer = Answer(200, body, positions(state, None))
    making.remember(answer)
    return answer
