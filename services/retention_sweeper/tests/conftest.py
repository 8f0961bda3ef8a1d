"""One database and one write service for all tests that take a scope of their own, and sweepers beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from conftest import TemplateDatabase
from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import AgentUser, NatsAddress
from services.retention_sweeper.tests.world import World
from services.write.tests.writer import started, stopped, write_settings
from tests.servers.chosen import servers


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def retention_bus(server_directory: Path) -> AsyncIterator[NatsAddress]:
    """A nats-server for the tests here."""
    agent = AgentUser.of_principal("retentiontests00000000000a")
    server = servers().nats(server_directory / "retention-nats", agent=agent, max_file_bytes=2**30)
    yield await server.start()
    await server.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(template_database: TemplateDatabase, retention_bus: NatsAddress) -> AsyncIterator[World]:
    """The services behind all tests here."""
    name = databases.new_name("pamspec_retention")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    database = Database(name, dsn, databases.role_dsns(dsn, template_database.passwords))
    writer = await started(database, write_settings(database, retention_bus))
    found = World(database, writer)
    yield found
    await found.stop()
    await stopped(writer)
    await databases.drop_database(template_database.server_dsn, name)
