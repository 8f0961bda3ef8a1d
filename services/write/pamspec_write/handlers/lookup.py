"""Operation look-up: what became of a write whose answer was lost (K8, S18).

Invariant: `unknown` is final. It is answered only under the scope's lock, with an abandoned record written first, so
that a late execution of the same operation is refused. A look-up that waits holds a connection only in short slices.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import asyncpg
import msgspec

from pamspec_common import ids, strict_json
from pamspec_common.calls import HEADER_LEDGER_EPOCH, Answer
from pamspec_common.documents import Actor
from pamspec_common.errors import InvalidRequest
from pamspec_common.policy import acting_actor, authorize
from pamspec_common.postgres import Connection, Pool, connection, scoped
from pamspec_common.principal import RIGHT_AUDIT, Principal
from pamspec_write.documents.decoding import decode
from pamspec_write.documents.service import GetOperation
from pamspec_write.handlers.access import Access, own_actor
from pamspec_write.handlers.lanes import Lanes
from pamspec_write.handlers.scopes import Scopes
from pamspec_write.model.batches import kept_of, rebuilt, result_of
from pamspec_write.model.commands import key_hash, operation_hash
from pamspec_write.model.facts import Document, Record, ScopeRef, ScopeState
from pamspec_write.model.records import ABANDONED, COMMITTED
from pamspec_write.queries.commit import lock
from pamspec_write.queries.prefetch import Wanted, prefetch
from pamspec_write.queries.records import BUMP_REVISION_SQL, INSERT_ABANDONED_SQL
from pamspec_write.settings import Settings

_STATE_NAMES = {"c": "committed", "f": "failed", "a": "unknown"}
_WAITERS = 2
_SLICE_MS, _PAUSE_S = 500, 0.02


@dataclass(frozen=True)
class _Sought:
    """What is looked up: by `key` when it is given, otherwise by `operation_hash`."""

    scope: ScopeRef
    owner: str
    operation: str
    operation_id: str
    operation_hash: bytes
    key: bytes | None

    @property
    def name(self) -> bytes:
        return self.operation_hash if self.key is None else self.key

    @property
    def shown_id(self) -> str | None:
        """The id that an answer without a record shows."""
        return self.operation_id if self.key is None else None


class Lookup:
    """Answers get_operation."""

    def __init__(self, pool: Pool, settings: Settings, access: Access, scopes: Scopes, lanes: Lanes) -> None:
        self._pool, self._settings, self._scopes, self._lanes = pool, settings, scopes, lanes
        self._access = access
        self._waiters = asyncio.Semaphore(_WAITERS)

    async def get_operation(self, document: dict[str, Any], body: bytes, principal: Principal) -> Answer:
        """The state and outcome of an operation of the same principal; an auditor may name another by `actor`."""
        request = decode(GetOperation, body)
        check_request(request)
        scope = await self._scopes.resolve(principal, request.scope_id)
        authorize(principal, "get_operation", scope.tenant_id)
        await self._access.permitted("get_operation", principal, own_actor(principal), scope, now=True)
        sought = _sought(request, scope, _owner(principal, request, document))
        answer = await self._look(principal, sought, 1)
        if answer is not None:
            return answer
        return await self._wait(principal, sought, request.wait_ms) or _answer("in_progress", sought.shown_id, None)

    async def _wait(self, principal: Principal, sought: _Sought, wait_ms: int) -> Answer | None:
        """Look again until the scope was free once, for as long as the caller waits."""
        try:
            async with asyncio.timeout(wait_ms / 1000), self._waiters:
                while True:
                    await asyncio.sleep(_PAUSE_S)
                    answer = await self._look(principal, sought, min(wait_ms, _SLICE_MS))
                    if answer is not None:
                        return answer
        except TimeoutError:
            return None

    async def _look(self, principal: Principal, sought: _Sought, lock_ms: int) -> Answer | None:
        """One look; None while the operation is under way."""
        scope = sought.scope
        async with connection(self._pool, self._settings.pool_wait_ms) as conn, scoped(conn, [scope.scope_key]):
            state, record = await _find(conn, scope, sought)
            if record is None:
                if self._lanes.is_pending(sought.name) or not await _locked(conn, scope, lock_ms):
                    return None
                state, record = await _find(conn, scope, sought)
            if record is not None:
                return await self._found(conn, principal, state, record, sought)
            if self._lanes.is_pending(sought.name):
                return None
            await conn.execute(
                INSERT_ABANDONED_SQL,
                scope.scope_key,
                sought.operation_hash,
                sought.key,
                sought.operation,
                sought.operation_id,
                sought.owner,
            )
            await conn.execute(BUMP_REVISION_SQL, scope.scope_key)
            return _answer("unknown", sought.shown_id, None, state)

    async def _found(
        self, conn: Connection, principal: Principal, state: ScopeState, record: Record, sought: _Sought
    ) -> Answer:
        if record.state == ABANDONED:
            return _answer("unknown", sought.shown_id, None, state)
        if record.operation != "batch" or record.state != COMMITTED:
            body = result_of(state, record).body
            return _answer(_STATE_NAMES[record.state], record.operation_id, body, state)
        body = await self._batch_outcome(conn, principal, record)
        return _answer("committed", record.operation_id, body, state)

    async def _batch_outcome(self, conn: Connection, principal: Principal, record: Record) -> bytes:
        """A batch's answer put together from the records of its items, wherever they lie."""
        named = [entry for entry in kept_of(record) or [] if "record" in entry]
        refs = {
            scope_id: await self._scopes.resolve(principal, scope_id)
            for scope_id in {entry["scope_id"] for entry in named}
        }
        wanted = Wanted()
        wanted.scopes = {ref.scope_key for ref in refs.values()}
        wanted.operations = {(refs[e["scope_id"]].scope_key, bytes.fromhex(e["record"])) for e in named}
        keys = ",".join(map(str, wanted.scopes))
        await conn.execute(f"SET LOCAL pamspec.scope_keys = '{{{keys}}}'")
        states = await prefetch(conn, wanted, refs.values())

        def find(entry: Document) -> tuple[ScopeState, Record] | None:
            state = states[refs[entry["scope_id"]].scope_key]
            found = state.records.get(bytes.fromhex(entry["record"]))
            return None if found is None else (state, found)

        return rebuilt(record, find)


