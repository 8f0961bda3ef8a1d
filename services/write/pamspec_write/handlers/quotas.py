"""Quotas of tenants: operators set them, administrators and auditors of a tenant read them beside what is used.

Invariant: a document, the raised epoch, the version that commits compare and the record of who set it are one
transaction; what commits after it was decided under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pamspec_common import ids
from pamspec_common.calls import Answer
from pamspec_common.documents import decode as decode_part
from pamspec_common.errors import ObjectNotFound, VersionConflict
from pamspec_common.instants import wire
from pamspec_common.postgres import Pool, connection, scoped
from pamspec_common.principal import RIGHT_OPERATOR, Principal
from pamspec_common.quotas import NO_QUOTAS, Quotas, quotas_of, stored_quotas
from pamspec_common.strict_json import dumps
from pamspec_write.documents.administration import GetQuotas, SetQuotas
from pamspec_write.documents.decoding import decode
from pamspec_write.handlers.access import Access
from pamspec_write.handlers.administering import Asked, check_operator, record
from pamspec_write.handlers.admission.acting import actor_of
from pamspec_write.model.facts import Stored
from pamspec_write.queries import quotas as queries
from pamspec_write.queries import usage
from pamspec_write.settings import Settings

OPERATIONS = ("get_quotas", "set_quotas")


class TenantQuotas:
    """The two operations of quotas."""

    def __init__(self, pool: Pool, settings: Settings, access: Access) -> None:
        self._pool, self._wait_ms, self._access = pool, settings.pool_wait_ms, access
        self._defaults = NO_QUOTAS.over(quotas_of(settings.quota_defaults))

    async def call(self, operation: str, document: dict[str, Any], body: bytes, principal: Principal) -> Answer:
        """The answer of one of them."""
        if operation == "get_quotas":
            return await self._get(document, body, principal)
        return await self._set(document, body, principal)

    async def _get(self, document: dict[str, Any], body: bytes, principal: Principal) -> Answer:
        request = decode(GetQuotas, body)
        actor, _ = actor_of(principal, request, document)
        tenant_id = request.tenant_id or principal.tenant_id
        if tenant_id != principal.tenant_id:
            check_operator(principal)
        elif not principal.has(RIGHT_OPERATOR):
            await self._access.permitted("get_quotas", principal, actor, None)
        reader = Principal(tenant_id, principal.actor_id, principal.actor_kind)
        scope = None if request.scope_id is None else await self._access.resolve(reader, request.scope_id)
        key = 0 if scope is None else scope.scope_key
        async with connection(self._pool, self._wait_ms) as conn, scoped(conn, [key] if key else []):
            row = await queries.quotas_row(conn, tenant_id, request.quotas_version)
            tenant, in_scope = await usage.usage_of(conn, tenant_id, key)
        if row is None:
            raise ObjectNotFound("There is no such tenant, or no such version of its quotas.")
        used = {"tenant": _counts(tenant)} | ({} if in_scope is None else {"scope": _counts(in_scope)})
        quotas = stored_quotas(row["quotas"])
        answer = {
            "operation_id": request.operation_id or ids.mint("op"),
            "tenant_id": tenant_id,
            "quotas_version": row["quotas_version"] or 0,
            "quotas": _document(quotas),
            "in_force": _document(quotas.over(self._defaults)),
            "used": used,
        }
        if row["quotas"] is not None:
            answer |= {
                "policy_basis": row["policy_basis"],
                "changed_by": row["actor_id"],
                "changed_at": wire(row["changed_at"]),
            }
        return Answer(200, dumps(answer))

    async def _set(self, document: dict[str, Any], body: bytes, principal: Principal) -> Answer:
        request = decode(SetQuotas, body)
        decode_part(Quotas, document["quotas"])
        actor, authenticated_as = actor_of(principal, request, document)
        check_operator(principal)
        tenant_id = request.tenant_id or principal.tenant_id
        operation_id = request.operation_id or ids.mint("op")
        async with connection(self._pool, self._wait_ms) as conn, scoped(conn, []):
            current = await queries.begin_change(conn, tenant_id)
            if current is None:
                raise ObjectNotFound("There is no such tenant; check tenant_id.", details={"field": "tenant_id"})
            if current != request.expected_quotas_version:
                raise VersionConflict(
                    "The quotas are those of another version; read them again, then decide.",
                    details={
                        "current_quotas_version": current,
                        "expected_quotas_version": request.expected_quotas_version,
                    },
                )
            row = queries.QuotasRow(
                tenant_id,
                current + 1,
                msgspec.json.encode(request.quotas).decode(),
                request.policy_basis,
                actor.actor_id,
                authenticated_as,
                operation_id,
            )
            await usage.lock_usage(conn, [tenant_id])
            await queries.change_quotas(conn, row)
            asked = Asked("set_quotas", operation_id, principal, actor, authenticated_as, None, tenant_id)
            await record(conn, asked, request.policy_basis, None, str(row.quotas_version))
        return asked.answer(tenant_id=tenant_id, quotas_version=row.quotas_version)


def _counts(stored: Stored) -> Mapping[str, int]:
    return {
        "objects": max(0, stored.objects),
        "versions": max(0, stored.versions),
        "content_bytes": max(0, stored.content_bytes),
    }


def _document(quotas: Quotas) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(quotas)
    return {part: bounds for part, bounds in document.items() if bounds}
