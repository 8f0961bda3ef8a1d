"""A call of an operation, on its way from a door to the service that owns it.

In one process a handler is called as it stands; between processes, calls that are ready at the same moment travel in
one HTTP request, and each answer travels back as soon as it is there, so that a slow call holds up nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from pamspec_common.errors import PamspecError
from pamspec_common.ids import mint


class Call(msgspec.Struct, array_like=True, frozen=True):
    """One operation document: its bytes are validated once, by the service that owns the operation."""

    operation: str
    principal: str
    """The signed principal (principal.TokenSigner)."""
    body: bytes
    idempotency_key: str | None = None
    """The header Idempotency-Key, when the body does not carry the key itself."""
    traceparent: str | None = None
    """The W3C trace context that it belongs to."""
    answer_bytes: int | None = None
    """Where pages end, when the door passes on less than the service would answer."""


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """The answer of an operation: an HTTP status, JSON bytes, and positions as headers."""

    status: int
    body: bytes
    headers: dict[str, str] = {}


Handler = Callable[[Call], Awaitable[Answer]]
"""Answers a call; refusals are answers too, it raises only on a bug."""

Operations = Mapping[str, Handler]
"""The operations that a service owns, by name."""

HEADER_LEDGER_SEQUENCE = "Pamspec-Ledger-Sequence"
HEADER_LEDGER_EPOCH = "Pamspec-Ledger-Epoch"
HEADER_AS_OF_SEQUENCE = "Pamspec-As-Of-Sequence"
HEADER_REPLAYED = "Idempotency-Replayed"


def refusal(error: PamspecError, operation_id: str | None = None) -> Answer:
    """The answer that tells an error, under the operation's id or, where nobody knows one, a new one (S14)."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return Answer(error.http_status, error.body(operation_id or mint("op")), headers)
