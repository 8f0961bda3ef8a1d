"""Exports and imports: operations one side of which is lines of JSON of any length, passed through as they come.

Invariants: nothing of a body is kept here (what the client does not take is not read from the service, what the service
does not take is not read from the client); the service learns the caller only from the signed principal that is put on
here; a caller whose key is no longer valid loses its transfer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Literal, NamedTuple

from pamspec_common.asgi import ASGIApp, ClientGone, Message, Receive, Scope, Send, send_answer
from pamspec_common.errors import InternalError, InvalidRequest, PamspecError, ServiceUnavailable, Unauthenticated
from pamspec_common.peers import Peer
from pamspec_common.principal import PRINCIPAL_HEADER
from pamspec_gateway.authentication import Guard
from pamspec_gateway.door import Load, address_of, check_content_type, check_length, headers_of, not_allowed, refused

_KEPT = frozenset((b"content-type", b"idempotency-key", b"traceparent"))
_LINES = frozenset((b"application/x-ndjson", b"application/ndjson", b"application/jsonl", b"application/octet-stream"))
_MAX_DOCUMENT = 256 * 1024

_log = logging.getLogger(__name__)


class Transfer(NamedTuple):
    """Where an operation goes, and which of its sides is long."""

    operation: str
    peer: Peer
    streams: Literal["request", "answer"]
    service: str


class TransferDoor:
    """Answers the operations in `transfers` (by path); everything else goes to `rest`."""

    def __init__(
        self, transfers: Mapping[str, Transfer], guard: Guard, load: Load, rest: ASGIApp, recheck_s: float
    ) -> None:
        self._transfers, self._guard, self._load, self._rest = dict(transfers), guard, load, rest
        self._recheck_s = recheck_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        transfer = self._transfers.get(scope["path"])
        if transfer is None or scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        if scope["method"] != "POST":
            await send_answer(send, not_allowed(scope["method"], "POST, OPTIONS"))
            return
        answering = _Answering(send)
        try:
            await self._pass(transfer, scope, receive, answering)
        except PamspecError as error:
            await answering.refuse(error)
        except (ClientGone, ConnectionResetError):
            return
        except Exception:
            extra = {"action": "door_failed", "operation": transfer.operation}
            _log.exception("the door failed", extra=extra)
            await answering.refuse(InternalError())
        self._load.answered[transfer.operation, answering.status] += 1

    async def _pass(self, transfer: Transfer, scope: Scope, receive: Receive, answering: _Answering) -> None:
        with self._load.admitted(waits=True) as room:
            headers, address = headers_of(scope), address_of(scope)
            admission = await self._guard.admit(headers, address)
            if transfer.streams == "request":
                _check_lines(headers)
            else:
                check_content_type(headers)
                check_length(headers, _MAX_DOCUMENT)
            room.claim(admission.holder)
            self._load.limiter.charge(admission.holder)
            if transfer.peer.app is None:
                raise ServiceUnavailable("The service behind this operation does not answer; try again shortly.")
            sending = self._load.limiter.absences.holding(answering.send)
            passing = asyncio.ensure_future(
                transfer.peer.app(_with_principal(scope, admission.tokens[transfer.service]), receive, sending)
            )
            try:
                while not passing.done():
                    moved = self._guard.moved
                    await asyncio.wait((passing, moved), timeout=self._recheck_s, return_when=asyncio.FIRST_COMPLETED)
                    if not passing.done() and not await self._guard.still_admits(headers, address):
                        _log.info("a transfer lost its key", extra={"action": "transfer_cut"})
                        raise Unauthenticated
                passing.result()
            finally:
                passing.cancel()
                await asyncio.gather(passing, return_exceptions=True)


class _Answering:
    """The answer of a service on its way, which may be refused as long as it has not begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    async def refuse(self, error: PamspecError) -> None:
        """Refuse; an answer that has begun ends where it is, which its reader sees by the missing last line."""
        if self.status:
            await self._send({"type": "http.response.body", "body": b""})
            return
        answer = refused(error)
        self.status = answer.status
        await send_answer(self._send, answer)


def _check_lines(headers: Mapping[bytes, bytes]) -> None:
    """InvalidRequest (415) for a body that says it is anything else than lines of JSON; a missing type passes."""
    media = headers.get(b"content-type", b"application/x-ndjson").partition(b";")[0].strip().lower()
    if media not in _LINES:
        raise InvalidRequest("Send the export as 'Content-Type: application/x-ndjson'.", status=415)
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise InvalidRequest("Send the body without Content-Encoding.", status=415)


def _with_principal(scope: Scope, token: str) -> Scope:
    headers = [(name, value) for name, value in scope["headers"] if name in _KEPT]
    return {**scope, "headers": [*headers, (PRINCIPAL_HEADER, token.encode())]}
