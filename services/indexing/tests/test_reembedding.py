"""Another space for a scope: built online beside the old one, cut over once complete, and the old one cleared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest_asyncio

from conftest import TemplateDatabase
from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common.embedding_spaces import index_id
from pamspec_common.service import Service
from services.indexing.tests.endpoint import Stub, vector_of
from services.indexing.tests.test_vectors import near, of_stub, until
from services.indexing.tests.world import Garden, World
from services.write.tests.writer import started, stopped, write_settings

OLD, NEW = "space:old:1", "space:new:1"


@pytest_asyncio.fixture(loop_scope="session")
async def apart(template_database: TemplateDatabase, indexing_bus: NatsAddress) -> AsyncIterator[World]:
    """A store of this test alone, since a service takes all scopes of a store on."""
    name = databases.new_name("pamspec_reembedding")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    database = Database(name, dsn, databases.role_dsns(dsn, template_database.passwords))
    writer = await started(database, write_settings(database, indexing_bus))
    found = World(database, writer, indexing_bus)
    yield found
    await found.stop()
    await stopped(writer)
    await databases.drop_database(template_database.server_dsn, name)


@pytest_asyncio.fixture(loop_scope="session")
async def stub() -> AsyncIterator[Stub]:
    found = Stub()
    await found.start()
    yield found
    await found.stop()


async def spaces(garden: Garden) -> dict[str, str]:
    """The spaces of the scope and what each is to it."""
    sql = "SELECT embedding_space_id, state FROM index_.scope_space WHERE scope_key = $1"
    return {row[0]: row[1] for row in await garden.writer.admin.fetch(sql, garden.key)}


async def named(garden: Garden, space_id: str, text: str) -> list[str]:
    """What is found in a space, nearest first."""
    return [name for name, _ in await near(garden, space_id, vector_of(f"passage: {text}"))]


async def test_another_embedder_takes_over_once_all_is_embedded(apart: World, stub: Stub) -> None:
    first = await apart.service(**of_stub(stub, embedder_space_id=OLD))
    garden = await Garden.made(apart, first)
    made = [await garden.writer.create(f"fact number{number}") for number in range(5)]
    await garden.settled(index_id(OLD))
    assert await spaces(garden) == {OLD: "current"}, "without being asked for"
    await first.stop()
    stub.open.clear()
    second = await apart.service(**of_stub(stub, embedder_space_id=NEW))
    garden.service = second

    async def shadowed() -> bool:
        return (await spaces(garden)).get(NEW) == "shadow"

    await until(shadowed)
    assert (await named(garden, OLD, "fact number3"))[0] == made[3]["object_id"], "the old one answers meanwhile"
    later = await garden.writer.create("a later fact")
    await second.stop()
    stub.open.set()
    third = await apart.service(**of_stub(stub, embedder_space_id=NEW))
    garden.service = third

    async def over() -> bool:
        return await spaces(garden) == {NEW: "current"}

    await until(over)
    await garden.settled(index_id(NEW))
    assert (await named(garden, NEW, "a later fact"))[0] == later["object_id"]
    assert set(await named(garden, NEW, "fact")) == {one["object_id"] for one in (*made, later)}
    assert await named(garden, OLD, "fact") == []
    assert index_id(OLD) not in {one["index_id"] for one in (await garden.indexes())["indexes"]}
    await garden.close()


async def test_spaces_are_made_anew_and_dropped_on_request(apart: World, stub: Stub) -> None:
    service: Service = await apart.service(**of_stub(stub, embedder_space_id=OLD))
    garden = await Garden.made(apart, service)
    made = await garden.writer.create("roses")
    await garden.settled(index_id(OLD))
    asked = {"scope_id": garden.writer.scope, "embedding_space_id": OLD}
    before = len(stub.texts)
    assert orjson.loads((await garden.call("reembed", asked)).body)["state"] == "current"

    async def again() -> bool:
        return len(stub.texts) > before

    await until(again)
    assert await named(garden, OLD, "roses") == [made["object_id"]]
    assert orjson.loads((await garden.call("drop_vectors", asked)).body)["state"] == "retired"

    async def gone() -> bool:
        return not await spaces(garden)

    await until(gone)
    assert await named(garden, OLD, "roses") == []
    for operation in ("reembed", "drop_vectors"):
        answer = await garden.call(operation, {**asked, "embedding_space_id": "space:none"})
        assert orjson.loads(answer.body)["error"]["code"] == "embedding_space_mismatch"
    await asyncio.sleep(0)
    await garden.close()
