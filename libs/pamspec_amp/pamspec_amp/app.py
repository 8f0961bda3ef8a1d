"""The door, composed: a request of the protocol in, its answer out.

Invariant: it keeps nothing between requests, and reaches cells through the caller that it is given alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pamspec_amp.handlers import reading, writing
from pamspec_amp.handlers.capabilities import capabilities
from pamspec_amp.handlers.place import Place
from pamspec_amp.model import bodies
from pamspec_amp.model.agents import Agent, keyed, unkeyed
from pamspec_amp.model.cells import Cell
from pamspec_amp.model.errors import AccessDenied, AdminDisabled, AmpError, Invalid, RateLimited
from pamspec_amp.model.schemas import AMP_VERSION
from pamspec_amp.settings import Settings
from pamspec_common import strict_json
from pamspec_common.calls import Answer
from pamspec_common.operating import Caller

_log = logging.getLogger(__name__)
_MAX_KEY = 900
BODY_BYTES = 4 * writing.MAX_CELL_BYTES
"""A cell within its bound may be written with escapes; a body beyond this is none (413)."""


class Request(NamedTuple):
    """What was asked."""

    method: str
    path: str
    """Below the door's address."""
    query: Mapping[str, Sequence[str]]
    agent_id: str | None
    """The header X-AMP-Agent-ID."""
    body: bytes
    idempotency_key: str | None = None


class Principal(NamedTuple):
    """As whom the operations are called."""

    caller: Caller
    actor_id: str
    may_assert: bool
    keyed: bool
    """Whether the request brought a key; without one it acts as the operator's development mode lets it."""


class Routed(Exception):
    """Nothing answers this method and path."""

    def __init__(self, allowed: str | None) -> None:
        super().__init__()
        self.allowed = allowed


HEALTH = Answer(200, strict_json.dumps({"status": "ok", "amp_version": AMP_VERSION}))
"""The answer of GET /health, which needs no key (A11)."""


class Door:
    """The protocol over the operations."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def answer(self, request: Request, principal: Principal) -> Answer:
        """The answer, refusals too (A20)."""
        try:
            _check_key(request.idempotency_key)
            return await self._route(request, principal)
        except AmpError as error:
            return told(error)
        except Routed as nothing:
            return nothing_there(nothing.allowed)
        except Exception:
            _log.exception("the AMP door failed", extra={"action": "amp_failed"})
            return failed()

    async def _route(self, request: Request, principal: Principal) -> Answer:
        parts = request.path.strip("/").split("/")
        match parts, request.method:
            case ["spec"], "GET":
                return await self._spec(request, principal)
            case ["memories"], "POST":
                return await self._create(request, principal)
            case ["memories"] | ["memories", "query"], "GET":
                return _ok(await reading.listed(self._place(request, principal), request.query))
            case ["memories", "search"], "POST":
                place, body = self._place(request, principal), bodies.checked(request.body, "search")
                return _ok(await reading.search(place, body, self._settings.embedding_space))
            case ["memories", named], "GET":
                return _ok(await reading.get(self._place(request, principal), named))
            case ["memories", named], "PATCH":
                return await self._patch(request, principal, named)
            case ["memories", named], "DELETE":
                await writing.delete(self._place(request, principal), named, request.idempotency_key)
                return Answer(204, b"")
            case ["lifecycle", "run"], "POST":
                raise AdminDisabled
        raise Routed(_allowed(parts))

    def _place(self, request: Request, principal: Principal, created_by: str | None = None) -> Place:
        return Place(principal.caller, self._settings.scope_id, _agent(request, principal, created_by))

    async def _spec(self, request: Request, principal: Principal) -> Answer:
        agent = Agent(principal.actor_id, frozenset((principal.actor_id,)))
        return _ok(
            await capabilities(
                Place(principal.caller, self._settings.scope_id, agent),
                keys_required=not self._settings.development,
                interval_s=self._settings.interval_s,
                space=self._settings.embedding_space,
            )
        )

    async def _create(self, request: Request, principal: Principal) -> Answer:
        if principal.keyed or request.agent_id is not None:
            _agent(request, principal, None)
        body = bodies.checked(request.body, "create")
        said: str | None = body["identity"].get("created_by")
        place = self._place(request, principal, said)
        created_by = said if said is not None else place.agent.name
        if principal.keyed and created_by not in place.agent.names:
            raise AccessDenied("created_by names another agent than the one that calls.")
        cell = await writing.create(place, body, created_by, request.idempotency_key)
        return Answer(201, strict_json.canonical(await reading.one(place, cell)))

    async def _patch(self, request: Request, principal: Principal, named: str) -> Answer:
        place = self._place(request, principal)
        body = bodies.checked(request.body, "patch")
        cell = await writing.patch(place, named, body, request.idempotency_key)
        if not writing.readable(place, cell):
            return _ok(_unread(cell))
        return _ok(await reading.one(place, cell))


def _agent(request: Request, principal: Principal, created_by: str | None) -> Agent:
    if principal.keyed:
        return keyed(request.agent_id, principal.actor_id, may_assert=principal.may_assert)
    return unkeyed(request.agent_id, created_by, may_assert=principal.may_assert)


def _check_key(key: str | None) -> None:
    if key is not None and not 0 < len(key) <= _MAX_KEY:
        raise Invalid([{"field": "Idempotency-Key", "rule": "maxLength"}])


def _unread(cell: Cell) -> dict[str, Any]:
    """What an agent sees of a cell that it may change and not read (A43)."""
    return {"amp_version": AMP_VERSION, "id": cell.cell_id, "lifecycle": {"status": cell.status}}


def _allowed(parts: Sequence[str]) -> str | None:
    match parts:
        case ["health"] | ["spec"] | ["memories", "query"]:
            return "GET"
        case ["memories"]:
            return "GET, POST"
        case ["memories", "search"] | ["lifecycle", "run"]:
            return "POST"
        case ["memories", _]:
            return "DELETE, GET, PATCH"
    return None


def _ok(document: Mapping[str, Any]) -> Answer:
    return Answer(200, strict_json.canonical(dict(document)))


def told(error: AmpError) -> Answer:
    """The answer that tells an error."""
    headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, RateLimited) else {}
    return Answer(error.status, error.body(), headers)


def nothing_there(allowed: str | None) -> Answer:
    """The answer to a path or method that the protocol does not have."""
    error = Invalid([{"field": "path" if allowed is None else "method", "rule": "known"}])
    return Answer(404 if allowed is None else 405, error.body(), {} if allowed is None else {"Allow": allowed})


def failed() -> Answer:
    """The answer when the service failed, for which the protocol has no code of its own."""
    error = {"code": "INTERNAL_ERROR", "message": "The service failed; read before trying again.", "details": {}}
    return Answer(500, strict_json.dumps({"error": error}))
