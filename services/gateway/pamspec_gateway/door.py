"""The operation door: `POST /v1/{operation}`, one small ASGI application in front of everything else.

Invariants: the body is handed on as it came, to be validated once, by the service that owns the operation; a client
that leaves cancels nothing that was handed on; what this process holds at once is bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import NamedTuple

from pamspec_common.asgi import ASGIApp, ClientGone, Receive, Scope, Send, read_body, send_answer
from pamspec_common.calls import Answer, Call, refusal
from pamspec_common.errors import InternalError, InvalidRequest, PamspecError, ServiceUnavailable, Unauthenticated
from pamspec_common.peers import Peer
from pamspec_common.telemetry import tracing
from pamspec_common.telemetry.metrics import REQUEST_SECONDS, REQUESTS, UNDER_WAY
from pamspec_gateway.authentication import Admission, Guard
from pamspec_gateway.limits.holders import Holder, TenantHolder
from pamspec_gateway.limits.limiter import Limiter
from pamspec_gateway.traced import traced

_log = logging.getLogger(__name__)
_JSON_TYPES = frozenset((b"application/json", b"application/json; charset=utf-8", b"application/json;charset=utf-8"))
_MAX_KEY_HEADER = 1024
_LAST_MOMENT_S = 0.5
_SINGLE = ("Authorization", "X-API-Key", "Idempotency-Key", "Content-Type", "Content-Encoding")
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="pamspec"'}


class Route(NamedTuple):
    """Where an operation goes."""

    operation: str
    peer: Peer
    waits: bool
    """Whether its calls may wait long without costing anything."""
    service: str
    """The name of the service, for which callers are signed."""


class Capacity(NamedTuple):
    """What one process takes on at once."""

    body_bytes: int
    buffered_bytes: int
    requests: int
    waiting: int


class Load:
    """What is under way in this process, and what was answered since the last flush."""

    def __init__(self, limits: Capacity, limiter: Limiter) -> None:
        self.limits, self.limiter = limits, limiter
        self.requests = self.waiting = self.buffered = 0
        self.answered: Counter[tuple[str, int]] = Counter()

    def admitted(self, waits: bool) -> Room:
        """Room for one more under way; ServiceUnavailable when there is none."""
        limits = self.limits
        if waits:
            if self.waiting >= limits.waiting:
                raise busy()
        elif self.requests >= limits.requests:
            raise busy()
        return Room(self, waits)

    def flush(self) -> None:
        """Move counts and levels into the metrics; one instrument call per request would cost more than the door."""
        answered, self.answered = self.answered, Counter()
        for (operation, status), count in answered.items():
            REQUESTS.add(count, {"operation": operation, "status": str(status)})
        held = {"requests": self.requests, "waiting": self.waiting, "body_bytes": self.buffered}
        for kind, value in held.items():
            UNDER_WAY.set(value, {"kind": kind})
        self.limiter.flush()


class Room:
    """What one request takes of the load while it is under way; `with` gives it back."""

    __slots__ = ("_length", "_load", "_tenant", "_waits")

    def __init__(self, load: Load, waits: bool) -> None:
        self._load, self._waits, self._length = load, waits, 0
        self._tenant: TenantHolder | None = None

    def __enter__(self) -> Room:
        load = self._load
        if self._waits:
            load.waiting += 1
        else:
            load.requests += 1
        return self

    def claim(self, holder: Holder) -> int:
        """Say whose request it is; how many bytes its body may have. ServiceUnavailable (429) beyond a limit."""
        load, tenant = self._load, holder.tenant
        load.limiter.check(holder)
        if self._waits:
            load.limiter.check_room(tenant, True, load.waiting, load.limits.waiting)
            tenant.waiting += 1
        else:
            load.limiter.check_room(tenant, False, load.requests, load.limits.requests)
            tenant.under_way += 1
        self._tenant = tenant
        return min(load.limits.body_bytes, tenant.body_bytes)

    def take(self, length: int) -> None:
        """Room for bytes of the body that have come; ServiceUnavailable when there is none.

        Bytes that are announced and do not come hold up nobody.
        """
        load = self._load
        if load.buffered + length > load.limits.buffered_bytes:
            raise busy()
        load.buffered += length
        self._length += length

    def __exit__(self, *failure: object) -> None:
        load = self._load
        load.buffered -= self._length
        if self._waits:
            load.waiting -= 1
        else:
            load.requests -= 1
        if self._tenant is not None:
            if self._waits:
                self._tenant.waiting -= 1
            else:
                self._tenant.under_way -= 1


class OperationDoor:
    """Answers the operations in `routes` (by path); everything else goes to `rest`."""

    def __init__(self, routes: Mapping[str, Route], guard: Guard, load: Load, rest: ASGIApp) -> None:
        self._routes, self._guard, self._load, self._rest = dict(routes), guard, load, rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(scope["path"])
        if route is None or scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        load, began = self._load, perf_counter()
        if tracing.enabled:
            with traced(f"/v1/{route.operation}", scope) as traces:
                answer = await self._answer(route, scope, receive)
                traces.answered(answer)
                answer = answer and with_headers(answer, traces.header)
        else:
            answer = await self._answer(route, scope, receive)
        if answer is None:
            return
        load.answered[route.operation, answer.status] += 1
        REQUEST_SECONDS.observe(perf_counter() - began, route.operation)
        await send_answer(send, answer)

    async def _answer(self, route: Route, scope: Scope, receive: Receive) -> Answer | None:
        """The answer, refusals too; None when the client has left."""
        try:
            if scope["method"] != "POST":
                return not_allowed(scope["method"], "POST, OPTIONS")
            return await self._operate(route, scope, receive)
        except PamspecError as error:
            await self._load.limiter.put_off(error)
            return refused(error)
        except ClientGone:
            return None
        except Exception:
            _log.exception("the door failed", extra={"action": "door_failed", "operation": route.operation})
            return refused(InternalError())

    async def _operate(self, route: Route, scope: Scope, receive: Receive) -> Answer:
        load = self._load
        headers = headers_of(scope)
        with load.admitted(route.waits) as room:
            admission = self._guard.remembered(headers.get(b"authorization"))
            if admission is None:
                admission = await self._guard.admit(headers, address_of(scope))
            limit = room.claim(admission.holder)
            check_length(headers, limit)
            check_content_type(headers)
            body = await read_body(receive, limit, room.take)
            call = make_call(route, admission, body, headers)
            answering = load.limiter.call(admission.holder, route.peer, call, waits=route.waits)
            if not route.waits:
                return await answering
            still = partial(self._guard.still_admits, headers, address_of(scope))
            return await while_admitted(self._guard, answering, still)


async def while_admitted(guard: Guard, call: Awaitable[Answer], still: Callable[[], Awaitable[bool]]) -> Answer:
    """The answer of a call that may wait long; Unauthenticated as soon as its caller would not be let in any more.

    ServiceUnavailable once the door stops and the answer is not there in a moment: what is waited for may come after
    the stop has cut everybody off.
    """
    waiting = asyncio.ensure_future(call)
    try:
        while not waiting.done():
            if guard.stopping:
                if not (await asyncio.wait((waiting,), timeout=_LAST_MOMENT_S))[0]:
                    raise ServiceUnavailable("The service is stopping; ask again.")
                break
            await asyncio.wait((waiting, guard.moved), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done() and not await still():
                raise Unauthenticated
        return waiting.result()
    finally:
        waiting.cancel()


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """The headers of a request; InvalidRequest when one of those that we decide by stands twice."""
    pairs: list[tuple[bytes, bytes]] = scope["headers"]
    headers = dict(pairs)
    if len(headers) != len(pairs):
        names = Counter(name for name, _ in pairs)
        for name in _SINGLE:
            if names[name.lower().encode()] > 1:
                raise InvalidRequest(f"The header {name} stands twice; send it once.")
    return headers


def make_call(
    route: Route,
    admission: Admission,
    body: bytes,
    headers: Mapping[bytes, bytes],
    answer_bytes: int | None = None,
) -> Call:
    """The call of an operation with what the headers add to its document."""
    operation, token = route.operation, admission.tokens[route.service]
    key = headers.get(b"idempotency-key")
    came = headers.get(b"traceparent")
    if key is None and came is None and not tracing.enabled:
        return Call(operation, token, body, answer_bytes=answer_bytes)
    if key is not None and (len(key) > _MAX_KEY_HEADER or not key.isascii()):
        raise InvalidRequest(
            f"The header Idempotency-Key takes at most {_MAX_KEY_HEADER} ASCII characters; shorten it.",
            details={"limit": _MAX_KEY_HEADER},
        )
    return Call(
        operation,
        token,
        body,
        key.decode("ascii") if key is not None else None,
        tracing.onward(None if came is None else came.decode("latin-1")),
        answer_bytes,
    )


def check_length(headers: Mapping[bytes, bytes], limit: int) -> None:
    """InvalidRequest (413) for a body that announces more than `limit` bytes."""
    length = headers.get(b"content-length")
    if length is not None and int(length) > limit:
        raise too_large(limit)


def too_large(limit: int) -> InvalidRequest:
    """The refusal of a body beyond a limit."""
    message = f"The request body is larger than {limit} bytes; send less at a time."
    return InvalidRequest(message, details={"limit": limit}, status=413)


def check_content_type(headers: Mapping[bytes, bytes]) -> None:
    """InvalidRequest (415) for a body that says it is not plain JSON; a missing type passes."""
    content_type = headers.get(b"content-type")
    if content_type is not None and content_type not in _JSON_TYPES:
        media = content_type.partition(b";")[0].strip().lower()
        if media != b"application/json" and not (media.startswith(b"application/") and media.endswith(b"+json")):
            raise InvalidRequest("Send the body as 'Content-Type: application/json'.", status=415)
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise InvalidRequest("Send the body without Content-Encoding.", status=415)


def not_allowed(method: str, allowed: str) -> Answer:
    """The answer to a method that a path does not have; OPTIONS learns which it has."""
    if method == "OPTIONS":
        return Answer(204, b"", {"Allow": allowed})
    error = InvalidRequest(f"This path answers {allowed}; use one of these methods.", status=405)
    return with_headers(refused(error), {"Allow": allowed})


def refused(error: PamspecError) -> Answer:
    """A refusal of the gateway itself, under an operation id of its own."""
    answer = refusal(error)
    return with_headers(answer, CHALLENGE) if error.http_status == Unauthenticated.status else answer


def with_headers(answer: Answer, more: Mapping[str, str]) -> Answer:
    """The same answer with more headers."""
    return Answer(answer.status, answer.body, {**answer.headers, **more})


def busy() -> ServiceUnavailable:
    """Too much is under way in this process."""
    return ServiceUnavailable("The gateway has too much under way; try again with the same key.")


def address_of(scope: Scope) -> str:
    """The address that a request came from."""
    client = scope.get("client")
    return str(client[0]) if client else ""
