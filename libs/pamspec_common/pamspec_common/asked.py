"""What an operation of a service starts with: the verified principal and the decoded request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pamspec_common.calls import Answer, Call, Handler, refusal
from pamspec_common.documents import CommonFields, decode, own_operation_id
from pamspec_common.errors import PamspecError
from pamspec_common.principal import Principal, TokenVerifier
from pamspec_common.strict_json import parse

T = TypeVar("T", bound=CommonFields)


@dataclass(frozen=True)
class Asked(Generic[T]):
    """A request of a known caller."""

    principal: Principal
    request: T
    operation_id: str
    """The request's own, else minted."""
    call: Call


def handler(
    verifier: TokenVerifier,
    kind: type[T],
    act: Callable[[Asked[T]], Awaitable[Answer]],
    prepare: Callable[[Any], Any] = lambda document: document,
) -> Handler:
    """An operation's handler: whatever is refused becomes an answer with the request's operation_id.

    `prepare` makes of a parsed body what can be decoded.
    """

    async def handle(call: Call) -> Answer:
        operation_id = None
        try:
            principal = verifier.verify(call.principal)
            document: Any = parse(call.body)
            operation_id = own_operation_id(document)
            return await act(Asked(principal, decode(kind, prepare(document)), operation_id, call))
        except PamspecError as error:
            return refusal(error, operation_id)

    return handle
