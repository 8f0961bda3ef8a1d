"""What operations on grants of authority take."""

from __future__ import annotations

from typing import Required

from pamspec_client.documents import Actor, Integrity, Provenance, ValidationState
from pamspec_client.requests.common import Common, PageRequest, Time, Writing


class GrantDelegationRequest(Writing, total=False):
    """Let another actor carry out operations, for a time; with delegation_id pass on what is granted by it."""

    scope_id: Required[str]
    delegated_actor: Required[Actor]
    granted_operations: Required[list[str]]
    policy_basis: Required[str]
    not_before: Required[Time]
    not_after: Required[Time]
    granting_actor: Actor
    granted_object_types: list[str]
    granted_object_ids: list[str]
    target_scope_id: str
    revocable: bool
    usage_limit: int
    redelegation_depth: int
    validation_state: ValidationState
    integrity: Integrity
    provenance: Provenance


class RevokeDelegationRequest(Writing, total=False):
    """End a grant, and what was passed on under it."""

    delegation_id: Required[str]  # type: ignore[misc]
    policy_basis: Required[str]
    scope_id: str
    expected_version_id: str
    provenance: Provenance


class ExplainDelegationRequest(Common, total=False):
    """A use of a grant; `actor` is whose use it would be, the principal's own without it."""

    delegation_id: Required[str]  # type: ignore[misc]
    operation: Required[str]
    scope_id: str
    object_id: str
    object_type: str


class CheckDelegationRequest(ExplainDelegationRequest, total=False):
    """The same; unless `consume` is False the check is a use of the grant."""

    consume: bool
    idempotency_key: str


class ListDelegationsRequest(PageRequest, total=False):
    """The grants that the actor gave or has; for auditors and administrators all."""

    scope_id: str
    granting_actor_id: str
    delegated_actor_id: str
    in_force: bool
