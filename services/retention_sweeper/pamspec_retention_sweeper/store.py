"""The service's door to PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from pamspec_common.errors import ServiceUnavailable
from pamspec_common.postgres import Connection, Pool, close_pool, connection, create_pool, scoped
from pamspec_retention_sweeper.queries.scopes import reach
from pamspec_retention_sweeper.settings import Settings


class Store:
    """Connections of one process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool: Pool | None = None

    async def open(self) -> None:
        """Make the pool."""
        self._pool = await create_pool(self._settings, "retention-sweeper", content=True)

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
    async def scoped(self, scope_keys: Sequence[int]) -> AsyncIterator[Connection]:
        """A transaction that sees these scopes."""
        async with self.session() as conn, scoped(conn, scope_keys):
            yield conn

    async def reach(self) -> None:
        """ServiceUnavailable unless the store answers."""
        async with self.session() as conn:
            await reach(conn)
