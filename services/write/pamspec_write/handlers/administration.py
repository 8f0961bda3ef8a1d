"""Administration of rights: who holds which role, and the rules of a scope or a tenant.

Invariant: a change, the raised epoch and the record of who made it are one transaction; rules are refused that could
not apply, that tell too many cases apart together with those they stand beside, or that would lock out their author.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, get_args

from pamspec_common import ids
from pamspec_common.authorization.decisions import decide
from pamspec_common.authorization.policies import Policies, PolicyRefused, combined, default_text, parse
from pamspec_common.authorization.rights import Authorizer
from pamspec_common.authorization.vocabulary import ACTIONS, ATTRIBUTES
from pamspec_common.calls import Answer, Call
from pamspec_common.documents import Actor, take_header_key
from pamspec_common.errors import AccessDenied, InvalidRequest, ObjectNotFound, ScopeNotFound, VersionConflict
from pamspec_common.ids import is_id
from pamspec_common.instants import wire
from pamspec_common.policy import needs_role
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
from pamspec_write.handlers import tenants
from pamspec_write.handlers.access import Access, asker_of
from pamspec_write.handlers.administering import Asked, DryRun, no_cursor, page_of, record
from pamspec_write.handlers.admission.acting import actor_of
from pamspec_write.handlers.deleting import delete_scope
from pamspec_write.handlers.keys import Keys
from pamspec_write.model.facts import ScopeRef
from pamspec_write.queries import administration as queries
from pamspec_write.queries.administration import Place
from pamspec_write.settings import Settings

_LAST = 2**63 - 1
_TOLD = (
    "operation", "operation_id", "actor_id", "authenticated_as", "policy_basis", "subject", "detail", "outcome",
    "policy_version", "occurrences",
)  # fmt: skip

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
        self._pool, self._settings, self._access, self._authorizer = pool, settings, access, authorizer
        self._answering: Mapping[str, Answering] = {
            "bind_role": _change_role,
            "unbind_role": _change_role,
            "list_role_bindings": _list_bindings,
            "set_access_rules": self._set_rules,
            "get_access_rules": _get_rules,
            "list_administration": _list_administration,
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
            _own_name(principal, actor)
        else:
            scope = None if request.scope_id is None else await self._access.resolve(principal, request.scope_id)
            in_sight = await self._in_sight(operation, principal, actor, scope)
        operation_id = request.operation_id or ids.mint("op")
        asked = Asked(operation, operation_id, principal, actor, authenticated_as, scope, tenant_id, in_sight)
        if isinstance(request, requests.ExplainAccess):
            return await self._explain(asked, request)
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
            _own_name(principal, actor)
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

    async def _set_rules(self, conn: Connection, asked: Asked, request: requests.SetAccessRules) -> Answer:
        """Another version of the rules, after the expected one; with dry_run only checked."""
        await queries.raise_epoch(conn, asked.place)
        current = await queries.access_rules(conn, asked.place)
        if current.version != request.expected_rules_version:
            raise VersionConflict(
                "The rules are those of another version; read them again, then decide.",
                details={
                    "current_rules_version": current.version,
                    "expected_rules_version": request.expected_rules_version,
                },
            )
        policies = _accepted(request.rules, await queries.neighbours(conn, asked.place), asked.scope is not None)
        rights = await self._access.rights(asked.principal, asked.actor, asked.scope)
        if decide(policies, rights.subject, "administer", int(time.time())).never:
            raise InvalidRequest(
                "Under these rules you could not administer any more; leave yourself that right.",
                details={"field": "rules", "reason": "lock_out"},
            )
        if request.dry_run:
            raise DryRun(asked.answer(dry_run=True, rules_version=current.version))
        version = current.version + 1
        await conn.execute(
            queries.INSERT_RULES_SQL, *asked.place, version, request.rules, request.policy_basis, asked.actor.actor_id
        )
        await record(conn, asked, request.policy_basis, None, str(version))
        return asked.answer(dry_run=False, rules_version=version)

    async def _explain(self, asked: Asked, request: requests.ExplainAccess) -> Answer:
        """What the rules in force say of an actor, an action and a memory with these attributes."""
        if request.action not in ACTIONS:
            raise InvalidRequest("action is no action of rules.", details={"field": "action", "actions": list(ACTIONS)})
        asker = asker_of(
            Principal(asked.principal.tenant_id, request.actor_id, request.actor_kind),
            Actor(request.actor_id, request.actor_kind),
        )
        rights = await self._authorizer.rights(asker, asked.place.scope_key, again=True)
        decision = rights.decision(request.action)
        memory = _memory(request)
        allowed = decision.allows(memory) if memory is not None else not decision.never
        body: dict[str, Any] = {"allowed": allowed, "always": decision.always, "roles": sorted(rights.subject.roles)}
        rule = None if memory is None or allowed else decision.rule(memory)
        if rule is not None:
            body["policy_rule_id"] = rule
        return asked.answer(**body)


def _operated(principal: Principal, request: Operating) -> str:
    """The tenant that an operator's request is about; AccessDenied for everybody else, whatever it names."""
    if not principal.has(RIGHT_OPERATOR):
        raise AccessDenied("Only operators administer tenants; ask the operator of this service.")
    if request.scope_id is not None:
        raise InvalidRequest("This is about a whole tenant; leave scope_id out.", details={"field": "scope_id"})
    return getattr(request, "tenant_id", None) or principal.tenant_id


