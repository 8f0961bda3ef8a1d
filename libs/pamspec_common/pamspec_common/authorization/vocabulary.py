"""The words of a rule: actions, roles, and the attributes of a memory that a decision may rest on."""

from __future__ import annotations

from pamspec_common.documents import STATES

ROLES = ("reader", "contributor", "editor", "reviewer", "curator", "auditor", "admin", "platform")

ACTIONS = (
    "read",
    "query",
    "inspect_history",
    "subscribe",
    "create",
    "update",
    "relate",
    "promote",
    "transition_lifecycle",
    "transition_validation",
    "transition_availability",
    "transition_retention",
    "redact",
    "delete",
    "seal_snapshot",
    "export",
    "import",
    "verify",
    "audit",
    "grant_delegation",
    "revoke_delegation",
    "check_delegation",
    "hold",
    "administer",
    "create_scope",
    "assert_actor",
)
"""What a principal does to a memory, or in a scope."""

TRANSITIONS = (
    "transition_lifecycle",
    "transition_validation",
    "transition_availability",
    "transition_retention",
    "hold",
)
"""The actions that the operation transition may turn out to be."""

IN_SIGHT = ("read", "query", "create", "administer", "audit")
"""Whoever may do one of these in a scope sees that it is there; to others it does not exist."""

ATTRIBUTES: dict[str, tuple[str, ...] | None] = {"object_type": None, **STATES, "creator": None}
"""The attributes of a memory, each with its values where they are a closed set."""

_QUOTED = ", ".join(f'"{action}"' for action in ACTIONS)
_ATTRIBUTES = ", ".join(f"{name}: String" for name in ATTRIBUTES)

SCHEMA = f"""
entity Agent = {{ actor_id: String, actor_kind: String, roles: Set<String>, delegation_id?: String }};
entity Memory = {{ {_ATTRIBUTES} }};
action {_QUOTED} appliesTo {{ principal: [Agent], resource: [Memory], context: {{ now: Long }} }};
"""
"""The Cedar schema that every rule is checked against; `now` is in seconds of Unix time."""
