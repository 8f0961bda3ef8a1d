"""What every operation starts with: the verified principal, the decoded request, and the rights of who asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pamspec_common.authorization.rights import Asker, Authorizer, Epochs, Rights
from pamspec_common.calls import Answer, Call, Handler, refusal
from pamspec_common.documents import Actor, CommonFields, own_operation_id
from pamspec_common.errors import PamspecError
from pamspec_common.principal import Principal, TokenVerifier
from pamspec_common.strict_json import parse
from pamspec_delegation.documents import decode

T = TypeVar("T", bound=CommonFields)


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


async def rights_of(
    authorizer: Authorizer, principal: Principal, actor: Actor | None, scope_key: int, epochs: Epochs | None
) -> Rights:
    """What an actor for whom the principal speaks, or the principal itself, may do in a scope; 0: in the tenant."""
    actor_id, kind = (principal.actor_id, principal.actor_kind) if actor is None else (actor.actor_id, actor.actor_kind)
    asker = Asker(principal.tenant_id, actor_id, kind, principal.actor_id, principal.roles)
    return await authorizer.rights(asker, scope_key, epochs, again=epochs is None)


def audits(rights: Rights) -> bool:
    """Whether somebody may see what others did."""
    return not (rights.decision("audit").never and rights.decision("administer").never)
