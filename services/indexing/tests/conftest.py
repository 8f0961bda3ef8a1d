"""One database, one write service and one indexing service for all tests that take a scope of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from conftest import TemplateDatabase
from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import AgentUser, NatsAddress
from pamspec_common.service import Service
from services.indexing.tests.world import Garden, World
from services.write.tests.writer import started, stopped, write_settings
from tests.servers.chosen import servers


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def indexing_bus(server_directory: Path) -> AsyncIterator[NatsAddress]:
    """A nats-server for the tests here."""
    agent = AgentUser.of_principal("indexingtests000000000000a")
    server = servers().nats(server_directory / "indexing-nats", agent=agent, max_file_bytes=2**30)
    yield await server.start()
    await server.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(template_database: TemplateDatabase, indexing_bus: NatsAddress) -> AsyncIterator[World]:
    """The services behind all tests here."""
    name = databases.new_name("pamspec_indexing")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    database = Database(name, dsn, databases.role_dsns(dsn, template_database.passwords))
    writer = await started(database, write_settings(database, indexing_bus))
    found = World(database, writer, indexing_bus)
    yield found
    await found.stop()
    await stopped(writer)
    await databases.drop_database(template_database.server_dsn, name)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def indexing(world: World) -> Service:
    """A running indexing service. No relay runs here, so it is fed by its comparisons with the ledger."""
    return await world.service()


@pytest_asyncio.fixture(loop_scope="session")
async def garden(world: World, indexing: Service) -> AsyncIterator[Garden]:
    """A scope of this test alone, followed by the running service."""
    made = await Garden.made(world, indexing)
    yield made
    await made.close()
