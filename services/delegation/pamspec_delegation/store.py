"""The service's door to PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from pamspec_common.authorization.loading import load_rights
from pamspec_common.authorization.rights import Stored
from pamspec_common.errors import ServiceUnavailable
from pamspec_common.postgres import Connection, Pool, close_pool, connection, create_pool
from pamspec_delegation.queries import grants
from pamspec_delegation.queries.grants import Facts, Listed
from pamspec_delegation.settings import Settings

RESOLVE_SQL = "SELECT scope_key FROM core.resolve_scope($1, $2)"


class Store:
    """Connections of one process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool: Pool | None = None

    async def open(self) -> None:
        """Make the pool."""
        self._pool = await create_pool(self._settings, "delegation", content=True)

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

    async def reach(self) -> None:
        """ServiceUnavailable unless the store answers."""
        async with self.session() as conn:
            await grants.reach(conn)

    async def facts(self, tenant_id: str, delegation_id: str, object_id: str | None) -> Facts | None:
        """What a check of a grant rests on."""
        async with self.session() as conn:
            return await grants.fetch_facts(conn, tenant_id, delegation_id, object_id)

    async def rights(self, tenant_id: str, scope_key: int, actors: Sequence[str]) -> Stored:
        """What is stored now of some actors' rights in a scope."""
        async with self.session() as conn:
            return await load_rights(conn, tenant_id, scope_key, actors)

    async def scope_key(self, tenant_id: str, scope_id: str) -> int | None:
        """The key of a scope; None where the tenant has none of that name."""
        async with self.session() as conn:
            found: int | None = await conn.fetchval(RESOLVE_SQL, tenant_id, scope_id)
            return found

    async def records(self, listed: Sequence[Listed]) -> dict[str, bytes]:
        """The envelopes of grants."""
        if not listed:
            return {}
        async with self.session() as conn:
            return await grants.fetch_records(conn, listed)
