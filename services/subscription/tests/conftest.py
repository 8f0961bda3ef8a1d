"""A world for each test; one bus serves all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import AgentUser, NatsAddress
from pamspec_common.service import Service
from services.subscription.tests.world import World, started
from tests.servers.chosen import servers


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def subscription_bus(server_directory: Path) -> AsyncIterator[NatsAddress]:
    """A nats-server for the tests here."""
    server = servers().nats(
        server_directory / "subscription-nats", agent=AgentUser(("pamspec.deliver.>", "_INBOX.>")), max_file_bytes=2**30
    )
    yield await server.start()
    await server.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def world(database: Database, subscription_bus: NatsAddress) -> AsyncIterator[World]:
    """A database and a write service with a bus."""
    world = await started(database, subscription_bus)
    yield world
    await world.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def quiet_world(database: Database) -> AsyncIterator[World]:
    """The same without any bus: everything comes from the ledger."""
    world = await started(database, None)
    yield world
    await world.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def service(world: World) -> Service:
    """A running subscription service."""
    return await world.service()
