"""What every operation starts with: the verified principal, the decoded request, and the scope if it may be seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pamspec_common.authorization.rights import Asker, Authorizer, Rights
from pamspec_common.calls import Answer, Call, Handler, refusal
from pamspec_common.documents import CommonFields, own_operation_id
from pamspec_common.errors import AccessDenied, PamspecError, ScopeNotFound
from pamspec_common.policy import acting_actor
from pamspec_common.principal import Principal, TokenVerifier
from pamspec_common.strict_json import parse
from pamspec_indexing.documents import OfScope, decode
from pamspec_indexing.store import Store

T = TypeVar("T", bound=CommonFields)
S = TypeVar("S", bound=OfScope)


@dataclass(frozen=True)
class Asked(Generic[T]):
    """A request of a known caller."""

    principal: Principal
    request: T
    operation_id: str
    """The request's own, else minted."""
    call: Call


def handler(verifier: TokenVerifier, kind: type[T], act: Callable[[Asked[T]], Awaitable[Answer]]) -> Handler:
    """An operation's handler: whatever is refused becomes an answer with the request's operation_id."""

    async def handle(call: Call) -> Answer:
        operation_id = None
        try:
            principal = verifier.verify(call.principal)
            document: Any = parse(call.body)
            operation_id = own_operation_id(document)
            return await act(Asked(principal, decode(kind, document), operation_id, call))
        except PamspecError as error:
            return refusal(error, operation_id)

    return handle


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
