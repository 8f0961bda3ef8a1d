"""What operations on roles, access rules and the record of administration take; without a scope the whole tenant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Required

from pamspec_client.requests.common import PageRequest, Reading, Time, Writing

Role = Literal["reader", "contributor", "editor", "reviewer", "curator", "auditor", "admin", "platform"]


class RoleRequest(Writing, total=False):
    """A role that an actor gets or loses."""

    scope_id: str
    actor_id: Required[str]
    role: Required[Role]
    policy_basis: Required[str]


class ListRoleBindingsRequest(PageRequest, total=False):
    """A page of who holds which role."""

    scope_id: str
    actor_id: str


class SetAccessRulesRequest(Writing, total=False):
    """Other rules, whole, as Cedar text; with `dry_run` only validated."""

    scope_id: str
    rules: Required[str]
    expected_rules_version: Required[int]
    policy_basis: Required[str]
    dry_run: bool


class GetAccessRulesRequest(Reading, total=False):
    """The rules in force, or an earlier version."""

    scope_id: str
    rules_version: int


class ExplainAccessRequest(Reading, total=False):
    """Whether an actor may do something in a scope, to a memory with these attributes where they are named."""

    scope_id: Required[str]
    actor_id: Required[str]
    actor_kind: str
    action: Required[str]
    memory: Mapping[str, str]


class ListAdministrationRequest(PageRequest, total=False):
    """A page of what administrators did, and of what was refused."""

    scope_id: str
    actor_id: str
    operation: str
    outcome: Literal["done", "denied"]
    since: Time
    until: Time


class DeleteScopeRequest(Writing, total=False):
    """The end of a scope; with `dry_run` only counted."""

    scope_id: Required[str]
    policy_basis: Required[str]
    dry_run: bool
