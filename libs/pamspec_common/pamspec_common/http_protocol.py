"""uvicorn's HTTP protocol, with bounds on how slow and large a request may be and refusals in the error envelope.

The server below knows no limit for headers that never end, nor for heads and bodies that come a byte at a time; each
would hold memory and a connection for ever; so would an answer that the client does not take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from pamspec_common.calls import refusal
from pamspec_common.errors import AccessDenied, InvalidRequest, PamspecError, ServiceUnavailable
from pamspec_common.tls import names_of

HEAD_TIMEOUT_S = 10.0
HEAD_MAX_BYTES = 64 * 1024
BODY_GRACE_S = 30.0
BODY_MIN_BYTES_PER_S = 10_000
"""A body may take the grace and, beyond it, as long as it would take at this rate; it is never silent for longer than
the grace."""
ANSWER_STALL_S = 30.0
"""How long a client may take nothing of its answer; how fast it has to, beyond that, is the rate of bodies."""
MAX_UNTAKEN_BYTES = 256 * 1024 * 1024
"""What all clients of one server together may leave untaken; beyond it those that have stalled longest are cut off."""
MAX_CONNECTIONS = 16_384
"""Connections that one server holds; the server sets it by the limit of open files."""
LINGER_S = 5.0
"""How long what still comes is thrown away after a refusal, so that the client can read it."""

HEALTH_PATHS = frozenset((b"/healthz", b"/readyz", b"/metrics"))
"""What a door that asks for client certificates answers without one: whoever probes a container has none."""

_TOO_SLOW = "The request came too slowly; send it again."


class LimitedHttpProtocol(HttpToolsProtocol):
    """Closes a connection whose request does not come in bounded time and size."""

    callers: frozenset[str] | None = None
    """Names of which the client's certificate must have one; None lets everybody in."""

    _head_since = 0.0
    _head_bytes = 0
    _body_deadline = 0.0
    _since_body = 0
    """Bytes that came after the head and the last part of the body: trailers and what else stands between chunks."""
    _refused_at = 0.0
    _answer_deadline = 0.0
    untaken = 0
    """Bytes of answers that the client has not taken, as of the last look."""
    taken_at = 0.0
    """When the client was last seen to take something, while something is untaken."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_since = self.loop.time()
        if len(self.connections) > MAX_CONNECTIONS:
            error = ServiceUnavailable("The service holds as many connections as it can; try again shortly.")
            self._refuse(error, b"503 Service Unavailable\r\nretry-after: 1")

    def on_message_begin(self) -> None:
        if self._head_since == 0.0:
            self._head_since = self.loop.time()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._body_deadline:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._refused_at:
            return
        if not self._may_come_in():
            error = AccessDenied("This door asks for a client certificate with the name of a caller that it knows.")
            self._refuse(error, b"403 Forbidden")
            return
        self._head_since, self._head_bytes, self._since_body = 0.0, 0, 0
        self._body_deadline = self.loop.time() + BODY_GRACE_S
        super().on_headers_complete()

    def _may_come_in(self) -> bool:
        if self.callers is None or self.url.partition(b"?")[0] in HEALTH_PATHS:
            return True
        return not self.callers.isdisjoint(names_of(self.transport.get_extra_info("peercert")))

    def handle_websocket_upgrade(self) -> None:
        if not self._refused_at:
            super().handle_websocket_upgrade()

    def on_body(self, body: bytes) -> None:
        if self._refused_at:
            return
        self._since_body = 0
        further = self._body_deadline + len(body) / BODY_MIN_BYTES_PER_S
        self._body_deadline = min(further, self.loop.time() + BODY_GRACE_S)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._refused_at:
            return
        self._body_deadline = 0.0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._body_deadline:
            self._body_deadline = min(self._body_deadline, self.loop.time() + LINGER_S)
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        if self._refused_at:
            return
        self._since_body += len(data)
        super().data_received(data)
        if self._refused_at:
            return
        if self._head_since:
            self._head_bytes += len(data)
        if self._head_bytes > HEAD_MAX_BYTES or (self._body_deadline and self._since_body > HEAD_MAX_BYTES):
            error = InvalidRequest("The head of the request is larger than 64 KiB; send fewer or shorter headers.")
            self._refuse(error, b"431 Request Header Fields Too Large")

    def close_when_slow(self) -> None:
        """Called about once a second by the server."""
        now = self.loop.time()
        self._look_at_answer(now)
        if self.untaken and (now - self.taken_at > ANSWER_STALL_S or now > self._answer_deadline):
            self.cut_off()
        if self.transport.is_closing():
            return
        if self._refused_at:
            if now - self._refused_at > LINGER_S:
                self.transport.close()
        elif self._head_since and now - self._head_since > HEAD_TIMEOUT_S:
            if self._head_bytes:
                self._refuse(InvalidRequest(_TOO_SLOW), b"408 Request Timeout")
            else:
                self.transport.close()
        elif self._body_deadline and now > self._body_deadline and not self.flow.read_paused:
            self._refuse(InvalidRequest(_TOO_SLOW), b"408 Request Timeout")

    def _look_at_answer(self, now: float) -> None:
        size = self.transport.get_write_buffer_size()
        if not self.untaken:
            self._answer_deadline = now + ANSWER_STALL_S + size / BODY_MIN_BYTES_PER_S
        if size < self.untaken or not self.untaken:
            self.taken_at = now
        self.untaken = size

    def resume_writing(self) -> None:
        self.untaken = 0
        super().resume_writing()

    def cut_off(self) -> None:
        """End the connection at once and free what its client has not taken."""
        self.untaken = 0
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        error = InvalidRequest("This is not a well-formed HTTP/1.1 request; correct its request line and headers.")
        self._refuse(error, b"400 Bad Request")

    def _refuse(self, error: PamspecError, status_line: bytes) -> None:
        """Answer the request that is coming; only close where that would get into another request's answer."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started or not self._body_deadline:
                self.transport.close()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        elif self._body_deadline:
            self.transport.close()
            return
        body = refusal(error).body
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status_line, len(body)) + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._refused_at = self.loop.time()


def cut_off_stalled(connections: Iterable[LimitedHttpProtocol]) -> None:
    """Called about once a second by the server, after each connection has looked at its own answer."""
    holding = sorted((one for one in connections if one.untaken), key=lambda one: one.taken_at)
    total = sum(one.untaken for one in holding)
    for one in holding:
        if total <= MAX_UNTAKEN_BYTES:
            return
        total -= one.untaken
        one.cut_off()
