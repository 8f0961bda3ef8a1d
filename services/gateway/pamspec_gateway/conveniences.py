"""The conveniences over HTTP: each builds an operation document from its path, query and body, and calls the operation.

Invariant: a convenience decides nothing; its answer is the operation's, byte for byte.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pamspec_common import contracts, strict_json
from pamspec_common.asgi import ClientGone, read_body
from pamspec_common.calls import Answer
from pamspec_common.contracts.catalogues import Convenience
from pamspec_common.errors import InvalidRequest, PamspecError
from pamspec_common.telemetry import tracing
from pamspec_gateway.authentication import Guard
from pamspec_gateway.door import (
    Load,
    Room,
    Route,
    address_of,
    check_content_type,
    check_length,
    headers_of,
    make_call,
    refused,
    while_admitted,
    with_headers,
)
from pamspec_gateway.traced import traced

_IN_PAGINATION = frozenset(("limit", "cursor"))
_PAGE = 50
_MAX_DIGITS = 19

Endpoint = Callable[[Request], Awaitable[Response]]


def endpoint(convenience: Convenience, route: Route, guard: Guard, load: Load) -> Endpoint:
    """The function that answers one convenience."""
    kinds = {name: contracts.member_type(route.operation, name) for name in convenience.query}
    has_body = convenience.method in ("POST", "PATCH")

    async def answered(request: Request) -> Answer:
        try:
            headers = headers_of(request.scope)
            with load.admitted(route.waits) as room:
                admission = await guard.admit(headers, address_of(request.scope))
                limit = room.claim(admission.holder)
                check_length(headers, limit)
                members = {**query_members(request, kinds), **request.path_params}
                body = await _body(request, headers, limit, room) if has_body else {}
                call = make_call(route, admission, document(body, members), headers)
                answering = load.limiter.call(admission.holder, route.peer, call, waits=route.waits)
                if route.waits:
                    still = partial(guard.still_admits, headers, address_of(request.scope))
                    return await while_admitted(guard, answering, still)
                return await answering
        except PamspecError as error:
            await load.limiter.put_off(error)
            return refused(error)

    async def answer(request: Request) -> Response:
        if tracing.enabled:
            with traced(convenience.path, request.scope) as span:
                reply = await answered(request)
                span.answered(reply)
                reply = with_headers(reply, span.header)
        else:
            reply = await answered(request)
        load.answered[route.operation, reply.status] += 1
        return response(not_modified(request, reply))

    return answer


async def _body(request: Request, headers: Mapping[bytes, bytes], limit: int, room: Room) -> dict[str, Any]:
    check_content_type(headers)
    try:
        raw = await read_body(request.receive, limit, room.take)
    except ClientGone:
        raise InvalidRequest("The request ended before its body was whole.") from None
    if not raw:
        return {}
    body = strict_json.parse(raw)
    if not isinstance(body, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return body


def query_members(request: Request, kinds: Mapping[str, str | None]) -> dict[str, Any]:
    """The members that the query parameters stand for, each of its JSON type; a cursor alone goes on with 50 a page.

    InvalidRequest for an unknown, repeated or ill-typed one.
    """
    members: dict[str, Any] = {}
    pagination: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name not in kinds:
            known = ", ".join(sorted(kinds)) or "none"
            raise InvalidRequest(f"This path knows no such query parameter; it takes: {known}.")
        into = pagination if name in _IN_PAGINATION else members
        if name in into:
            raise InvalidRequest(f"The query parameter {name} stands twice; send it once.")
        into[name] = _integer(name, value) if kinds[name] == "integer" else value
    if pagination:
        members["pagination"] = {"limit": _PAGE, **pagination}
    return members


def _integer(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS):
        raise InvalidRequest(f"The query parameter {name} takes an integer from 0.", details={"field": name})
    return int(value)


def document(body: dict[str, Any], members: Mapping[str, Any]) -> bytes:
    """The operation document: the body with the members of path and query, which it may repeat but not contradict."""
    for name, value in members.items():
        if name in body and body[name] != value:
            raise InvalidRequest(f"The body names another {name} than the path; leave it out.", details={"field": name})
        body[name] = value
    return strict_json.canonical(body)


def not_modified(request: Request, answer: Answer) -> Answer:
    """304 without a body when the client has this very version already (If-None-Match)."""
    tag = answer.headers.get("ETag")
    held = request.headers.get("if-none-match")
    if tag is None or held is None or answer.status != 200 or request.method not in ("GET", "HEAD"):
        return answer
    if held.strip() == "*" or _bare(tag) in {_bare(one) for one in held.split(",")}:
        return Answer(304, b"", answer.headers)
    return answer


def _bare(tag: str) -> str:
    return tag.strip().removeprefix("W/").strip('"')


def response(answer: Answer) -> Response:
    """An answer as a response of the framework."""
    media_type = None if answer.status in (204, 304) else "application/json"
    return Response(answer.body, answer.status, dict(answer.headers), media_type)
