"""Scopes: resolving a name within its tenant, and creating one."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

import orjson

from pamspec_common import ids, ledger, strict_json
from pamspec_common.calls import HEADER_REPLAYED, Answer
from pamspec_common.errors import DuplicateOperation, ScopeNotFound
from pamspec_common.instants import wire
from pamspec_common.policy import authorize
from pamspec_common.postgres import Connection, Pool, connection, scoped
from pamspec_common.principal import Principal
from pamspec_common.scope_policy import parse_policy
from pamspec_write.documents.scopes import CreateScope
from pamspec_write.documents.snapshots import EARLIEST
from pamspec_write.model.evaluation import EVALUATION
from pamspec_write.model.facts import ScopeRef
from pamspec_write.model.rows import NO_BASIS, AdministrationRow, PolicyRow
from pamspec_write.queries import scopes as queries
from pamspec_write.queries.administration import record_change
from pamspec_write.queries.deletion import deletion
from pamspec_write.queries.rules import first_policy, insert_policy
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
            row["scope_key"],
            principal.tenant_id,
            scope_id,
            row["tenant_token"],
            row["scope_token"],
            row["partition"],
            orjson.loads(row["document"])["scope_kind"] == EVALUATION,
        )
        if len(self._known) >= _CACHE_LIMIT:
            self._known.clear()
        self._known[principal.tenant_id, scope_id] = ref
        return ref

    async def create(
        self,
        request: CreateScope,
        principal: Principal,
        actor_id: str,
        authenticated_as: str | None,
        policy_version: str,
    ) -> Answer:
        """Create a scope; the same document again is the same answer, another under its id duplicate_operation."""
        authorize(principal, "create_scope", principal.tenant_id)
        described = {"scope_id": request.scope_id, "scope_kind": request.scope_kind}
        if request.parent_scope_id is not None:
            described["parent_scope_id"] = request.parent_scope_id
        policy = None
        if request.policy is not None:
            parse_policy(request.policy)
            policy = strict_json.canonical(request.policy)
        operation_id = request.operation_id or ids.mint("op")
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            row = await conn.fetchrow(queries.NEXT_SCOPE_KEY_SQL)
            assert row is not None
            key, now = row
            async with scoped(conn, [key]):
                if await self._insert(conn, key, principal.tenant_id, request.scope_id, described, policy, now):
                    if policy is not None:
                        await insert_policy(
                            conn,
                            PolicyRow(key, 1, policy, None, actor_id, authenticated_as, operation_id, wire(now)),
                        )
                    await record_change(
                        conn,
                        AdministrationRow(
                            principal.tenant_id, 0, "create_scope", operation_id, actor_id, authenticated_as,
                            NO_BASIS, request.scope_kind, policy_version, request.scope_id,
                        ),
                    )  # fmt: skip
                    return _answer(operation_id, described, policy)
            stored = await conn.fetchrow(queries.RESOLVE_SCOPE_SQL, principal.tenant_id, request.scope_id)
            if stored is not None:
                async with scoped(conn, [stored["scope_key"]]):
                    if await deletion(conn, stored["scope_key"]) is not None:
                        raise DuplicateOperation(
                            "A scope of that id was deleted, and ids are not used again; use another one.",
                            details={"reason": "scope_deleted"},
                        )
            if stored is not None and orjson.loads(stored["document"]) == described:
                async with scoped(conn, [stored["scope_key"]]):
                    if await first_policy(conn, stored["scope_key"]) == policy:
                        return _answer(operation_id, described, policy, {HEADER_REPLAYED: "true"})
        raise DuplicateOperation("A scope of that id exists with another description; read it, or use another id.")

    async def _insert(
        self,
        conn: Connection,
        key: int,
        tenant_id: str,
        scope_id: str,
        described: dict[str, str],
        policy: bytes | None,
        now: datetime,
    ) -> bool:
        """Whether the scope is new."""
        ledger_id = os.urandom(16)
        inserted = await conn.execute(
            queries.INSERT_SCOPE_SQL,
            key,
            tenant_id,
            scope_id,
            ids.subject_token(tenant_id),
            ids.subject_token(tenant_id, scope_id),
            key % self._settings.partitions,
            strict_json.dumps(described),
            ledger_id,
            now,
        )
        if not inserted.endswith(" 1"):
            return False
        rules_version = 0 if policy is None else 1
        last_at = EARLIEST if described["scope_kind"] == EVALUATION else now
        await conn.execute(queries.INSERT_SCOPE_HEAD_SQL, key, ledger.genesis(ledger_id), last_at, rules_version)
        return True


def _answer(
    operation_id: str, described: dict[str, str], policy: bytes | None, headers: dict[str, str] | None = None
) -> Answer:
    scope: dict[str, Any] = dict(described)
    if policy is not None:
        scope["policy"] = strict_json.Fragment(policy)
    body = {"operation_id": operation_id, "policy_version": 0 if policy is None else 1, "scope": scope}
    return Answer(200, strict_json.dumps(body), headers or {})
