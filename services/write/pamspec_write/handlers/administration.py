"""Administration: which request is about which place, who may make it, and one transaction for what it does.

Invariant: a change, the raised epoch and the record of who made it are one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pamspec_common import ids
from pamspec_common.authorization.rights import Authorizer
from pamspec_common.calls import Answer, Call
from pamspec_common.documents import Actor, take_header_key
from pamspec_common.errors import AccessDenied, InvalidRequest, ObjectNotFound, ScopeNotFound
from pamspec_common.postgres import SHOW_TENANT_SQL, Connection, Pool, connection, scoped
from pamspec_common.principal import RIGHT_OPERATOR, Principal
from pamspec_write.documents import administration as requests
from pamspec_write.documents.decoding import decode
from pamspec_write.documents.keys import CreateKey, ListKeys, RevokeKey, RotateKey, TenantWide
from pamspec_write.documents.tenants import (
    CreateTenant,
    DeleteScope,
    ListTenants,
    OffboardTenant,
    Operating,
    ResumeTenant,
    SuspendTenant,
)
from pamspec_write.handlers import audit, roles, tenants
from pamspec_write.handlers.access import Access
from pamspec_write.handlers.access_rules import AccessRules, get_access_rules
from pamspec_write.handlers.administering import Asked, RolledBack, check_own_name
from pamspec_write.handlers.admission.acting import actor_of
from pamspec_write.handlers.deleting import delete_scope
from pamspec_write.handlers.keys import Keys
from pamspec_write.model.facts import ScopeRef
from pamspec_write.queries import administration as queries
from pamspec_write.queries.administration import Place
from pamspec_write.settings import Settings

KINDS: Mapping[str, type[requests.Administrative]] = {
    "bind_role": requests.BindRole,
    "unbind_role": requests.UnbindRole,
    "list_role_bindings": requests.ListRoleBindings,
    "set_access_rules": requests.SetAccessRules,
    "get_access_rules": requests.GetAccessRules,
    "explain_access": requests.ExplainAccess,
    "list_administration": requests.ListAdministration,
    "create_key": CreateKey,
    "list_keys": ListKeys,
    "rotate_key": RotateKey,
    "revoke_key": RevokeKey,
    "delete_scope": DeleteScope,
    "create_tenant": CreateTenant,
    "list_tenants": ListTenants,
    "suspend_tenant": SuspendTenant,
    "resume_tenant": ResumeTenant,
    "offboard_tenant": OffboardTenant,
}
"""The operations of administration, each with its request."""

Answering = Callable[[Connection, Asked, Any], Awaitable[Answer]]


class Administration:
    """The handlers of administration."""

    def __init__(self, pool: Pool, settings: Settings, access: Access, authorizer: Authorizer, keys: Keys) -> None:
        self._pool, self._settings, self._access = pool, settings, access
        self._rules = AccessRules(access, authorizer)
        self._answering: Mapping[str, Answering] = {
            "bind_role": roles.change_role,
            "unbind_role": roles.change_role,
            "list_role_bindings": roles.list_role_bindings,
            "set_access_rules": self._rules.set_access_rules,
            "get_access_rules": get_access_rules,
            "list_administration": audit.list_administration,
            "create_key": keys.create,
            "list_keys": keys.list,
            "rotate_key": keys.rotate,
            "revoke_key": keys.revoke,
            "delete_scope": delete_scope,
            "create_tenant": tenants.create_tenant,
            "list_tenants": tenants.list_tenants,
            "suspend_tenant": tenants.suspend_tenant,
            "resume_tenant": tenants.resume_tenant,
            "offboard_tenant": tenants.offboard_tenant,
        }

    async def call(
        self, operation: str, document: dict[str, Any], body: bytes, principal: Principal, header_key: str | None
    ) -> Answer:
        """The answer of an administrative operation; AccessDenied or ScopeNotFound for others than administrators."""
        request = decode(KINDS[operation], body)
        take_header_key(request, header_key)
        actor, authenticated_as = actor_of(principal, request, document)
        tenant_id = principal.tenant_id
        scope, in_sight = None, True
        if isinstance(request, TenantWide):
            tenant_id = await self._tenant(operation, principal, actor, request)
        elif isinstance(request, Operating):
            tenant_id = _operated(principal, request)
            check_own_name(principal, actor)
        else:
            scope = None if request.scope_id is None else await self._access.resolve(principal, request.scope_id)
            in_sight = await self._in_sight(operation, principal, actor, scope)
        operation_id = request.operation_id or ids.mint("op")
        asked = Asked(operation, operation_id, principal, actor, authenticated_as, scope, tenant_id, in_sight)
        if isinstance(request, requests.ExplainAccess):
            return await self._rules.explain_access(asked, request)
        async with self._transaction(asked.place) as conn:
            return await self._answering[operation](conn, asked, request)

    async def _in_sight(self, operation: str, principal: Principal, actor: Actor, scope: ScopeRef | None) -> bool:
        """Raise unless the actor administers; False for who may only learn that the scope was deleted."""
        try:
            await self._access.permitted(operation, principal, actor, scope, now=True)
        except ScopeNotFound:
            if operation != "delete_scope":
                raise
            try:
                await self._access.permitted(operation, principal, actor, None, now=True)
            except AccessDenied:
                raise ScopeNotFound from None
            return False
        return True

    async def _tenant(self, operation: str, principal: Principal, actor: Actor, request: TenantWide) -> str:
        """The tenant that a request is about, which the caller may administer: its own, or for operators any."""
        if request.scope_id is not None:
            raise InvalidRequest("This is about a whole tenant; leave scope_id out.", details={"field": "scope_id"})
        tenant_id = request.tenant_id or principal.tenant_id
        if principal.has(RIGHT_OPERATOR):
            check_own_name(principal, actor)
            async with connection(self._pool, self._settings.pool_wait_ms) as conn:
                if not await queries.tenant_exists(conn, tenant_id):
                    raise ObjectNotFound("There is no such tenant; create it first.", details={"field": "tenant_id"})
            return tenant_id
        if tenant_id != principal.tenant_id:
            raise AccessDenied("You may administer your own tenant only; leave tenant_id out.")
        await self._access.permitted(operation, principal, actor, None, now=True)
        return tenant_id

    @asynccontextmanager
    async def _transaction(self, place: Place) -> AsyncIterator[Connection]:
        keys = [place.scope_key] if place.scope_key else []
        async with connection(self._pool, self._settings.pool_wait_ms) as conn, scoped(conn, keys):
            await conn.execute(SHOW_TENANT_SQL, place.tenant_id)
            yield conn


def _operated(principal: Principal, request: Operating) -> str:
    """The tenant that an operator's request is about; AccessDenied for everybody else, whatever it names."""
    if not principal.has(RIGHT_OPERATOR):
        raise AccessDenied("Only operators administer tenants; ask the operator of this service.")
    if request.scope_id is not None:
        raise InvalidRequest("This is about a whole tenant; leave scope_id out.", details={"field": "scope_id"})
    return getattr(request, "tenant_id", None) or principal.tenant_id


async def administer(
    administration: Administration, call: Call, document: dict[str, Any], principal: Principal
) -> Answer:
    """The answer of an administrative operation; a dry run leaves nothing behind."""
    try:
        return await administration.call(call.operation, document, call.body, principal, call.idempotency_key)
    except RolledBack as ended:
        return ended.answer
