"""Embedding spaces of a tenant: described for good, and listed (PAMSPEC P27-P31).

Invariant: an id has one descriptor for ever. Descriptors hold no memory and belong to the tenant as a whole: whoever
may call at all may list them, and only administrators and the services add one.
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from pamspec_common import ids
from pamspec_common.calls import HEADER_REPLAYED, Answer
from pamspec_common.documents import Actor, take_header_key
from pamspec_common.embedding_spaces import MAX_SPACES, EmbeddingSpace, described
from pamspec_common.errors import DuplicateOperation, InvalidRequest
from pamspec_common.instants import wire
from pamspec_common.postgres import SHOW_TENANT_SQL, Connection, Pool, connection, scoped
from pamspec_common.principal import RIGHT_SERVICE, Principal
from pamspec_common.strict_json import dumps
from pamspec_write.documents.decoding import decode
from pamspec_write.documents.spaces import ListEmbeddingSpaces, RegisterEmbeddingSpace
from pamspec_write.handlers.access import Access, UnknownSpaces
from pamspec_write.handlers.administering import no_cursor, page_of
from pamspec_write.handlers.admission.acting import actor_of
from pamspec_write.model.rows import NO_BASIS, AdministrationRow
from pamspec_write.queries import spaces as queries
from pamspec_write.queries.administration import record_change
from pamspec_write.settings import Settings

OPERATIONS = ("register_embedding_space", "list_embedding_spaces")
_NOW_SQL = "SELECT clock_timestamp()"


class EmbeddingSpaces:
    """The two operations of embedding spaces."""

    def __init__(self, pool: Pool, settings: Settings, access: Access) -> None:
        self._pool, self._wait_ms, self._access = pool, settings.pool_wait_ms, access

    async def call(
        self, operation: str, document: dict[str, Any], body: bytes, principal: Principal, header_key: str | None
    ) -> Answer:
        """The answer of one of them."""
        if operation == "list_embedding_spaces":
            return await self._list(document, body, principal)
        return await self._register(document, body, principal, header_key)

    async def _register(
        self, document: dict[str, Any], body: bytes, principal: Principal, header_key: str | None
    ) -> Answer:
        request = decode(RegisterEmbeddingSpace, body)
        take_header_key(request, header_key)
        actor, authenticated_as = actor_of(principal, request, document)
        policy_version = await self._permitted(principal, actor, request.scope_id)
        space = described(document)
        operation_id = request.operation_id or ids.mint("op")
        tenant_id = principal.tenant_id
        async with connection(self._pool, self._wait_ms) as conn, scoped(conn, []):
            await conn.execute(SHOW_TENANT_SQL, tenant_id)
            known = await _known(conn, tenant_id, space)
            if known is not None:
                return _answer(operation_id, known, {HEADER_REPLAYED: "true"})
            if await queries.count_spaces(conn, tenant_id) >= MAX_SPACES:
                raise InvalidRequest(
                    f"A tenant has at most {MAX_SPACES} embedding spaces.", details={"limit": MAX_SPACES}
                )
            text = _descriptor(space, wire(await conn.fetchval(_NOW_SQL)), actor)
            row = queries.SpaceRow(
                tenant_id,
                space.embedding_space_id,
                text,
                space.dimensions,
                space.distance_metric,
                authenticated_as,
                operation_id,
            )
            if not await queries.insert_space(conn, row):
                known = await _known(conn, tenant_id, space)
                assert known is not None
                return _answer(operation_id, known, {HEADER_REPLAYED: "true"})
            await record_change(
                conn,
                AdministrationRow(
                    tenant_id, 0, "register_embedding_space", operation_id, actor.actor_id, authenticated_as,
                    NO_BASIS, space.model[:255], policy_version, space.embedding_space_id,
                ),
            )  # fmt: skip
        return _answer(operation_id, text)

    async def _permitted(self, principal: Principal, actor: Actor, scope_id: str | None) -> str:
        """The version of the rules by which the actor may describe spaces; raises where it may not."""
        scope = None if scope_id is None else await self._access.resolve(principal, scope_id)
        if principal.has(RIGHT_SERVICE):
            return "0.0"
        rights = await self._access.permitted("administer_spaces", principal, actor, scope, now=True)
        return f"{rights.epochs.tenant}.{rights.epochs.scope}"

    async def _list(self, document: dict[str, Any], body: bytes, principal: Principal) -> Answer:
        request = decode(ListEmbeddingSpaces, body)
        actor_of(principal, request, document)
        if request.scope_id is not None:
            await self._access.resolve(principal, request.scope_id)
        limit, cursor = page_of(request.pagination)
        if cursor is not None and not ids.is_id(cursor):
            raise no_cursor()
        async with connection(self._pool, self._wait_ms) as conn, scoped(conn, [], read_only=True):
            await conn.execute(SHOW_TENANT_SQL, principal.tenant_id)
            found = await queries.spaces(conn, principal.tenant_id, cursor or "", request.embedding_space_id, limit + 1)
        shown = [orjson.loads(text) for text in found[:limit]]
        more = shown[-1]["embedding_space_id"] if len(found) > limit else None
        operation_id = request.operation_id or ids.mint("op")
        return Answer(200, dumps({"operation_id": operation_id, "embedding_spaces": shown, "next_cursor": more}))


def unknown_spaces_of(pool: Pool, settings: Settings) -> UnknownSpaces:
    """What looks for spaces that a tenant has not described."""

    async def unknown(principal: Principal, named: list[str]) -> list[str]:
        async with connection(pool, settings.pool_wait_ms) as conn, scoped(conn, [], read_only=True):
            await conn.execute(SHOW_TENANT_SQL, principal.tenant_id)
            return await queries.unknown_spaces(conn, principal.tenant_id, named)

    return unknown


async def _known(conn: Connection, tenant_id: str, space: EmbeddingSpace) -> str | None:
    """The descriptor as it was registered before; DuplicateOperation when the id stands for another."""
    found = await queries.spaces(conn, tenant_id, "", space.embedding_space_id, 1)
    if not found:
        return None
    if described(orjson.loads(found[0])) != space:
        raise DuplicateOperation(
            "Another embedding space has this id, and vectors rest on it; use a new id.",
            details={"field": "embedding_space_id", "reason": "space_exists"},
        )
    return found[0]


def _descriptor(space: EmbeddingSpace, at: str, actor: Actor) -> str:
    by = {"actor_id": actor.actor_id, "actor_kind": actor.actor_kind}
    return dumps({**msgspec.structs.asdict(space), "created_at": at, "created_by": by}).decode()


def _answer(operation_id: str, descriptor: str, headers: dict[str, str] | None = None) -> Answer:
    body = dumps({"operation_id": operation_id, "embedding_space": orjson.loads(descriptor)})
    return Answer(200, body, headers or {})
