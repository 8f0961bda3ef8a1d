"""uvicorn's HTTP protocol with bounds on the head of a request, and refusals in the error envelope.

The server below knows no limit for headers that never end or come a byte at a time; both would hold memory and
connections for ever.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pamspec_common.calls import refusal
from pamspec_common.errors import InvalidRequest

HEAD_TIMEOUT_S = 10.0
HEAD_MAX_BYTES = 64 * 1024


class LimitedHttpProtocol(HttpToolsProtocol):
    """Closes a connection whose request head is not whole within 10 seconds or 64 KiB."""

    _head_since = 0.0
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_since = self.loop.time()

    def on_message_begin(self) -> None:
        if self._head_since == 0.0:
            self._head_since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_since, self._head_bytes = 0.0, 0
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_since:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_MAX_BYTES and not self.transport.is_closing():
                self._refuse(
                    "The head of the request is larger than 64 KiB; send fewer or shorter headers.",
                    b"431 Request Header Fields Too Large",
                )

    def close_when_slow(self) -> None:
        """Called about once a second by the server."""
        if self._head_since and self.loop.time() - self._head_since > HEAD_TIMEOUT_S:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(
            "This is not a well-formed HTTP/1.1 request; correct its request line and headers.", b"400 Bad Request"
        )

    def _refuse(self, message: str, status_line: bytes) -> None:
        body = refusal(InvalidRequest(message)).body
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status_line, len(body)) + body)
        self.transport.close()
