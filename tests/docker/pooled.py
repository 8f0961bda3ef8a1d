"""PgBouncer in transaction mode between the services and PostgreSQL (`make test-pooled`, which has the faults too)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import pytest

from pamspec_cli.composition import SETTINGS
from pamspec_common.postgres import KEYED_PLANS, begin, close_pool, create_pool
from pamspec_common.settings import CommonSettings
from tests.integration.harness import Fleet
from tests.integration.load import ordeal
from tests.servers import pooler

CLIENTS = 3 * pooler.SERVER_CONNECTIONS
BOUNDS = {
    "statement_timeout": "10s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "30s",
    "jit": "off",
}
BY_KEY = ("write", "subscription")
CONSUMERS = {"delegation": "delegation", "indexing": "index_"}


@asynccontextmanager
async def clients(url: str, number: int) -> AsyncIterator[list[asyncpg.Connection[asyncpg.Record]]]:
    """So many connections, as the services make them."""
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(number):
            made.append(await asyncpg.connect(url))
            stack.push_async_callback(made[-1].close)
        yield made


@pytest.fixture
def through(fleet: Fleet) -> dict[str, str]:
    """The services' logins, which lead through the pooler."""
    assert pooler.wanted(), "set PAMSPEC_TEST_POOLER=pgbouncer"
    return {name: fleet.deployment.addresses.of_role(name) for name in SETTINGS}


async def test_more_clients_than_connections(fleet: Fleet, through: dict[str, str]) -> None:
    """Without that nothing here would be shared, and the other tests would prove nothing."""
    async with clients(through["write"], CLIENTS) as made:
        pids = {await one.fetchval("SELECT pg_backend_pid()") for one in made}
        pids |= set(await asyncio.gather(*(one.fetchval("SELECT pg_backend_pid()") for one in made)))
    assert len(pids) <= pooler.SERVER_CONNECTIONS


@pytest.mark.parametrize("service", sorted(SETTINGS))
async def test_a_session_begins_with_what_the_pool_asks_for(
    fleet: Fleet, through: dict[str, str], service: str
) -> None:
    """PgBouncer takes no such word from its clients: the role says it."""
    asked = dict(BOUNDS)
    if service in BY_KEY:
        asked |= KEYED_PLANS
    connection = await asyncpg.connect(through[service])
    found = {name: await connection.fetchval("SELECT current_setting($1)", name) for name in asked}
    path = await connection.fetchval("SELECT current_schemas(false)")
    await connection.close()
    assert found == asked
    if service in CONSUMERS:
        assert path[0] == CONSUMERS[service]


async def test_what_is_local_stays_local(fleet: Fleet, through: dict[str, str]) -> None:
    """Transactions of many clients, interleaved on few connections: each sees its own scopes, and nobody any after."""
    pool = await create_pool(
        CommonSettings.model_validate({"database_url": through["query"]}), "test", max_size=CLIENTS
    )

    async def seen(key: int) -> None:
        async with pool.acquire() as conn:
            for turn in range(20):
                await begin(conn, [key, turn])
                assert await conn.fetchval("SELECT current_setting('pamspec.scope_keys')") == f"{{{key},{turn}}}"
                await asyncio.sleep(0)
                assert await conn.fetchval("SELECT current_setting('pamspec.scope_keys')") == f"{{{key},{turn}}}"
                await conn.execute("COMMIT")
                assert not await conn.fetchval("SELECT current_setting('pamspec.scope_keys', true)")

    await asyncio.gather(*(seen(key) for key in range(CLIENTS)))
    await close_pool(pool)


async def test_statements_are_prepared_wherever_they_meet(fleet: Fleet, through: dict[str, str]) -> None:
    """The driver prepares a statement once for a connection; the pooler knows it on each of its own."""
    async with clients(through["query"], CLIENTS) as made:
        for number in range(30):
            answers = await asyncio.gather(*(one.fetchval("SELECT $1::int + 1", number) for one in made))
            assert set(answers) == {number + 1}
        cached = {len(one._stmt_cache._entries) for one in made}  # type: ignore[attr-defined]
    assert cached == {1}


async def test_nothing_outlives_a_transaction(fleet: Fleet, through: dict[str, str]) -> None:
    """Under load no session holds an advisory lock without a transaction, listens, or keeps a temporary table."""
    async with ordeal(fleet, "pooled") as load, fleet.database() as watching:
        for _ in range(20):
            await load.more(10)
            held = await watching.fetch(
                "SELECT a.query FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
                " WHERE l.locktype = 'advisory' AND a.state = 'idle' AND a.application_name LIKE 'pamspec-%'"
            )
            assert not held
        assert not await watching.fetchval(
            "SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relnamespace <> 'pg_toast'::regnamespace"
        )
