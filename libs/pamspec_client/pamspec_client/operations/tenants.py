"""Tenants, their quotas and parked entries, for who operates the deployment."""

from __future__ import annotations

from typing import Unpack

from pamspec_client import requests as r
from pamspec_client.models import ParkedAsked, ParkedEntryPage, QuotasAnswer, QuotasSet, TenantMoved, TenantPage
from pamspec_client.operations.caller import Caller


class Tenants(Caller):
    """Tenants, their quotas and parked entries, for who operates the deployment."""

    async def create_tenant(self, **request: Unpack[r.TenantRequest]) -> TenantMoved:
        """Make a tenant; one that is active already stays as it is."""
        return await self._typed(TenantMoved, "create_tenant", request)

    async def list_tenants(self, **request: Unpack[r.ListTenantsRequest]) -> TenantPage:
        """One page of the tenants."""
        return await self._typed(TenantPage, "list_tenants", request)

    async def suspend_tenant(self, **request: Unpack[r.TenantRequest]) -> TenantMoved:
        """Close a tenant to everybody, with everything kept."""
        return await self._typed(TenantMoved, "suspend_tenant", request)

    async def resume_tenant(self, **request: Unpack[r.TenantRequest]) -> TenantMoved:
        """Open a tenant again; its subscriptions go on from their positions."""
        return await self._typed(TenantMoved, "resume_tenant", request)

    async def offboard_tenant(self, **request: Unpack[r.OffboardTenantRequest]) -> TenantMoved:
        """End a tenant: keys, roles and rules now, its scopes step by step; asked again it says how far it is."""
        return await self._typed(TenantMoved, "offboard_tenant", request)

    async def get_quotas(self, **request: Unpack[r.GetQuotasRequest]) -> QuotasAnswer:
        """What a tenant may take, and what it uses."""
        return await self._typed(QuotasAnswer, "get_quotas", request)

    async def set_quotas(self, **request: Unpack[r.SetQuotasRequest]) -> QuotasSet:
        """Put quotas in force; VersionConflict when `expected_quotas_version` is no longer current."""
        return await self._typed(QuotasSet, "set_quotas", request)

    async def list_parked_entries(self, **request: Unpack[r.ListParkedEntriesRequest]) -> ParkedEntryPage:
        """One page of the ledger entries that consumers could not take in, with the reason of each."""
        return await self._typed(ParkedEntryPage, "list_parked_entries", request)

    async def replay_parked_entries(self, **request: Unpack[r.ReplayParkedEntriesRequest]) -> ParkedAsked:
        """Have a consumer take in what it parked of a scope, or with `skip` pass over the entry at `sequence`."""
        return await self._typed(ParkedAsked, "replay_parked_entries", request)
