"""What every operation starts with: the verified principal and the decoded request; and how it is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pamspec_common.calls import Answer, Call, Handler, refusal
from pamspec_common.denials import Denials
from pamspec_common.documents import own_operation_id, take_header_key
from pamspec_common.errors import InvalidRequest, PamspecError
from pamspec_common.postgres import Connection
from pamspec_common.principal import Principal, TokenVerifier
from pamspec_common.strict_json import parse
from pamspec_subscription.documents import Common, decode
from pamspec_subscription.model import Subscription
from pamspec_subscription.rights import Access, Permitted

T = TypeVar("T", bound=Common)


@dataclass(frozen=True)
class Asked(Generic[T]):
    """A request of a known caller."""

    principal: Principal
    request: T
    document: dict[str, Any]
    operation_id: str
    """The request's own, else minted."""
    answer_bytes: int | None = None
    """Where a page ends when the door carries less than we would answer."""


def handler(
    verifier: TokenVerifier, denials: Denials, kind: type[T], act: Callable[[Asked[T]], Awaitable[Answer]]
) -> Handler:
    """An operation's handler: whatever is refused becomes an answer with the request's operation_id."""

    async def handle(call: Call) -> Answer:
        operation_id = principal = document = None
        try:
            principal = verifier.verify(call.principal)
            document = parse(call.body)
            operation_id = own_operation_id(document)
            request = decode(kind, document)
            take_header_key(request, call.idempotency_key)
            return await act(Asked(principal, request, document, operation_id, call.answer_bytes))
        except PamspecError as error:
            if principal is not None:
                denials.note(principal, call.operation, document, error)
            return refusal(error, operation_id)

    return handle


async def allowed(
    asked: Asked[T], subscription: Subscription, access: Access, conn: Connection
) -> tuple[Subscription, Permitted]:
    """The subscription and what it may receive; AccessDenied or ScopeNotFound when that is nothing any more."""
    permitted = await access.permitted(
        asked.principal, subscription.actor, subscription.scope_key, subscription.head.epochs, conn
    )
    return check_scope(asked.request, subscription), permitted


def check_scope(request: Common, subscription: Subscription) -> Subscription:
    """A scope_id that is sent along must be the subscription's; InvalidRequest else."""
    if request.scope_id is not None and request.scope_id != subscription.scope_id:
        raise InvalidRequest("scope_id is not the scope of this subscription; leave it out.")
    return subscription
