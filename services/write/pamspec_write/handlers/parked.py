"""Parked entries: operators list what consumers of the ledger could not take in, have it replayed or passed over.

Invariant: the mark by which a consumer acts and the record of who asked for it are one transaction; what is shown and
noted of an entry are its ids and the reason, never content.
"""

from __future__ import annotations

import re
from typing import Any

import asyncpg

from pamspec_common import ids
from pamspec_common.calls import Answer
from pamspec_common.documents import take_header_key
from pamspec_common.errors import InvalidRequest, ObjectNotFound
from pamspec_common.instants import wire
from pamspec_common.postgres import SHOW_TENANT_SQL, Pool, connection, scoped
from pamspec_common.principal import Principal
from pamspec_common.strict_json import dumps
from pamspec_write.documents.decoding import decode
from pamspec_write.documents.parked import ListParkedEntries, ReplayParkedEntries
from pamspec_write.handlers.access import Access
from pamspec_write.handlers.administering import Asked, check_operator, check_own_name, no_cursor, page_of
from pamspec_write.handlers.admission.acting import actor_of
from pamspec_write.model.rows import AdministrationRow
from pamspec_write.queries import parked as queries
from pamspec_write.queries.administration import policy_version, record_change
from pamspec_write.settings import Settings

OPERATIONS = ("list_parked_entries", "replay_parked_entries")

_CURSOR = re.compile(r"([a-z]+) ([0-9]{1,18}) ([0-9]{1,18})", re.ASCII)
_TOLD = ("tenant_id", "scope_id", "sequence", "event_id", "event_type", "reason")


class ParkedEntries:
    """The two operations on parked entries."""

    def __init__(self, pool: Pool, settings: Settings, access: Access) -> None:
        self._pool, self._wait_ms, self._access = pool, settings.pool_wait_ms, access

    async def call(
        self, operation: str, document: dict[str, Any], body: bytes, principal: Principal, header_key: str | None
    ) -> Answer:
        """The answer of one of them; AccessDenied for others than operators, whatever they name."""
        if operation == "list_parked_entries":
            return await self._list(document, body, principal)
        return await self._replay(document, body, principal, header_key)

    async def _list(self, document: dict[str, Any], body: bytes, principal: Principal) -> Answer:
        request = decode(ListParkedEntries, body)
        actor, _ = actor_of(principal, request, document)
        check_operator(principal)
        check_own_name(principal, actor)
        if request.scope_id is not None and request.tenant_id is None:
            raise InvalidRequest(
                "Scopes are named within a tenant; send its tenant_id too.", details={"field": "tenant_id"}
            )
        limit, cursor = page_of(request.pagination)
        begin, after = _place(cursor)
        found: list[tuple[str, asyncpg.Record]] = []
        async with connection(self._pool, self._wait_ms) as conn:
            for consumer in queries.SCHEMAS:
                if request.consumer not in (None, consumer) or consumer < begin or len(found) > limit:
                    continue
                start = after if consumer == begin else (0, 0)
                left = limit + 1 - len(found)
                rows = await queries.entries(conn, consumer, request.tenant_id, request.scope_id, start, left)
                found += [(consumer, row) for row in rows]
        more = None
        if len(found) > limit:
            consumer, last = found[limit - 1]
            more = f"{consumer} {last['scope_key']} {last['sequence']}"
        answer = {"entries": [_shown(*one) for one in found[:limit]], "next_cursor": more}
        return Answer(200, dumps({"operation_id": request.operation_id or ids.mint("op"), **answer}))

    async def _replay(
        self, document: dict[str, Any], body: bytes, principal: Principal, header_key: str | None
    ) -> Answer:
        request = decode(ReplayParkedEntries, body)
        take_header_key(request, header_key)
        actor, authenticated_as = actor_of(principal, request, document)
        check_operator(principal)
        check_own_name(principal, actor)
        if request.skip and request.sequence is None:
            raise InvalidRequest("Name the entry that is passed over by its sequence.", details={"field": "sequence"})
        scope = await self._access.resolve(
            Principal(request.tenant_id, principal.actor_id, principal.actor_kind), request.scope_id
        )
        operation_id = request.operation_id or ids.mint("op")
        asked = Asked(
            "replay_parked_entries", operation_id, principal, actor, authenticated_as, scope, request.tenant_id
        )
        wanted = "skip" if request.skip else "replay"
        async with connection(self._pool, self._wait_ms) as conn, scoped(conn, [scope.scope_key]):
            await conn.execute(SHOW_TENANT_SQL, request.tenant_id)
            count = await queries.ask(conn, request.consumer, scope.scope_key, request.sequence, wanted)
            if not count:
                raise ObjectNotFound(
                    "Nothing is parked there; list_parked_entries shows what is.", details={"field": "sequence"}
                )
            row = AdministrationRow(
                *asked.place,
                operation=asked.operation,
                operation_id=operation_id,
                actor_id=actor.actor_id,
                authenticated_as=authenticated_as,
                policy_basis=request.policy_basis,
                detail=f"{wanted} {request.sequence or f'all, {count} entries'}",
                policy_version=await policy_version(conn, asked.place),
                subject=f"service:{request.consumer}",
            )
            await record_change(conn, row)
        return asked.answer(
            consumer=request.consumer, tenant_id=request.tenant_id, scope_id=request.scope_id, asked=wanted,
            entries=count,
        )  # fmt: skip


def _place(cursor: str | None) -> tuple[str, tuple[int, int]]:
    """Where a page begins: the consumer, and the place in its list that it follows."""
    if cursor is None:
        return "", (0, 0)
    found = _CURSOR.fullmatch(cursor)
    if found is None or found[1] not in queries.SCHEMAS:
        raise no_cursor()
    return found[1], (int(found[2]), int(found[3]))


def _shown(consumer: str, row: asyncpg.Record) -> dict[str, Any]:
    shown = {"consumer": consumer, **{name: row[name] for name in _TOLD}, "parked_at": wire(row["parked_at"])}
    if row["asked"] is not None:
        shown |= {"asked": row["asked"], "asked_at": wire(row["asked_at"])}
    return shown
