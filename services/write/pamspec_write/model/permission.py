"""Permission: what a command's actor may see and make, by the rules of its scope.

Invariant: an object that the actor may not read does not exist for it (S15); everything that a command makes is
permitted as what it becomes, and what it takes away is permitted as what it was.
"""

from __future__ import annotations

from collections.abc import Mapping

from pamspec_common.authorization.rights import Rights
from pamspec_common.authorization.vocabulary import ACTIONS, IN_SIGHT, TRANSITIONS
from pamspec_common.errors import AccessDenied, ScopeNotFound

_ACTIONS: dict[str, tuple[str, ...]] = {
    "transition": (*TRANSITIONS, "delete", "redact"),
    "list_role_bindings": ("administer", "audit"),
    "get_access_rules": ("administer", "audit"),
    "explain_access": ("administer", "audit"),
    "list_administration": ("administer", "audit"),
    "get_quotas": ("administer", "audit"),
    "place_hold": ("hold",),
    "release_hold": ("hold",),
    "batch": IN_SIGHT,
    "get_operation": IN_SIGHT,
}
"""The actions that an operation may turn out to be; another is the one of its name, else a matter of administration."""


def memory_of(object_type: str, states: Mapping[str, str], creator: str) -> dict[str, str]:
    """The attributes of a memory that rules may use."""
    return {"object_type": object_type, "creator": creator, **states}


def transition_action(dimension: str, current: str, target: str) -> str:
    """The action that a transition asks for; a legal hold is placed and released under a right of its own."""
    return "hold" if "legal_hold" in (current, target) else f"transition_{dimension}"


def override_roles(rights: Rights | None) -> frozenset[str] | None:
    """The roles by which a policy's overrides are judged; None: an administrator counts as everybody."""
    return None if rights is None or "admin" in rights.subject.roles else rights.subject.roles


def sees(rights: Rights | None, memory: Mapping[str, str]) -> bool:
    """Whether the actor may know that this memory exists."""
    return rights is None or rights.allows("read", memory)


def permit(rights: Rights | None, action: str, memory: Mapping[str, str]) -> None:
    """Raise AccessDenied, naming the rule that forbade it where one did."""
    if rights is None:
        return
    decision = rights.decision(action)
    if not decision.allows(memory):
        raise denied(action, decision.rule(memory))


def check_operation(operation: str, rights: Rights | None, *, in_scope: bool = True) -> None:
    """Raise unless the actor may do this to some memory of the scope: ScopeNotFound for a scope that it can't see."""
    actions = _ACTIONS.get(operation) or ((operation,) if operation in ACTIONS else ("administer",))
    if (
        rights is None
        or operation in ("record_event", "exercise_delegation")
        or any(not rights.decision(action).never for action in actions)
    ):
        return
    rights.check_assertion(in_scope=in_scope)
    if in_scope and not rights.sees_scope:
        raise ScopeNotFound
    raise denied(operation, None)


def denied(action: str, rule: str | None) -> AccessDenied:
    """The refusal of an action."""
    return AccessDenied(
        f"You may not {action.replace('_', ' ')} here; ask an administrator of the scope for a role that may.",
        details={"action": action},
        policy_rule_id=rule,
    )
