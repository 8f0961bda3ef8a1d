"""The write service on a database of its own; one bus serves all of its tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from conftest import TemplateDatabase
from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import AgentUser, NatsAddress
from services.write.tests.delegating import STRANGERS, Delegating, delegating
from services.write.tests.writer import Writer, started, stopped, write_settings
from tests.servers.chosen import servers


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def write_bus(server_directory: Path) -> AsyncIterator[NatsAddress]:
    """A nats-server for the wake-ups of all tests here."""
    server = servers().nats(
        server_directory / "write-nats",
        agent=AgentUser.of_principal("writetests000000000000000a"),
        max_file_bytes=2**30,
    )
    yield await server.start()
    await server.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def writer(database: Database, write_bus: NatsAddress) -> AsyncIterator[Writer]:
    """A running write service with a tenant and a scope."""
    writer = await started(database, write_settings(database, write_bus))
    yield writer
    await stopped(writer)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def long_lived_writer(template_database: TemplateDatabase, write_bus: NatsAddress) -> AsyncIterator[Writer]:
    """One service for all tests that are content with a scope of their own."""
    name = databases.new_name("pamspec_write")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    database = Database(name, dsn, databases.role_dsns(dsn, template_database.passwords))
    writer = await started(database, write_settings(database, write_bus))
    yield writer
    await stopped(writer)
    await databases.drop_database(template_database.server_dsn, name)


@pytest_asyncio.fixture(loop_scope="session")
async def shared(long_lived_writer: Writer) -> Writer:
    """A service that other tests use too, with a scope that is this test's alone."""
    return await long_lived_writer.afresh()


@pytest_asyncio.fixture(loop_scope="session")
async def writers(database: Database, write_bus: NatsAddress) -> AsyncIterator[tuple[Writer, Writer]]:
    """Two write services on one database: what two processes are to each other.

    They wait for locks longer than by default, so that a busy machine shows no refusal that the test did not ask for.
    """
    first = await started(database, write_settings(database, write_bus, lock_timeout_ms=30_000))
    second = await started(database, write_settings(database, write_bus, lock_timeout_ms=30_000))
    second.scope = first.scope
    second.scopes = first.scopes
    yield first, second
    await stopped(first)
    await stopped(second)


Hold = Callable[[int], AbstractAsyncContextManager[None]]


@pytest.fixture
def hold(database: Database) -> Hold:
    """Holds a scope's lock, as another process in the middle of its commit does."""

    @asynccontextmanager
    async def held(scope_key: int) -> AsyncIterator[None]:
        conn = await asyncpg.connect(database.dsn)
        try:
            async with conn.transaction():
                await conn.execute("SELECT FROM core.scope_head WHERE scope_key = $1 FOR UPDATE", scope_key)
                yield
        finally:
            await conn.close()

    return held


@pytest_asyncio.fixture(loop_scope="session")
async def given(shared: Writer) -> Delegating:
    """Somebody who may grant, somebody to whom it is granted, and strangers of another tenant."""
    await shared.admin.execute("INSERT INTO core.tenant VALUES ($1) ON CONFLICT DO NOTHING", STRANGERS.tenant_id)
    return await delegating(shared)
