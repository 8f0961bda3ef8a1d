"""Roles, access rules, explanations, and the record of administration."""

from __future__ import annotations

import msgspec

from pamspec_client.models.document import Document


class RoleChanged(Document, kw_only=True):
    """Whether an actor holds a role now; `changed` is False where it was so before."""

    actor_id: str
    role: str
    bound: bool
    changed: bool
    operation_id: str = ""


class RoleBinding(msgspec.Struct, kw_only=True):
    """A role that an actor holds."""

    actor_id: str
    role: str
    bound_by: str
    bound_at: str


class RoleBindingPage(Document, kw_only=True):
    """A page of bindings, by actor and role."""

    role_bindings: list[RoleBinding]
    next_cursor: str | None = None


class RulesSet(Document, kw_only=True):
    """Rules that are in force, or with `dry_run` could be: `rules_version` is then the one in force."""

    rules_version: int
    dry_run: bool
    operation_id: str = ""


class AccessRules(Document, kw_only=True):
    """One version of the rules; 0 with an empty text where there never were any."""

    rules_version: int
    rules: str
    policy_basis: str | None = None
    changed_by: str | None = None
    changed_at: str | None = None


class AccessExplained(Document, kw_only=True):
    """Whether an actor may; `always` to every memory, `policy_rule_id` names the rule that forbids."""

    allowed: bool
    always: bool
    roles: list[str]
    policy_rule_id: str | None = None


class AdministrationEntry(msgspec.Struct, kw_only=True):
    """What was done, or refused `occurrences` times, by whom, why and under which rules."""

    done_at: str
    operation: str
    outcome: str
    actor_id: str
    operation_id: str | None = None
    authenticated_as: str | None = None
    policy_basis: str | None = None
    policy_version: str | None = None
    subject: str | None = None
    detail: str | None = None
    occurrences: int = 1


class AdministrationPage(Document, kw_only=True):
    """A page of the record, the newest first."""

    entries: list[AdministrationEntry]
    next_cursor: str | None = None


class ScopeDeletion(Document, kw_only=True):
    """How far the deletion of a scope is: present (only counted), erasing, erased."""

    scope_id: str
    state: str
    counts: dict[str, int] | None = None
    erased_versions: int | None = None
    requested_at: str | None = None
    finished_at: str | None = None
    operation_id: str = ""
