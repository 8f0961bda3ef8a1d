"""Vectors of clients and of an endpoint: of current versions alone, in their space, gone with what they are made of."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest_asyncio

from pamspec_common.embedding_spaces import index_id
from pamspec_common.postgres import scoped
from pamspec_common.principal import Principal, service_principal
from pamspec_common.service import Service
from services.indexing.tests.endpoint import DIMENSIONS, MODEL, Stub, vector_of
from services.indexing.tests.world import PATIENCE_S, Garden, World
from services.write.tests.writer import PROVENANCE, TENANT, Document

STUB_SPACE = "space:stub:1"
READER = Principal(TENANT, "agent:reader", "agent", roles=frozenset({"reader"}))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stub() -> AsyncIterator[Stub]:
    """An embeddings endpoint."""
    stub = Stub()
    await stub.start()
    yield stub
    await stub.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def embedding(world: World, stub: Stub) -> AsyncIterator[Service]:
    """An indexing service that embeds what is written through the endpoint."""
    made = await world.service(**of_stub(stub))
    yield made
    await made.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def plot(world: World, embedding: Service) -> AsyncIterator[Garden]:
    """A scope of this test alone, whose objects are embedded."""
    made = await Garden.made(world, embedding)
    asked = {"scope_id": made.writer.scope, "embedding_space_id": STUB_SPACE}
    assert orjson.loads((await made.call("reembed", asked)).body)["state"] == "current"
    sql = "SELECT backfill IS NULL FROM index_.scope_space WHERE scope_key = $1"

    async def filled() -> bool:
        return bool(await made.writer.admin.fetchval(sql, made.key))

    await until(filled)
    yield made
    await made.close()


def of_stub(stub: Stub, **changes: Any) -> Document:
    """The settings of a service that embeds through the endpoint."""
    return {
        "embedder": "openai",
        "embedder_url": stub.url,
        "embedder_model": MODEL,
        "embedder_dimensions": DIMENSIONS,
        "embedder_space_id": STUB_SPACE,
        "embedder_key": "a-key",
        "embedder_query_prefix": "query: ",
        "embedder_passage_prefix": "passage: ",
        "embedder_poll_ms": 20,
        **changes,
    }


async def space(garden: Garden, **more: Any) -> str:
    """A space of three dimensions."""
    space_id = f"space:{secrets.token_hex(6)}"
    document = {
        "embedding_space_id": space_id, "provider": "local", "model": "axes", "model_revision": "1", "dimensions": 3,
        "distance_metric": "cosine", "normalization": "none", "preprocessing_profile": "none",
        "embedding_kind": "dense", "canonicalization_rules": "none", **more,
    }  # fmt: skip
    await garden.writer.ok("register_embedding_space", document)
    return space_id


async def put(garden: Garden, space_id: str | None, *given: tuple[Document, Any], **more: Any) -> Document:
    """The answer of put_vectors, its error where it is refused."""
    vectors = [
        {"object_id": made["object_id"], "version_id": made["version_id"]}
        | ({"vectors": vector} if not vector or isinstance(vector[0], list) else {"vector": vector})
        for made, vector in given
    ]
    named = {} if space_id is None else {"embedding_space_id": space_id}
    answer = await garden.call("put_vectors", {"scope_id": garden.writer.scope, "vectors": vectors, **named}, **more)
    document: Document = orjson.loads(answer.body)
    found: Document = document.get("error", document)
    return found


async def near(garden: Garden, space_id: str, vector: list[float], **how: Any) -> list[tuple[str, float]]:
    """What the search finds: object and score, nearest first."""
    async with scoped(garden.conn, [garden.key]):
        rows = await garden.conn.fetch(
            "SELECT object_id, score FROM index_.vector_candidates($1, $2, $3, 10, $4, $5)",
            garden.key, space_id, vector, how.get("exact", False), how.get("only"),
        )  # fmt: skip
    return [(row["object_id"], round(row["score"], 4)) for row in rows]


async def until(holds: Callable[[], Any]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():
            await asyncio.sleep(0.02)


async def rows(garden: Garden, table: str = "vectors") -> int:
    """How many rows of the scope a table has."""
    sql = f"SELECT count(*) FROM index_.{table} WHERE scope_key = $1"
    return int(await garden.writer.admin.fetchval(sql, garden.key))


async def test_clients_bring_vectors_of_several_spaces_and_chunks(garden: Garden) -> None:
    one, two = await garden.writer.create("one"), await garden.writer.create("two")
    axes, other = await space(garden), await space(garden, distance_metric="l2", dimensions=2)
    answer = await put(garden, axes, (one, [1, 0, 0]), (two, [[0, 1, 0], [0, 0, 1]]))
    assert (answer["objects"], answer["vectors"], answer["index_id"]) == (2, 3, index_id(axes))
    await put(garden, other, (one, [3, 4]))
    assert await near(garden, axes, [0.0, 0.0, 2.0]) == [(two["object_id"], 1.0), (one["object_id"], 0.0)]
    assert await near(garden, other, [0.0, 0.0]) == [(one["object_id"], -5.0)]
    await put(garden, axes, (one, [0, 0, 1]))
    assert (await near(garden, axes, [0.0, 0.0, 1.0]))[0][1] == 1.0
    await put(garden, axes, (two, []))
    assert await near(garden, axes, [0.0, 1.0, 0.0]) == [(one["object_id"], 0.0)]
    assert await near(garden, axes, [0.0, 1.0]) == []
    assert (await garden.settled(index_id(axes)))["lag"]["events"] == 0


async def test_what_cannot_be_compared_is_a_mismatch_and_nothing_is_stored(garden: Garden) -> None:
    made = await garden.writer.create("x")
    axes = await space(garden)
    refused = [
        await put(garden, None, (made, [1, 0, 0])),
        await put(garden, "space:none", (made, [1, 0, 0])),
        await put(garden, axes, (made, [1, 0])),
        await put(garden, axes, (made, [0, 0, 0])),
        await put(garden, await space(garden, normalization="l2"), (made, [1, 1, 0])),
    ]
    assert [error["code"] for error in refused] == ["embedding_space_mismatch"] * len(refused)
    unknown = {**made, "object_id": "obj:none"}
    assert (await put(garden, axes, (made, [1, 0, 0]), (unknown, [1, 0, 0])))["code"] == "object_not_found"
    assert (await put(garden, axes, (made, [1, 0, 0]), by=READER))["code"] == "access_denied"
    assert await rows(garden) == 0


async def test_a_later_version_loses_the_vectors_and_an_earlier_one_gets_none(garden: Garden) -> None:
    made = await garden.writer.create("first")
    axes = await space(garden)
    await put(garden, axes, (made, [1, 0, 0]))
    moved = await garden.writer.ok(
        "transition",
        garden.writer.change(made, dimension="validation", target_state="corroborated", policy_basis="test"),
    )
    await garden.settled()
    assert await near(garden, axes, [1.0, 0.0, 0.0]) == [(made["object_id"], 1.0)], "its content is the same"
    changed = await garden.writer.update(moved, "second")
    await garden.settled()
    assert await rows(garden) == 0
    error = await put(garden, axes, (made, [1, 0, 0]))
    assert (error["code"], error["details"]["current_version_id"]) == ("version_conflict", changed["version_id"])
    await put(garden, axes, (changed, [1, 0, 0]))
    gone = await garden.writer.delete(changed)
    await garden.settled()
    assert await rows(garden) == 0
    assert (await put(garden, axes, (gone, [1, 0, 0])))["code"] == "object_deleted"


async def test_filters_narrow_the_search_and_scopes_are_apart(world: World, garden: Garden) -> None:
    axes = await space(garden)
    made = [await garden.writer.create(str(number)) for number in range(3)]
    await put(garden, axes, *((one, [1, number, 0]) for number, one in enumerate(made)))
    docs = {
        row["object_id"]: row["doc"]
        for row in await garden.writer.admin.fetch(
            "SELECT object_id, doc FROM index_.indexed_object WHERE scope_key = $1", garden.key
        )
    }
    only = [docs[made[2]["object_id"]]]
    assert [name for name, _ in await near(garden, axes, [1.0, 0.0, 0.0], only=only)] == [made[2]["object_id"]]
    other = await Garden.made(world, garden.service)
    assert await near(other, axes, [1.0, 0.0, 0.0]) == []
    async with scoped(other.conn, [other.key]):
        sql = "SELECT * FROM index_.vector_candidates($1, $2, $3, 10)"
        assert await other.conn.fetch(sql, garden.key, axes, [1.0, 0.0, 0.0]) == []
    await other.close()


async def test_what_is_written_is_embedded_told_and_found_by_a_text(plot: Garden, stub: Stub) -> None:
    rose = await plot.writer.create({"statement": "roses bloom in june", "n": 1})
    depot = await plot.writer.create({"statement": "the depot opens at six"})
    settled = await plot.settled(index_id(STUB_SPACE))
    assert settled["lag"]["events"] == 0
    assert "passage: roses bloom in june" in stub.texts
    assert set(stub.keys) == {"Bearer a-key"}
    asked = {"scope_id": plot.writer.scope, "embedding_space_id": STUB_SPACE, "text": "roses bloom"}
    answer = await plot.call("embed_text", asked, by=service_principal("query", TENANT))
    assert answer.status == 200, answer.body
    found = await near(plot, STUB_SPACE, orjson.loads(answer.body)["vector"])
    assert [name for name, _ in found] == [rose["object_id"], depot["object_id"]]
    assert (await plot.call("embed_text", asked)).status == 403

    async def told() -> bool:
        counted = 0
        for entry in await plot.writer.ledger():
            if entry.event["event_type"] == "embedding_generated":
                counted += entry.event["payload"].get("count", 1)
        return counted == 2

    await until(told)

    async def noted() -> bool:
        return await rows(plot, "embedding_untold") == 0

    await until(noted)


async def test_a_change_of_state_embeds_nothing_anew_and_an_erasure_takes_the_vector(plot: Garden, stub: Stub) -> None:
    word = f"word{secrets.token_hex(6)}"
    made = await plot.writer.create(word)
    kept = await plot.writer.create("a sibling that stays")
    await plot.settled(index_id(STUB_SPACE))
    moved = await plot.writer.ok(
        "transition",
        plot.writer.change(made, dimension="validation", target_state="corroborated", policy_basis="test"),
    )
    await plot.settled(index_id(STUB_SPACE))
    assert sum(word in text for text in stub.texts) == 1
    assert await rows(plot) == 2
    await plot.writer.ok(
        "redact",
        plot.writer.change(moved, policy_basis="test", redaction_target={"whole": True}, provenance=PROVENANCE),
    )
    await plot.settled(index_id(STUB_SPACE))
    assert [name for name, _ in await near(plot, STUB_SPACE, vector_of(f"passage: {word}"))] == [kept["object_id"]]
    assert await rows(plot) == 1


async def test_what_is_erased_while_its_vector_is_made_gets_none(plot: Garden, stub: Stub) -> None:
    stub.open.clear()
    before = len(stub.asked)
    made = await plot.writer.create("soon gone")

    async def asked() -> bool:
        return len(stub.asked) > before

    await until(asked)
    lexical = await plot.settled()
    assert lexical["lag"]["events"] == 0, "a slow embedder holds up nothing but its own index"
    (behind,) = [one for one in (await plot.indexes())["indexes"] if one["index_id"] == index_id(STUB_SPACE)] or [None]
    assert behind is None or behind["lag"]["events"] > 0
    await plot.writer.delete(made)
    await plot.settled()
    stub.open.set()
    await plot.settled(index_id(STUB_SPACE))
    assert (await rows(plot), await rows(plot, "embedding_queue")) == (0, 0)
