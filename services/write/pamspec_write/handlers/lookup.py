"""Operation look-up: what became of a write whose answer was lost (K8, S18).

Invariant: `unknown` is final. It is answered only under the scope's lock, with an abandoned record written first, so
that a late execution of the same operation is refused.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import orjson

from pamspec_common import ids, strict_json
from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest, PamspecError
from pamspec_common.policy import authorize
from pamspec_common.postgres import Connection, Pool, connection, scoped
from pamspec_common.principal import RIGHT_AUDIT, Principal
from pamspec_write import queries
from pamspec_write.documents import GetOperation, decode
from pamspec_write.handlers.lanes import Lanes
from pamspec_write.handlers.scopes import Scopes
from pamspec_write.model.commands import key_hash, operation_hash
from pamspec_write.model.facts import Record, ScopeRef, ScopeState
from pamspec_write.model.records import ABANDONED, COMMITTED, outcome
from pamspec_write.settings import Settings

_STATE_NAMES = {"c": "committed", "f": "failed", "a": "unknown"}


class Lookup:
    """Answers get_operation."""

    def __init__(self, pool: Pool, settings: Settings, scopes: Scopes, lanes: Lanes) -> None:
        self._pool, self._settings, self._scopes, self._lanes = pool, settings, scopes, lanes

    async def get_operation(self, document: dict[str, Any], body: bytes, principal: Principal) -> Answer:
        """The state and outcome of an operation of the same principal; an auditor may name another by `actor`."""
        request = decode(GetOperation, body)
        if (request.operation_id is None) == (request.idempotency_key is None):
            raise InvalidRequest("Send operation_id, or operation and idempotency_key.")
        if request.idempotency_key is not None and request.operation is None:
            raise InvalidRequest("A look-up by idempotency_key needs the operation that it was sent with.")
        scope = await self._scopes.resolve(principal, request.scope_id)
        authorize(principal, "get_operation", scope.tenant_id)
        owner = principal.actor_id
        asserted = document.get("actor")
        if isinstance(asserted, dict) and principal.has(RIGHT_AUDIT) and ids.is_id(asserted.get("actor_id")):
            owner = asserted["actor_id"]
        by_key = request.operation_id is None
        operation_id = request.operation_id or ids.mint("op")
        hash_ = operation_hash(owner, operation_id)
        key = key_hash(owner, request.operation or "", request.idempotency_key or "") if by_key else None
        if not by_key and self._lanes.is_pending(hash_):
            return _answer("in_progress", operation_id, None)
        return await self._look(scope, owner, request, operation_id, hash_, key)

    async def _look(
        self, scope: ScopeRef, owner: str, request: GetOperation, operation_id: str, hash_: bytes, key: bytes | None
    ) -> Answer:
        named = None if key is not None else operation_id
        async with connection(self._pool, self._settings.pool_wait_ms) as conn, scoped(conn, [scope.scope_key]):
            state, record = await _find(conn, scope, hash_, key)
            if record is not None:
                return await _found(conn, state, record, owner)
            if not await _locked(conn, scope, request.wait_ms):
                return _answer("in_progress", named, None)
            state, record = await _find(conn, scope, hash_, key)
            if record is not None:
                return await _found(conn, state, record, owner)
            await conn.execute(
                queries.INSERT_ABANDONED_SQL,
                scope.scope_key,
                hash_,
                key,
                request.operation or "unknown",
                operation_id,
                owner,
            )
            await conn.execute(queries.BUMP_REVISION_SQL, scope.scope_key)
            return _answer("unknown", named, None)


async def _locked(conn: Connection, scope: ScopeRef, wait_ms: int) -> bool:
    """Take the scope's lock within wait_ms."""
    await conn.execute(f"SET LOCAL lock_timeout = {max(1, wait_ms)}; SAVEPOINT before_lock")
    try:
        await queries.lock(conn, [scope.scope_key], wait=True)
    except asyncpg.LockNotAvailableError:
        await conn.execute("ROLLBACK TO SAVEPOINT before_lock")
        return False
    return True


async def _find(conn: Connection, scope: ScopeRef, hash_: bytes, key: bytes | None) -> tuple[ScopeState, Record | None]:
    wanted = queries.Wanted()
    wanted.scopes.add(scope.scope_key)
    if key is None:
        wanted.operations.add((scope.scope_key, hash_))
    else:
        wanted.keys.add((scope.scope_key, key))
    state = (await queries.prefetch(conn, wanted, [scope]))[scope.scope_key]
    return state, next(iter(state.records.values()), None)


async def _found(conn: Connection, state: ScopeState, record: Record, owner: str) -> Answer:
    if record.state == ABANDONED:
        return _answer("unknown", record.operation_id, None)
    if record.operation == "batch" and record.state == COMMITTED:
        return _answer("committed", record.operation_id, await _batch_outcome(conn, state, record, owner))
    return _answer(_STATE_NAMES[record.state], record.operation_id, _outcome_body(state, record))


def _outcome_body(state: ScopeState, record: Record) -> bytes:
    """The answer's body; of an erased outcome what a replay would say."""
    try:
        return outcome(state, record).body
    except PamspecError as error:
        return error.body(record.operation_id)


async def _batch_outcome(conn: Connection, state: ScopeState, record: Record, owner: str) -> bytes:
    """A batch's answer put together from the records of its items."""
    entries = orjson.loads(record.stored or b'{"items":[]}')["items"]
    wanted = queries.Wanted()
    wanted.scopes.add(state.ref.scope_key)
    hashes = [operation_hash(owner, entry["operation_id"]) if "operation_id" in entry else None for entry in entries]
    wanted.operations = {(state.ref.scope_key, hash_) for hash_ in hashes if hash_ is not None}
    found = (await queries.prefetch(conn, wanted, [state.ref]))[state.ref.scope_key].records
    results: list[bytes] = []
    for entry, hash_ in zip(entries, hashes, strict=True):
        item = None if hash_ is None else found.get(hash_)
        if item is None:
            results.append(strict_json.dumps({key: entry[key] for key in ("error", "operation_id") if key in entry}))
        else:
            results.append(_outcome_body(state, item))
    return b'{"operation_id":' + strict_json.dumps(record.operation_id) + b',"results":[' + b",".join(results) + b"]}"


def _answer(state: str, operation_id: str | None, body: bytes | None) -> Answer:
    document = {
        "operation_id": operation_id,
        "outcome": None if body is None else strict_json.Fragment(body),
        "state": state,
    }
    return Answer(200, strict_json.dumps(document))
