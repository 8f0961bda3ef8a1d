"""Grants of authority."""

from __future__ import annotations

from typing import Unpack

from pamspec_client import requests as r
from pamspec_client.models import Checked, DelegationPage, Explanation, Granted, Revoked
from pamspec_client.operations.caller import Caller


class Delegations(Caller):
    """Grants of authority."""

    async def grant_delegation(self, **request: Unpack[r.GrantDelegationRequest]) -> Granted:
        """Let another actor carry out operations, for a time (PAMSPEC P207)."""
        return await self._typed(Granted, "grant_delegation", request)

    async def revoke_delegation(self, **request: Unpack[r.RevokeDelegationRequest]) -> Revoked:
        """End a grant, and what was passed on under it, at once (PAMSPEC P212)."""
        return await self._typed(Revoked, "revoke_delegation", request)

    async def check_delegation(self, **request: Unpack[r.CheckDelegationRequest]) -> Checked:
        """Whether an operation may be carried out under a grant now; a use of it unless `consume=False` (PAMSPEC P208).

        AccessDenied, with `details["reason"]`, when it may not.
        """
        return await self._typed(Checked, "check_delegation", request)

    async def explain_delegation(self, **request: Unpack[r.ExplainDelegationRequest]) -> Explanation:
        """By which rules a use of a grant would be permitted or refused now."""
        return await self._typed(Explanation, "explain_delegation", request)

    async def list_delegations(self, **request: Unpack[r.ListDelegationsRequest]) -> DelegationPage:
        """One page of the grants that the actor gave or has, or of those that it may audit."""
        return await self._typed(DelegationPage, "list_delegations", request)
