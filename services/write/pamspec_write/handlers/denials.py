"""Refusals of access that services tell of: in the ledger of a scope, or in the tenant's audit log (PAMSPEC P173).

Invariant: an entry stands in a scope only of the principal's own tenant; what was named there and does not exist, and
what names no scope, stands in the tenant's own log. Where it is goes by the name alone, never by who asked.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from pamspec_common import ids
from pamspec_common.calls import Answer
from pamspec_common.errors import AccessDenied, ScopeNotFound
from pamspec_common.postgres import Pool, connection, scoped
from pamspec_common.principal import RIGHT_SERVICE, Principal
from pamspec_common.strict_json import dumps
from pamspec_write.documents.decoding import decode
from pamspec_write.documents.entries import RecordEvent, check_event
from pamspec_write.documents.service import RecordDenial
from pamspec_write.handlers.access import Access
from pamspec_write.handlers.admission.acting import actor_of
from pamspec_write.handlers.admission.commands import command_of
from pamspec_write.handlers.lanes import Lanes
from pamspec_write.queries.administration import record_refusal
from pamspec_write.settings import Settings

_NO_RULE = "no rule permits it"


class DenialRecords:
    """Answers record_denial."""

    def __init__(self, pool: Pool, settings: Settings, access: Access, lanes: Lanes) -> None:
        self._pool, self._settings, self._access, self._lanes = pool, settings, access, lanes

    async def record(self, document: dict[str, Any], body: bytes, principal: Principal) -> Awaitable[Answer]:
        """The work of recording; AccessDenied for others than services."""
        if not principal.has(RIGHT_SERVICE):
            raise AccessDenied("record_denial is for the services themselves.")
        request = decode(RecordDenial, body)
        request.operation_id = request.operation_id or ids.mint("op")
        event = RecordEvent(
            scope_id=request.scope_id or "scope:none",
            operation_id=request.operation_id,
            actor=request.actor,
            event_type="access_denied",
            payload=request.payload,
        )
        check_event(event)
        return self._record(request, event, document, principal)

    async def _record(
        self, request: RecordDenial, event: RecordEvent, document: dict[str, Any], principal: Principal
    ) -> Answer:
        if request.scope_id is not None:
            answer = await self._in_scope(request, event, document, principal)
            if answer is not None:
                return answer
        actor, _ = actor_of(principal, event, document)
        payload = request.payload
        async with connection(self._pool, self._settings.pool_wait_ms) as conn, scoped(conn, []):
            await record_refusal(
                conn,
                principal.tenant_id,
                operation=payload["operation"],
                operation_id=str(request.operation_id),
                actor_id=actor.actor_id,
                authenticated_as=request.asked_by,
                basis=payload.get("policy_rule_id", _NO_RULE),
                scope_id=request.scope_id,
                reason=payload["reason"],
                count=payload["count"],
            )
        return _answer(request, "audit_log")

    async def _in_scope(
        self, request: RecordDenial, event: RecordEvent, document: dict[str, Any], principal: Principal
    ) -> Answer | None:
        """The answer where the scope is the tenant's and takes the entry."""
        try:
            scope = await self._access.resolve(principal, event.scope_id)
        except ScopeNotFound:
            return None
        command = await command_of("record_event", event, document, principal, scope, self._access, named=True)
        command.authenticated_as = request.asked_by
        answer = await self._lanes.submit(command)
        if answer.status < 400:
            return _answer(request, "ledger", answer.headers)
        return answer if answer.status >= 429 else None


def _answer(request: RecordDenial, place: str, headers: dict[str, str] | None = None) -> Answer:
    return Answer(200, dumps({"operation_id": request.operation_id, "recorded_in": place}), headers or {})
