"""What is sealed at rest is indexed as everything else, by what it says and by the session that it comes from."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import pytest_asyncio

from conftest import TemplateDatabase
from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common.postgres import scoped
from pamspec_common.sealing import KEY_BYTES
from services.indexing.tests.test_sessions import docs, turn
from services.indexing.tests.world import Garden, World
from services.write.tests.writer import started, stopped, write_settings

KEYS = {"first": base64.b64encode(bytes(KEY_BYTES)).decode()}
TERMS_SQL = "SELECT count(*) FROM index_.lexical_term WHERE scope_key = $1"


@pytest_asyncio.fixture(loop_scope="session")
async def sealed_garden(template_database: TemplateDatabase, indexing_bus: NatsAddress) -> AsyncIterator[Garden]:
    """A scope of a database of its own, whose services seal."""
    name = databases.new_name("pamspec_sealed")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    database = Database(name, dsn, databases.role_dsns(dsn, template_database.passwords))
    writer = await started(database, write_settings(database, indexing_bus, encryption_keys=KEYS))
    world = World(database, writer, indexing_bus)
    garden = await Garden.made(world, await world.service(encryption_keys=KEYS))
    yield garden
    await garden.close()
    await world.stop()
    await stopped(writer)
    await databases.drop_database(template_database.server_dsn, name)


async def test_what_is_sealed_is_indexed_with_its_session(sealed_garden: Garden) -> None:
    made = [await turn(sealed_garden, f"chat:7/session_3#turn-{number}") for number in (1, 2)]
    assert set(await docs(sealed_garden)) == {one["object_id"] for one in made}
    async with scoped(sealed_garden.conn, [sealed_garden.key]):
        assert await sealed_garden.conn.fetchval(TERMS_SQL, sealed_garden.key) > 0
    assert await sealed_garden.conn.fetchval("SELECT count(*) FROM index_.parked") == 0
