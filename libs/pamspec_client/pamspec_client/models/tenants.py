"""Tenants, their quotas, and entries of their scopes that consumers parked."""

from __future__ import annotations

from typing import Any

import msgspec

from pamspec_client.models.document import Document


class Tenant(msgspec.Struct, kw_only=True):
    """A tenant; `counts` in a list of it alone."""

    tenant_id: str
    state: str
    created_at: str
    state_at: str
    counts: dict[str, int] | None = None


class TenantMoved(Document, kw_only=True):
    """A tenant as it stands; `changed` is False where it stood so before."""

    tenant: Tenant
    changed: bool
    counts: dict[str, int] | None = None
    """What goes, or went, with an offboarding."""
    operation_id: str = ""


class TenantPage(Document, kw_only=True):
    """A page of tenants, by their ids."""

    tenants: list[Tenant]
    next_cursor: str | None = None


class QuotasAnswer(Document, kw_only=True):
    """The quotas of a tenant: as set, as in force with the deployment's defaults, and what is used."""

    tenant_id: str
    quotas_version: int
    quotas: dict[str, Any]
    in_force: dict[str, Any]
    used: dict[str, dict[str, int]]
    policy_basis: str | None = None
    changed_by: str | None = None
    changed_at: str | None = None


class QuotasSet(Document, kw_only=True):
    """Quotas that are in force now."""

    tenant_id: str
    quotas_version: int
    operation_id: str = ""


class ParkedEntry(msgspec.Struct, kw_only=True):
    """A ledger entry that a consumer went on without; `asked` is what an operator wants done with it."""

    consumer: str
    tenant_id: str
    scope_id: str
    sequence: int
    event_id: str
    event_type: str
    reason: str
    parked_at: str
    asked: str | None = None
    asked_at: str | None = None


class ParkedEntryPage(Document, kw_only=True):
    """A page of parked entries, by consumer, scope and sequence."""

    entries: list[ParkedEntry]
    next_cursor: str | None = None


class ParkedAsked(Document, kw_only=True):
    """What a consumer was asked to do with `entries` parked entries; it does so within moments."""

    consumer: str
    tenant_id: str
    scope_id: str
    asked: str
    entries: int
    operation_id: str = ""
