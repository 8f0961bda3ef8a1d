"""The scope of a request, if it may be seen, and the rights of who asks."""

from __future__ import annotations

from typing import TypeVar

from pamspec_common.asked import Asked
from pamspec_common.authorization.rights import Asker, Authorizer, Rights
from pamspec_common.errors import AccessDenied, ScopeNotFound
from pamspec_common.policy import acting_actor
from pamspec_indexing.documents import OfScope
from pamspec_indexing.store import Store

S = TypeVar("S", bound=OfScope)


async def scope_of(store: Store, authorizer: Authorizer, asked: Asked[S], action: str) -> int:
    """The key of the request's scope, in which its actor may do that; ScopeNotFound where it cannot be seen."""
    return (await permitted(store, authorizer, asked, action))[0]


async def permitted(store: Store, authorizer: Authorizer, asked: Asked[S], action: str) -> tuple[int, Rights]:
    """The key of the request's scope, and the rights by which its actor may do that to some memory there."""
    principal, actor = asked.principal, asked.request.actor
    if actor is not None:
        acting_actor(principal, {"actor_id": actor.actor_id, "actor_kind": actor.actor_kind})
    key = await store.scope_key(principal.tenant_id, asked.request.scope_id)
    if key is None:
        raise ScopeNotFound
    actor_id, kind = (principal.actor_id, principal.actor_kind) if actor is None else (actor.actor_id, actor.actor_kind)
    asker = Asker(principal.tenant_id, actor_id, kind, principal.actor_id, principal.roles)
    rights = await authorizer.rights(asker, key, None, again=True)
    if rights.decision(action).never:
        if not rights.sees_scope:
            raise ScopeNotFound
        raise AccessDenied(
            f"You may not {action} here; ask an administrator of the scope for a role that may.",
            details={"action": action},
        )
    return key, rights