def check_request(request: GetOperation) -> None:
    """Raise InvalidRequest unless it names an operation in exactly one of the two ways."""
    by_key = request.operation is not None and request.idempotency_key is not None
    by_id = request.operation is None and request.idempotency_key is None
    if not (by_id if request.operation_id is not None else by_key):
        raise InvalidRequest("Send operation_id alone, or operation and idempotency_key.")


def _owner(principal: Principal, request: GetOperation, document: dict[str, Any]) -> str:
    """Whose operation it is: the principal's own, unless an auditor names another actor."""
    if request.actor is msgspec.UNSET:
        return principal.actor_id
    asserted = decode(Actor, request.actor, InvalidRequest, "actor")
    if principal.has(RIGHT_AUDIT):
        return asserted.actor_id
    acting_actor(principal, document["actor"])
    return principal.actor_id


def _sought(request: GetOperation, scope: ScopeRef, owner: str) -> _Sought:
    operation = request.operation or "unknown"
    operation_id = request.operation_id or ids.mint("op")
    by_key = request.idempotency_key
    key = None if by_key is None else key_hash(owner, operation, by_key)
    return _Sought(scope, owner, operation, operation_id, operation_hash(owner, operation_id), key)


async def _locked(conn: Connection, scope: ScopeRef, lock_ms: int) -> bool:
    """Take the scope's lock within that time."""
    await conn.execute(f"SET LOCAL lock_timeout = {max(1, lock_ms)}; SAVEPOINT before_lock")
    try:
        await lock(conn, [scope.scope_key], wait=True)
    except asyncpg.LockNotAvailableError:
        await conn.execute("ROLLBACK TO SAVEPOINT before_lock")
        return False
    return True


async def _find(conn: Connection, scope: ScopeRef, sought: _Sought) -> tuple[ScopeState, Record | None]:
    wanted = Wanted()
    wanted.scopes.add(scope.scope_key)
    if sought.key is None:
        wanted.operations.add((scope.scope_key, sought.operation_hash))
    else:
        wanted.keys.add((scope.scope_key, sought.key))
    state = (await prefetch(conn, wanted, [scope]))[scope.scope_key]
    return state, next(iter(state.records.values()), None)


def _answer(state: str, operation_id: str | None, body: bytes | None, scope: ScopeState | None = None) -> Answer:
    document = {
        "operation_id": operation_id,
        "outcome": None if body is None else strict_json.Fragment(body),
        "state": state,
    }
    headers = {} if scope is None else {HEADER_LEDGER_EPOCH: str(scope.ledger_epoch)}
    return Answer(200, strict_json.dumps(document), headers)
