"""The store as the handlers see it: scopes by name, snapshots of one scope, grouped reads, and floors that are awaited.

Invariant: everything read in a snapshot is of one moment (REPEATABLE READ, READ ONLY) and of one scope (row-level
security shows no other). Queries never take the last connections: those stay for reads by id; tenants take turns at the
others, where one is left for whoever comes.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg

from pamspec_common.authorization.loading import load_rights
from pamspec_common.authorization.rights import Stored
from pamspec_common.errors import InvalidRequest, ScopeNotFound, ServiceUnavailable
from pamspec_common.postgres import Connection, Pool, connection
from pamspec_common.turns import Places
from pamspec_query.anchors import Anchors
from pamspec_query.connections import lent
from pamspec_query.floors import Floors
from pamspec_query.groups import GroupReader
from pamspec_query.queries import heads
from pamspec_query.reads import Reads
from pamspec_query.settings import Settings

_SCOPES_HELD = 100_000


class Store:
    """PostgreSQL, for reads only."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self.settings = settings
        self._pool = pool
        self._scopes: OrderedDict[tuple[str, str], int] = OrderedDict()
        places = max(1, settings.pool_size - settings.read_connections - 1)
        self._places = Places(places, places - 1 if places > 2 else places, max(1, places // 2))
        self.groups = GroupReader(
            pool,
            connections=settings.read_connections,
            wait_ms=settings.pool_wait_ms,
            max_bytes=settings.read_group_bytes,
        )
        self.anchors = Anchors(settings)
        self.reads = Reads(pool, settings.reads_noted_s, settings.pool_wait_ms)
        self.floors = Floors(pool, poll_ms=settings.floor_poll_ms, wait_ms=settings.pool_wait_ms)

    async def close(self) -> None:
        """Let what is under way end."""
        await self.floors.close()
        await self.anchors.close()
        await self.groups.close()

    @asynccontextmanager
    async def plain(self, tenant_id: str = "") -> AsyncIterator[Connection]:
        """A connection without any scope in sight, for look-ups by tenant; whose turn it is, is that tenant's."""
        async with self._place(tenant_id), lent(self._pool, self.settings.pool_wait_ms) as conn:
            yield conn

    async def rights(self, tenant_id: str, scope_key: int, actors: Sequence[str]) -> Stored:
        """What is stored now of some actors' rights in a scope; it waits for no place among the queries."""
        async with lent(self._pool, self.settings.pool_wait_ms) as conn:
            return await load_rights(conn, tenant_id, scope_key, actors)

    async def scope_key(self, tenant_id: str, scope_id: str) -> int:
        """The key of a tenant's scope, which never changes; ScopeNotFound when there is none."""
        name = (tenant_id, scope_id)
        held = self._scopes.get(name)
        if held is not None:
            return held
        async with self.plain(tenant_id) as conn:
            found = await heads.resolve_scope(conn, tenant_id, scope_id)
        if found is None:
            raise ScopeNotFound
        if len(self._scopes) >= _SCOPES_HELD:
            self._scopes.popitem(last=False)
        self._scopes[name] = found[0]
        return found[0]

    @asynccontextmanager
    async def snapshot(
        self, scope_key: int, narrowing: Sequence[str] = (), tenant_id: str = ""
    ) -> AsyncIterator[Connection]:
        """One moment of one scope, in the tenant's turn; InvalidRequest naming `narrowing` when a statement is slow."""
        async with self._place(tenant_id), connection(self._pool, self.settings.pool_wait_ms) as conn:
            await conn.execute(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
                f" SET LOCAL pamspec.scope_keys = '{{{scope_key:d}}}';"
                " SET LOCAL plan_cache_mode = force_custom_plan;"
                f" SET LOCAL statement_timeout = {self.settings.query_timeout_ms:d}"
            )
            try:
                yield conn
            except asyncpg.QueryCanceledError:
                raise _too_long(narrowing) from None
            finally:
                if not conn.is_closed():
                    await asyncio.shield(conn.execute("ROLLBACK"))

    @asynccontextmanager
    async def stream(self, scope_key: int, tenant_id: str = "") -> AsyncIterator[Connection]:
        """A connection that sees one scope, always as it is at the moment of each statement, for long scans."""
        async with self._place(tenant_id), lent(self._pool, self.settings.pool_wait_ms) as conn:
            await conn.execute(f"SET pamspec.scope_keys = '{{{scope_key:d}}}'")
            yield conn

    @asynccontextmanager
    async def _place(self, tenant_id: str) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._places.place(tenant_id, self.settings.pool_wait_ms / 1000))
            except TimeoutError:
                raise ServiceUnavailable("Too many queries are under way; try again shortly.") from None
            yield


def _too_long(narrowing: Sequence[str]) -> InvalidRequest:
    if narrowing:
        said = f"the conditions on {', '.join(narrowing)} look at too much; narrow them, or add a filter on object_type"
    else:
        said = "it looks at too much; narrow its filters or its range"
    return InvalidRequest(f"The request was stopped: {said}.", details={"fields": list(narrowing)})
