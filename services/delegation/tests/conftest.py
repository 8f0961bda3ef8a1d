"""One database, one write service and one delegation service for all tests that take a scope of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from conftest import TemplateDatabase
from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import AgentUser, NatsAddress
from pamspec_common.service import Service
from services.delegation.tests.world import Asking, World
from services.write.tests.delegating import delegating
from services.write.tests.writer import started, stopped, write_settings
from tests.servers.chosen import servers


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def delegation_bus(server_directory: Path) -> AsyncIterator[NatsAddress]:
    """A nats-server for the tests here."""
    agent = AgentUser.of_principal("delegationtests0000000000a")
    server = servers().nats(server_directory / "delegation-nats", agent=agent, max_file_bytes=2**30)
    yield await server.start()
    await server.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(template_database: TemplateDatabase, delegation_bus: NatsAddress) -> AsyncIterator[World]:
    """The services behind all tests here."""
    name = databases.new_name("pamspec_delegation")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    database = Database(name, dsn, databases.role_dsns(dsn, template_database.passwords))
    writer = await started(database, write_settings(database, delegation_bus))
    found = World(database, writer, delegation_bus)
    yield found
    await found.stop()
    await stopped(writer)
    await databases.drop_database(template_database.server_dsn, name)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def service(world: World) -> Service:
    """A running delegation service without Valkey."""
    return await world.service()


@pytest_asyncio.fixture(loop_scope="session")
async def asking(world: World, service: Service) -> Asking:
    """A scope of this test alone, with a grantor and a delegate."""
    return Asking(service, await delegating(await world.writer.afresh()))
