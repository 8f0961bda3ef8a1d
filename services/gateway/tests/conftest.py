"""A gateway on a free port before a small service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from conftest import TemplateDatabase
from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import EmbeddedNats
from pamspec_common.keys import new_key
from pamspec_common.peers import LocalPeer, Peer, RemotePeer, peer_session
from pamspec_common.server import serving
from pamspec_gateway.app import build
from services.gateway.tests import whole as all_services
from services.gateway.tests.behind import Behind, Door, echo_service, gateway_settings, insert_key
from services.gateway.tests.on_the_bus import BusWorld
from tests.servers.chosen import servers

SHAPES = ["one process", "processes"]


@asynccontextmanager
async def _door(shape: str, database: Database) -> AsyncIterator[Door]:
    behind, key = Behind(), new_key()
    await insert_key(database.dsn, key)
    echo = echo_service("echo", behind)
    async with aiohttp.ClientSession() as session, peer_session() as to_peers:
        if shape == "one process":
            await echo.start()
            async with _gateway(database, LocalPeer(echo), key, behind, session) as door:
                yield door
            await echo.stop()
            return
        async with (
            serving(echo) as behind_url,
            _gateway(database, RemotePeer(to_peers, behind_url), key, behind, session) as door,
        ):
            yield door


@asynccontextmanager
async def _gateway(
    database: Database, peer: Peer, key: str, behind: Behind, session: aiohttp.ClientSession
) -> AsyncIterator[Door]:
    gateway = build(
        gateway_settings(database, channel_recheck_s=0.3, key_cache_s=0.5),
        dict.fromkeys(("write", "query", "subscription", "delegation", "indexing"), peer),
    )
    async with serving(gateway) as url:
        yield Door(url, key, behind, session, database.dsn, gateway)


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=SHAPES)
async def shared_door(request: pytest.FixtureRequest, template_database: TemplateDatabase) -> AsyncIterator[Door]:
    """A gateway whose peers are in the same process, then one whose peers are behind HTTP; of all tests together."""
    name = databases.new_name("pamspec_gateway")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    database = Database(name, dsn, databases.role_dsns(dsn, template_database.passwords))
    async with _door(request.param, database) as door:
        yield door
    await databases.drop_database(template_database.server_dsn, name)


@pytest.fixture
def door(shared_door: Door) -> Door:
    """The shared gateway with nothing remembered behind it; tests that stop it or change its keys take `own_door`."""
    shared_door.behind.reset()
    return shared_door


@pytest_asyncio.fixture(loop_scope="session", params=SHAPES)
async def own_door(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[Door]:
    """A gateway of this test alone."""
    async with _door(request.param, database) as door:
        yield door


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def whole(
    template_database: TemplateDatabase, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[all_services.Whole]:
    """All services behind one gateway; what tests of this package leave there may be anything."""
    async with all_services.running(template_database, tmp_path_factory.mktemp("whole")) as running:
        yield running


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def world(template_database: TemplateDatabase, server_directory: Path) -> AsyncIterator[BusWorld]:
    """A bus with one gateway, for the tests that break nothing."""
    name = databases.new_name("pamspec_bus")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    server = servers().nats(server_directory / name)
    await server.start()
    made = BusWorld(server, Database(name, dsn, databases.role_dsns(dsn, template_database.passwords)))
    await made.gateway()
    yield made
    await made.close()
    await server.stop()
    await databases.drop_database(template_database.server_dsn, name)


@pytest_asyncio.fixture(loop_scope="session")
async def own_world(database: Database, nats_process: EmbeddedNats) -> AsyncIterator[BusWorld]:
    """A bus and a database of one test, without a gateway yet."""
    made = BusWorld(nats_process, database)
    yield made
    await made.close()
