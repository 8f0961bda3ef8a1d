"""The span of a request at a door: where the trace of a client goes on, or begins.

Its attributes are those of the field's conventions, of which none is taken from a path, a query, a body or a header.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.trace import Span

from pamspec_common.asgi import Scope
from pamspec_common.calls import Answer
from pamspec_common.telemetry import tracing

_FAILED = 500
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class Traced:
    """The span of one request."""

    def __init__(self, span: Span, status: str) -> None:
        self._span, self._status = span, status

    @property
    def header(self) -> dict[str, str]:
        """What an answer over HTTP says of it."""
        told = tracing.current()
        return {} if told is None else {tracing.HEADER: told}

    def answered(self, answer: Answer | None) -> None:
        """Note how it was answered; None: its client has left."""
        if answer is None:
            tracing.failed(self._span, "client_left")
            return
        self._span.set_attribute(self._status, answer.status)
        if answer.status >= _FAILED:
            tracing.failed(self._span, str(answer.status))


@contextmanager
def traced(route: str, scope: Scope) -> Iterator[Traced]:
    """A request over HTTP to this route, as the contract writes it."""
    method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
    came = next((value for name, value in scope["headers"] if name == b"traceparent"), None)
    attributes = {"http.request.method": method, "http.route": route}
    received = None if came is None else came.decode("latin-1")
    with tracing.root("gateway", f"{method} {route}", received, attributes) as span:
        yield Traced(span, "http.response.status_code")


@contextmanager
def traced_message(operation: str, headers: Mapping[str, str] | None) -> Iterator[Traced]:
    """A request over the bus."""
    attributes = {
        "messaging.system": "nats",
        "messaging.operation.name": "request",
        "messaging.operation.type": "process",
        "messaging.destination.template": "pamspec.op.{principal_token}.{operation}",
        "rpc.method": operation,
    }
    with tracing.root("gateway", f"request {operation}", (headers or {}).get(tracing.HEADER), attributes) as span:
        yield Traced(span, "rpc.response.status_code")