def _own_name(principal: Principal, actor: Actor) -> None:
    """AccessDenied for an operator that names somebody else, without credentials that let it."""
    if needs_role(principal, actor.actor_id, actor.actor_kind):
        raise AccessDenied("The body names another actor than the key belongs to; leave `actor` out.")


async def administer(
    administration: Administration, call: Call, document: dict[str, Any], principal: Principal
) -> Answer:
    """The answer of an administrative operation; a dry run leaves nothing behind."""
    try:
        return await administration.call(call.operation, document, call.body, principal, call.idempotency_key)
    except DryRun as dry:
        return dry.answer


def _accepted(text: str, beside: list[str], in_scope: bool) -> Policies:
    """What holds in the place under these rules; InvalidRequest naming each rule that cannot apply.

    Beside a scope's rules stand those of its tenant; those of a tenant hold beside the rules of each of its scopes.
    """
    try:
        own, roles = parse(text), parse(default_text())
        together = [combined([roles, own, parse(other)]) for other in beside]
        return together[0] if in_scope and together else combined([roles, own])
    except PolicyRefused as refused:
        problems = [{"rule": rule, "problem": problem} for rule, problem in refused.problems[:20]]
        raise InvalidRequest(
            "The rules cannot apply; details.problems says which and why.",
            details={"field": "rules", "problems": problems},
        ) from None


def _memory(request: requests.ExplainAccess) -> dict[str, str] | None:
    if request.memory is None:
        return None
    unknown = sorted(request.memory.keys() ^ ATTRIBUTES.keys())
    if unknown:
        raise InvalidRequest(
            f"memory names exactly {', '.join(ATTRIBUTES)}.", details={"field": "memory", "members": unknown}
        )
    return request.memory


async def _change_role(conn: Connection, asked: Asked, request: requests.BindRole | requests.UnbindRole) -> Answer:
    """Bind or unbind; what is so already stays as it is and is no change."""
    await queries.raise_epoch(conn, asked.place)
    binds = isinstance(request, requests.BindRole)
    if binds:
        done = await conn.execute(queries.BIND_SQL, *asked.place, request.actor_id, request.role, asked.actor.actor_id)
    else:
        done = await conn.execute(queries.UNBIND_SQL, *asked.place, request.actor_id, request.role)
    changed = done.endswith(" 1")
    if changed:
        await record(conn, asked, request.policy_basis, request.actor_id, request.role)
    return asked.answer(actor_id=request.actor_id, role=request.role, bound=binds, changed=changed)


async def _list_bindings(conn: Connection, asked: Asked, request: requests.ListRoleBindings) -> Answer:
    limit, cursor = page_of(request.pagination)
    actor_id, _, role = (cursor or " ").partition(" ")
    if cursor is not None and not (is_id(actor_id) and role in get_args(requests.Role)):
        raise no_cursor()
    after = (actor_id, role)
    rows = await conn.fetch(queries.BINDINGS_SQL, *asked.place, request.actor_id, *after, limit + 1)
    found = [
        {
            "actor_id": row["actor_id"],
            "role": row["role"],
            "bound_by": row["bound_by"],
            "bound_at": wire(row["bound_at"]),
        }
        for row in rows[:limit]
    ]
    more = f"{found[-1]['actor_id']} {found[-1]['role']}" if len(rows) > limit else None
    return asked.answer(role_bindings=found, next_cursor=more)


async def _get_rules(conn: Connection, asked: Asked, request: requests.GetAccessRules) -> Answer:
    rules = await queries.access_rules(conn, asked.place, request.rules_version)
    if rules.record is None:
        if request.rules_version is not None:
            raise ObjectNotFound("There is no such version of the rules.", details={"field": "rules_version"})
        return asked.answer(rules_version=0, rules="")
    return asked.answer(
        rules_version=rules.version,
        rules=rules.text,
        policy_basis=rules.record["policy_basis"],
        changed_by=rules.record["actor_id"],
        changed_at=wire(rules.record["changed_at"]),
    )


async def _list_administration(conn: Connection, asked: Asked, request: requests.ListAdministration) -> Answer:
    limit, cursor = page_of(request.pagination)
    if cursor is not None and not re.fullmatch("[0-9]{1,19}", cursor):
        raise no_cursor()
    before = _LAST if cursor is None else min(int(cursor), _LAST)
    rows = await conn.fetch(
        queries.ADMINISTRATION_SQL, *asked.place, before, limit + 1, request.actor_id, request.operation,
        request.outcome, request.since, request.until,
    )  # fmt: skip
    found = [
        {"done_at": wire(row["done_at"]), **{name: row[name] for name in _TOLD if row[name] is not None}}
        for row in rows[:limit]
    ]
    more = str(rows[limit - 1]["id"]) if len(rows) > limit else None
    return asked.answer(entries=found, next_cursor=more)
