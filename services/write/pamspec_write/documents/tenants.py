"""Requests about tenants as a whole, and about the end of a scope."""

from __future__ import annotations

from typing import Literal

from pamspec_common.documents import Pagination
from pamspec_common.ids import Id
from pamspec_write.documents.administration import Administrative
from pamspec_write.documents.parts import Basis

TenantState = Literal["active", "suspended", "offboarding", "offboarded"]


class DeleteScope(Administrative, kw_only=True):
    scope_id: Id
    policy_basis: Basis
    dry_run: bool = False


class Operating(Administrative, kw_only=True):
    """What only operators do."""


class CreateTenant(Operating, kw_only=True):
    tenant_id: Id
    policy_basis: Basis


class ListTenants(Operating, kw_only=True):
    tenant_id: Id | None = None
    state: TenantState | None = None
    pagination: Pagination | None = None


class SuspendTenant(Operating, kw_only=True):
    tenant_id: Id
    policy_basis: Basis


class ResumeTenant(Operating, kw_only=True):
    tenant_id: Id
    policy_basis: Basis


class OffboardTenant(Operating, kw_only=True):
    tenant_id: Id
    policy_basis: Basis
    dry_run: bool = False
