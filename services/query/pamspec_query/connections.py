"""Connections for statements whose cost is ours, not the request's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from pamspec_common.errors import ServiceUnavailable
from pamspec_common.postgres import Connection, Pool, connection


@asynccontextmanager
async def lent(pool: Pool, wait_ms: int) -> AsyncIterator[Connection]:
    """A connection; ServiceUnavailable when none is free, the store is away, or it takes too long."""
    async with connection(pool, wait_ms) as conn:
        try:
            yield conn
        except asyncpg.QueryCanceledError:
            raise ServiceUnavailable("The store answers too slowly; try again shortly.") from None
