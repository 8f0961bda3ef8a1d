"""Pools, transactions bound to scopes, and driver errors: translated once, never hidden, never an endless wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio
from pydantic import SecretStr

from pamspec_cli.servers.databases import Database
from pamspec_common.errors import InvalidRequest, ServiceUnavailable
from pamspec_common.postgres import Connection, Pool, connection, create_pool, scoped, translated
from pamspec_common.settings import CommonSettings


def settings(dsn: str) -> CommonSettings:
    """Settings of a small pool."""
    return CommonSettings(database_url=SecretStr(dsn), pool_size=2, lock_timeout_ms=100, statement_timeout_ms=300)


@pytest_asyncio.fixture(loop_scope="session")
async def pool(database: Database) -> AsyncIterator[Pool]:
    """A pool of two connections."""
    pool = await create_pool(settings(database.role("write")), "test")
    yield pool
    pool.terminate()


async def _visible(conn: Connection) -> list[int]:
    return [row["scope_key"] for row in await conn.fetch("SELECT scope_key FROM core.scope ORDER BY scope_key")]


async def test_a_transaction_sees_the_scopes_that_it_names_and_the_next_one_none(
    pool: Pool, database: Database
) -> None:
    admin = await asyncpg.connect(database.dsn)
    await admin.execute("INSERT INTO core.tenant (tenant_id) VALUES ('tenant:t')")
    for key in (1, 2, 3):
        await admin.execute(
            "INSERT INTO core.scope VALUES ($1, 'tenant:t', $2, 't', $2, 0, '{}', '', now())", key, f"scope:{key}"
        )
    await admin.close()
    async with connection(pool, 1000) as conn:
        async with scoped(conn, [1, 3]):
            assert await _visible(conn) == [1, 3]
        assert await _visible(conn) == []
        async with scoped(conn, [], read_only=True):
            assert await _visible(conn) == []
            with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
                await conn.execute("INSERT INTO core.tenant (tenant_id) VALUES ('x')")


async def test_a_scoped_transaction_is_rolled_back_by_an_error(pool: Pool) -> None:
    async with connection(pool, 1000) as conn:
        with pytest.raises(KeyError):
            await _insert_and_fail(conn)
        assert await conn.fetchval("SELECT count(*) FROM core.tenant") == 0
        async with scoped(conn, [1]):
            await conn.execute("INSERT INTO core.tenant (tenant_id) VALUES ('tenant:kept')")
        assert await conn.fetchval("SELECT count(*) FROM core.tenant") == 1


async def _insert_and_fail(conn: Connection) -> None:
    async with scoped(conn, [1]):
        await conn.execute("INSERT INTO core.tenant (tenant_id) VALUES ('tenant:gone')")
        raise KeyError


async def test_an_exhausted_pool_is_answered_in_time(pool: Pool) -> None:
    async with connection(pool, 1000), connection(pool, 1000):
        began = time.monotonic()
        with pytest.raises(ServiceUnavailable) as refused:
            async with connection(pool, 50):
                pass
        assert time.monotonic() - began < 15
        assert refused.value.retry_after == 1
    async with connection(pool, 1000) as conn:
        assert await conn.fetchval("SELECT 1") == 1


async def test_a_server_that_is_away_is_unavailable(unused_tcp_port: int) -> None:
    pool = await create_pool(settings(f"postgresql://x@127.0.0.1:{unused_tcp_port}/x"), "test")
    with pytest.raises(ServiceUnavailable):
        async with connection(pool, 1000):
            pass
    pool.terminate()


async def test_timeouts_of_locks_and_statements(pool: Pool, database: Database) -> None:
    admin = await asyncpg.connect(database.dsn)
    async with admin.transaction():
        await admin.execute("LOCK TABLE core.tenant")
        with pytest.raises(ServiceUnavailable, match="busy"):
            async with connection(pool, 1000) as conn, scoped(conn, []):
                await conn.execute("SELECT FROM core.tenant")
    await admin.close()
    with pytest.raises(InvalidRequest, match="scan"):
        async with connection(pool, 1000) as conn:
            await conn.execute("SELECT pg_sleep(5)")


async def test_a_connection_that_ends_in_the_middle_is_unavailable_and_replaced(pool: Pool, database: Database) -> None:
    admin = await asyncpg.connect(database.dsn)
    for inside in (False, True):
        with pytest.raises(ServiceUnavailable):
            await _lose(pool, admin, inside)
        async with connection(pool, 1000) as conn:
            assert await conn.fetchval("SELECT 1") == 1
    await admin.close()


async def _lose(pool: Pool, admin: Connection, inside: bool) -> None:
    async with connection(pool, 1000) as conn, scoped(conn, [1]):
        assert await admin.fetchval("SELECT pg_terminate_backend($1, 5000)", conn.get_server_pid())
        if inside:
            raise ConnectionResetError
        await conn.fetchval("SELECT 1")


async def test_a_cancelled_caller_gives_its_connection_back(pool: Pool) -> None:
    entered = asyncio.Event()

    async def hold() -> None:
        async with connection(pool, 1000) as conn, scoped(conn, []):
            entered.set()
            await asyncio.Event().wait()

    for _ in range(5):
        entered.clear()
        task = asyncio.create_task(hold())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert pool.get_idle_size() == pool.get_size() > 0


async def test_a_defect_stays_a_defect(pool: Pool) -> None:
    with pytest.raises(asyncpg.UndefinedTableError):
        async with connection(pool, 1000) as conn:
            await conn.execute("SELECT FROM nothing_of_that_name")
    with pytest.raises(asyncpg.DataError, match="invalid input"):
        async with connection(pool, 1000) as conn:
            await conn.fetchval("SELECT $1::bigint", "not a number")


@pytest.mark.parametrize(
    ("error", "retry_after"),
    [
        (asyncpg.DiskFullError("x"), 30),
        (asyncpg.OutOfMemoryError("x"), 30),
        (asyncpg.TooManyConnectionsError("x"), 1),
        (asyncpg.CannotConnectNowError("x"), 1),
        (asyncpg.AdminShutdownError("x"), 1),
        (asyncpg.ConnectionDoesNotExistError("x"), 1),
        (asyncpg.DeadlockDetectedError("x"), 1),
        (asyncpg.LockNotAvailableError("x"), 1),
        (asyncpg.ReadOnlySQLTransactionError("x"), 1),
        (asyncpg.IdleInTransactionSessionTimeoutError("x"), 1),
        (asyncpg.InterfaceError("pool is closed"), 1),
        (ConnectionResetError("x"), 1),
    ],
)
def test_what_is_no_fault_of_the_caller_can_be_tried_again(error: Exception, retry_after: int) -> None:
    found = translated(error)
    assert isinstance(found, ServiceUnavailable)
    assert found.can_retry
    assert found.retry_after == retry_after
    assert "x" not in found.message.split()
