"""What operations on tenants, their quotas, and what consumers parked of their scopes take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Required

from pamspec_client.requests.common import PageRequest, Reading, Writing

ConsumerName = Literal["delegation", "indexing"]


class TenantRequest(Writing, total=False):
    """A tenant that is made, suspended or resumed."""

    tenant_id: Required[str]
    policy_basis: Required[str]


class OffboardTenantRequest(TenantRequest, total=False):
    """The end of a tenant; with `dry_run` only counted."""

    dry_run: bool


class ListTenantsRequest(PageRequest, total=False):
    """A page of tenants; a single one with what it has."""

    tenant_id: str
    state: Literal["active", "suspended", "offboarding", "offboarded"]


class GetQuotasRequest(Reading, total=False):
    """The quotas of a tenant, and what of them is used."""

    tenant_id: str
    scope_id: str
    quotas_version: int


class SetQuotasRequest(Writing, total=False):
    """Other quotas for a tenant, whole."""

    tenant_id: str
    quotas: Required[Mapping[str, Any]]
    expected_quotas_version: Required[int]
    policy_basis: Required[str]


class ListParkedEntriesRequest(PageRequest, total=False):
    """A page of ledger entries that consumers could not take in; a scope is named within its tenant."""

    consumer: ConsumerName
    tenant_id: str
    scope_id: str


class ReplayParkedEntriesRequest(Writing, total=False):
    """What a consumer is to take in again, or with `skip` to pass over."""

    consumer: Required[ConsumerName]
    tenant_id: Required[str]
    scope_id: Required[str]
    sequence: int
    skip: bool
    policy_basis: Required[str]
