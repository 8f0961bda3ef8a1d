"""Requests about rights and quotas: roles of actors, rules of a scope or a whole tenant, what a tenant may take."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pamspec_common.authorization.policies import MAX_TEXT
from pamspec_common.documents import CommonFields, Pagination
from pamspec_common.ids import Id
from pamspec_common.instants import Instant
from pamspec_common.quotas import Quotas
from pamspec_write.documents.parts import Basis, MaybeRaw

Role = Literal["reader", "contributor", "editor", "reviewer", "curator", "auditor", "admin", "platform"]


class Administrative(CommonFields, kw_only=True):
    """The fields that administration may carry; without a scope it is about the tenant."""

    scope_id: Id | None = None
    actor: MaybeRaw = msgspec.UNSET


class BindRole(Administrative, kw_only=True):
    actor_id: Id
    role: Role
    policy_basis: Basis


class UnbindRole(Administrative, kw_only=True):
    actor_id: Id
    role: Role
    policy_basis: Basis


class ListRoleBindings(Administrative, kw_only=True):
    actor_id: Id | None = None
    pagination: Pagination | None = None


class SetAccessRules(Administrative, kw_only=True):
    rules: Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
    expected_rules_version: Annotated[int, msgspec.Meta(ge=0)]
    policy_basis: Basis
    dry_run: bool = False


class GetAccessRules(Administrative, kw_only=True):
    rules_version: Annotated[int, msgspec.Meta(ge=1)] | None = None


class ExplainAccess(Administrative, kw_only=True):
    scope_id: Id
    actor_id: Id
    action: str
    actor_kind: str = "agent"
    memory: dict[str, str] | None = None


class ListAdministration(Administrative, kw_only=True):
    actor_id: Id | None = None
    operation: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z_]*\Z", max_length=64)] | None = None
    outcome: Literal["done", "denied"] | None = None
    since: Instant | None = None
    until: Instant | None = None
    pagination: Pagination | None = None


class GetQuotas(Administrative, kw_only=True):
    tenant_id: Id | None = None
    quotas_version: Annotated[int, msgspec.Meta(ge=1)] | None = None


class SetQuotas(CommonFields, kw_only=True):
    tenant_id: Id | None = None
    actor: MaybeRaw = msgspec.UNSET
    quotas: Quotas
    expected_quotas_version: Annotated[int, msgspec.Meta(ge=0)]
    policy_basis: Basis
