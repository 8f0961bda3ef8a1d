"""Scopes: resolving a name within its tenant, and creating one."""

from __future__ import annotations

import os

import orjson

from pamspec_common import ids, ledger, strict_json
from pamspec_common.calls import HEADER_REPLAYED, Answer
from pamspec_common.errors import DuplicateOperation, InvalidRequest, ScopeNotFound
from pamspec_common.policy import authorize
from pamspec_common.postgres import Pool, connection, scoped
from pamspec_common.principal import Principal
from pamspec_write.documents.service import CreateScope
from pamspec_write.model.facts import ScopeRef
from pamspec_write.queries import scopes as queries
from pamspec_write.settings import Settings

_CACHE_LIMIT = 200_000


class Scopes:
    """What never changes of scopes, cached: names are not reused within a tenant."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self._pool, self._settings = pool, settings
        self._known: dict[tuple[str, str], ScopeRef] = {}

    async def resolve(self, principal: Principal, scope_id: str) -> ScopeRef:
        """The scope of that name in the principal's tenant; ScopeNotFound otherwise."""
        known = self._known.get((principal.tenant_id, scope_id))
        if known is not None:
            return known
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            row = await conn.fetchrow(queries.RESOLVE_SCOPE_SQL, principal.tenant_id, scope_id)
        if row is None:
            raise ScopeNotFound
        ref = ScopeRef(
            row["scope_key"], principal.tenant_id, scope_id, row["tenant_token"], row["scope_token"], row["partition"]
        )
        if len(self._known) >= _CACHE_LIMIT:
            self._known.clear()
        self._known[principal.tenant_id, scope_id] = ref
        return ref

    async def create(self, request: CreateScope, principal: Principal) -> Answer:
        """Create a scope; the same document again is the same answer, another under its id duplicate_operation."""
        authorize(principal, "create_scope", principal.tenant_id)
        if request.policy:
            raise InvalidRequest("A scope's policy is not offered yet; create the scope without it.")
        described = {"scope_id": request.scope_id, "scope_kind": request.scope_kind}
        if request.parent_scope_id is not None:
            described["parent_scope_id"] = request.parent_scope_id
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            row = await conn.fetchrow(queries.NEXT_SCOPE_KEY_SQL)
            assert row is not None
            key, now, ledger_id = row[0], row[1], os.urandom(16)
            async with scoped(conn, [key]):
                inserted = await conn.execute(
                    queries.INSERT_SCOPE_SQL,
                    key,
                    principal.tenant_id,
                    request.scope_id,
                    ids.subject_token(principal.tenant_id),
                    ids.subject_token(principal.tenant_id, request.scope_id),
                    key % self._settings.partitions,
                    strict_json.dumps(described),
                    ledger_id,
                    now,
                )
                if inserted.endswith(" 1"):
                    await conn.execute(queries.INSERT_SCOPE_HEAD_SQL, key, ledger.genesis(ledger_id), now)
                    return _answer(request, strict_json.dumps(described))
            stored = await conn.fetchrow(queries.RESOLVE_SCOPE_SQL, principal.tenant_id, request.scope_id)
        if stored is None or orjson.loads(stored["document"]) != described:
            raise DuplicateOperation("A scope of that id exists with another description; read it, or use another id.")
        return _answer(request, stored["document"], {HEADER_REPLAYED: "true"})


def _answer(request: CreateScope, document: bytes, headers: dict[str, str] | None = None) -> Answer:
    body = {"operation_id": request.operation_id or ids.mint("op"), "scope": strict_json.Fragment(document)}
    return Answer(200, strict_json.dumps(body), headers or {})
