"""What a connection that goes back to the pool leaves behind, and how a pool ends."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from pydantic import SecretStr

from pamspec_cli.servers.databases import Database
from pamspec_common.postgres import begin, close_pool, connection, create_pool, scoped
from pamspec_common.settings import CommonSettings


async def test_nothing_of_a_transaction_reaches_the_next_user_of_a_connection(database: Database) -> None:
    """Neither scope keys nor an open transaction, however the one before ended."""
    settings = CommonSettings(database_url=SecretStr(database.role("subscription")), pool_size=1)
    pool = await create_pool(settings, "test")

    async def finished() -> None:
        async with connection(pool, 1000) as conn, scoped(conn, [7]):
            await conn.fetchval("SELECT 1")

    async def failed() -> None:
        with pytest.raises(asyncpg.UndefinedTableError):
            async with connection(pool, 1000) as conn, scoped(conn, [7]):
                await conn.fetchval("SELECT * FROM no_such_table")

    async def cancelled() -> None:
        async def long() -> None:
            async with connection(pool, 1000) as conn, scoped(conn, [7]):
                await conn.fetchval("SELECT pg_sleep(60)")

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(long(), 0.2)

    async def forgotten() -> None:
        async with connection(pool, 1000) as conn:
            await begin(conn, [7])

    seen: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: seen.append(context["message"]))
    for use in (finished, failed, cancelled, forgotten):
        await use()
        async with connection(pool, 5000) as conn:
            assert not conn.is_in_transaction()
            assert await conn.fetchval("SELECT current_setting('pamspec.scope_keys', true)") in (None, "")
    loop.set_exception_handler(None)
    assert len(seen) == 1
    assert "active transaction" in seen[0]
    await pool.close()


async def test_a_pool_closes_within_a_bound(database: Database) -> None:
    """Also while a connection is out; without a pool there is nothing to do."""
    await close_pool(None)
    settings = CommonSettings(database_url=SecretStr(database.role("subscription")))
    for held in (False, True):
        pool = await create_pool(settings, "test")
        conn = await pool.acquire()
        if not held:
            await pool.release(conn)
        async with asyncio.timeout(60):
            await close_pool(pool, 0.1 if held else 5.0)
        with pytest.raises(asyncpg.InterfaceError):
            await pool.acquire()
