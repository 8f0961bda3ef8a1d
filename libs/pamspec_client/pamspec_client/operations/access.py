"""Who may do what: roles, access rules, explanations, and the record of administration."""

from __future__ import annotations

from typing import Unpack

from pamspec_client import requests as r
from pamspec_client.models import (
    AccessExplained,
    AccessRules,
    AdministrationPage,
    RoleBindingPage,
    RoleChanged,
    RulesSet,
    ScopeDeletion,
)
from pamspec_client.operations.caller import Caller


class Access(Caller):
    """Who may do what: roles, access rules, explanations, and the record of administration."""

    async def bind_role(self, **request: Unpack[r.RoleRequest]) -> RoleChanged:
        """Give an actor a role, in a scope or in the whole tenant."""
        return await self._typed(RoleChanged, "bind_role", request)

    async def unbind_role(self, **request: Unpack[r.RoleRequest]) -> RoleChanged:
        """Take a role from an actor; what rests on it ends within moments."""
        return await self._typed(RoleChanged, "unbind_role", request)

    async def list_role_bindings(self, **request: Unpack[r.ListRoleBindingsRequest]) -> RoleBindingPage:
        """One page of who holds which role."""
        return await self._typed(RoleBindingPage, "list_role_bindings", request)

    async def set_access_rules(self, **request: Unpack[r.SetAccessRulesRequest]) -> RulesSet:
        """Put rules in force, or with `dry_run` only validate them; InvalidRequest names what cannot apply."""
        return await self._typed(RulesSet, "set_access_rules", request)

    async def get_access_rules(self, **request: Unpack[r.GetAccessRulesRequest]) -> AccessRules:
        """The rules in force, or an earlier version of them."""
        return await self._typed(AccessRules, "get_access_rules", request)

    async def explain_access(self, **request: Unpack[r.ExplainAccessRequest]) -> AccessExplained:
        """Whether an actor may do something, and which rule forbids it."""
        return await self._typed(AccessExplained, "explain_access", request)

    async def list_administration(self, **request: Unpack[r.ListAdministrationRequest]) -> AdministrationPage:
        """One page of the record of administration, the newest first."""
        return await self._typed(AdministrationPage, "list_administration", request)

    async def delete_scope(self, **request: Unpack[r.DeleteScopeRequest]) -> ScopeDeletion:
        """Delete a scope for good, or with `dry_run` count what would go; asked again it says how far it is."""
        return await self._typed(ScopeDeletion, "delete_scope", request)
