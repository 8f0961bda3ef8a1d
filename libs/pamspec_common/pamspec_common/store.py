"""A service's door to PostgreSQL: one pool, from which nothing of a scope is seen until a transaction names it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar, LiteralString

from pamspec_common.authorization.loading import load_rights
from pamspec_common.authorization.rights import Stored
from pamspec_common.errors import ServiceUnavailable
from pamspec_common.postgres import Connection, Pool, close_pool, connection, create_pool, scoped
from pamspec_common.settings import CommonSettings

RESOLVE_SQL = "SELECT scope_key FROM core.resolve_scope($1, $2)"


class Store:
    """Connections of one process of the service `name`, whose rows open sealed content."""

    name: ClassVar[str]
    reach_sql: ClassVar[LiteralString] = "SELECT 1"
    """What answers where the service's schema is there."""

    def __init__(self, settings: CommonSettings) -> None:
        self._settings = settings
        self._pool: Pool | None = None

    async def open(self) -> None:
        """Make the pool."""
        self._pool = await create_pool(self._settings, self.name, content=True)

    async def close(self) -> None:
        """Close it, bounded."""
        await close_pool(self._pool)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """A connection that sees no scope; ServiceUnavailable when none is free in time."""
        if self._pool is None:
            raise ServiceUnavailable("The service is starting; try again.")
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            yield conn

    @asynccontextmanager
    async def scoped(self, scope_keys: Iterable[int]) -> AsyncIterator[Connection]:
        """A transaction that sees these scopes."""
        async with self.session() as conn, scoped(conn, scope_keys):
            yield conn

    async def reach(self) -> None:
        """ServiceUnavailable unless the store answers."""
        async with self.session() as conn:
            await conn.fetchval(self.reach_sql)

    async def rights(self, tenant_id: str, scope_key: int, actors: Sequence[str]) -> Stored:
        """What is stored now of some actors' rights in a scope."""
        async with self.session() as conn:
            return await load_rights(conn, tenant_id, scope_key, actors)

    async def scope_key(self, tenant_id: str, scope_id: str) -> int | None:
        """The key of a scope; None where the tenant has none of that name."""
        async with self.session() as conn:
            found: int | None = await conn.fetchval(RESOLVE_SQL, tenant_id, scope_id)
            return found
