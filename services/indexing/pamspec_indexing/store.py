"""The service's door to PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from pamspec_common.authorization.loading import load_rights
from pamspec_common.authorization.rights import Stored
from pamspec_common.errors import ServiceUnavailable
from pamspec_common.postgres import Connection, Pool, close_pool, connection, create_pool, scoped
from pamspec_indexing.queries import indexes
from pamspec_indexing.settings import Settings

SEE_SQL = "SELECT set_config('pamspec.scope_keys', $1, true)"
RESOLVE_SQL = "SELECT scope_key FROM core.resolve_scope($1, $2)"


class Store:
    """Connections of one process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool: Pool | None = None

    async def open(self) -> None:
        """Make the pool."""
        self._pool = await create_pool(self._settings, "indexing", content=True)

    async def close(self) -> None:
        """Close it, bounded."""
        await close_pool(self._pool)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """A connection; ServiceUnavailable when none is free in time."""
        if self._pool is None:
            raise ServiceUnavailable("The service is starting; try again.")
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            yield conn

    @asynccontextmanager
    async def of_scopes(self, scope_keys: Iterable[int]) -> AsyncIterator[Connection]:
        """A transaction that sees these scopes."""
        async with self.session() as conn, scoped(conn, scope_keys):
            yield conn

    async def see(self, conn: Connection, scope_keys: Iterable[int]) -> None:
        """Let the rest of a transaction see these scopes instead."""
        await conn.execute(SEE_SQL, "{" + ",".join(str(int(key)) for key in scope_keys) + "}")

    async def reach(self) -> None:
        """ServiceUnavailable unless the store answers."""
        async with self.session() as conn:
            await indexes.reach(conn)

    async def rights(self, tenant_id: str, scope_key: int, actors: Sequence[str]) -> Stored:
        """What is stored now of some actors' rights in a scope."""
        async with self.session() as conn:
            return await load_rights(conn, tenant_id, scope_key, actors)

    async def scope_key(self, tenant_id: str, scope_id: str) -> int | None:
        """The key of a scope; None where the tenant has none of that name."""
        async with self.session() as conn:
            found: int | None = await conn.fetchval(RESOLVE_SQL, tenant_id, scope_id)
            return found
