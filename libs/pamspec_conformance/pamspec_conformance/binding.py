"""What a case needs of an implementation: one call that carries an operation document and brings its answer back.

Invariant: a binding decides nothing. It carries documents as they are, and tells what the implementation does not
offer from the implementation's own answer, never from a list.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Refusal:
    """The members of an error envelope (PAMSPEC P170)."""

    code: str
    message: str
    retryable: bool
    details: Mapping[str, Any]
    operation_id: str


@dataclass(frozen=True)
class Reply:
    """One answer. Positions stand beside the body, as None where the binding or the operation has none."""

    body: bytes
    document: Any
    """The parsed body; None where it is no JSON."""
    refusal: Refusal | None = None
    ledger_sequence: int | None = None
    as_of_sequence: int | None = None
    replayed: bool = False
    not_offered: bool = False
    """The implementation itself says that it has no such operation, or not that part of it."""
    status: int | None = None
    """The HTTP status, where there is one."""
    headers: Mapping[str, str] = field(default_factory=dict)


class Binding(Protocol):
    """A way to an implementation, as one principal."""

    async def call(self, operation: str, document: Document, *, idempotency_key: str | None = None) -> Reply:
        """The answer to an operation document. A key may travel beside the document, where the binding has a place."""

    async def aclose(self) -> None:
        """Frees what the binding holds."""


class RawHttp(Protocol):
    """Single HTTP requests, for the cases of the HTTP binding itself."""

    async def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """The answer to one request with exactly these headers: without credentials unless they are among them."""

    @property
    def credentials(self) -> Mapping[str, str]:
        """The headers that log the principal in."""


@dataclass(frozen=True)
class Facilities:
    """What a run can use beside its binding; a case that needs a missing one is not tried, and so never passes."""

    stranger: Binding | None = None
    """A principal that may see nothing of the first one's scopes: of another tenant."""
    restart: Callable[[], Awaitable[None]] | None = None
    """Ends the implementation and starts it again on the same store; returns when it answers."""
    http: RawHttp | None = None
    hold_indexes: Callable[[bool], Awaitable[None]] | None = None
    """Keeps what is derived from taking new entries in, or, with False, lets it go on."""


def refusal_of(document: Any) -> Refusal | None:
    """The error envelope that a document is; None for any other document."""
    inner = document.get("error") if isinstance(document, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("code"), str):
        return None
    details = inner.get("details")
    return Refusal(
        inner["code"],
        str(inner.get("message", "")),
        inner.get("retryable") is True,
        details if isinstance(details, Mapping) else {},
        str(inner.get("operation_id", "")),
    )


def parsed(body: bytes) -> Any:
    """The JSON value of a body, or None."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
