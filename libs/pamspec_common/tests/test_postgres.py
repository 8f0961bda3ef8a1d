"""What a connection that goes back to the pool leaves behind, and how a pool ends."""

from __future__ import annotations

import asyncio
from configparser import ConfigParser
from pathlib import Path

import asyncpg
import pytest
from pydantic import SecretStr

from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_common.postgres import begin, close_pool, connection, create_pool, role_settings, scoped
from pamspec_common.settings import CommonSettings

ROOT = Path(__file__).parents[3]


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


@pytest.mark.parametrize("service", databases.SERVICES)
async def test_a_role_begins_with_what_its_pools_ask_for(database: Database, service: str) -> None:
    """So that it holds behind a pooler, which takes no such word from its clients."""
    connection_of_role = await asyncpg.connect(database.role(service))
    rows = await connection_of_role.fetch("SELECT name, setting FROM pg_settings")
    await connection_of_role.close()
    found = {row["name"]: row["setting"] for row in rows}
    asked = role_settings(service)
    assert {name: found[name] for name in asked} == asked
    assert asked["statement_timeout"] == str(CommonSettings.model_fields["statement_timeout_ms"].default)


def test_the_pooler_that_we_ship_lets_every_client_in() -> None:
    """It refuses a connection that asks for a setting which it was not told to ignore."""
    shipped = ConfigParser(interpolation=None)
    shipped.read_string((ROOT / "deploy/pgbouncer/pgbouncer.ini").read_text(encoding="utf-8"))
    ignored = set(shipped["pgbouncer"]["ignore_startup_parameters"].split(", "))
    assert ignored == set().union(*(role_settings(service) for service in databases.SERVICES))
    assert shipped["pgbouncer"]["pool_mode"] == "transaction"
