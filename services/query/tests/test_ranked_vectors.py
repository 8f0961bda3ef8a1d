"""Ranked queries by vectors: spaces, exactness, filters, floors, fusion with words, texts that become vectors."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import aiohttp.web
import asyncpg
import orjson
import pytest
import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.process import free_port
from pamspec_common.calls import Answer, Call, refusal
from pamspec_common.errors import ServiceUnavailable
from pamspec_common.service import Part
from pamspec_query.app import build
from services.query.tests.asking import SCOPE, flat, item_name, names, walk
from services.query.tests.door import Conn, Door, limited, settings
from services.query.tests.indexed import index, lexical, mark, near, vectors
from services.query.tests.seeds import Scope

AXES = {"x": [1.0, 0.0, 0.0], "y": [0.0, 1.0, 0.0], "z": [0.0, 0.0, 1.0]}


@pytest_asyncio.fixture
async def axes(seeding: Conn) -> tuple[Scope, str]:
    """Three objects along three axes, and their space."""
    scope = Scope(SCOPE)
    for name in AXES:
        scope.put(f"obj:{name}", {"text": f"axis {name}ax"})
    await scope.flush(seeding)
    await index(seeding, scope)
    return scope, await vectors(seeding, scope, AXES)


async def test_the_nearest_come_first(axes: tuple[Scope, str], door: Door) -> None:
    """P29, P148: the semantic score is the metric's, the answer names space, index and tie-break."""
    _, space = axes
    found = await door.ok("query", scope_id=SCOPE, query=near([0.1, 1, 0.05]), embedding_space_id=space, min_sequence=3)
    assert [item_name(item) for item in found["items"]] == ["y", "x", "z"]
    assert math.isclose(found["items"][0]["semantic_score"], 1 / math.sqrt(1 + 0.01 + 0.0025), abs_tol=1e-5)
    said = found["index"]
    assert (said["embedding_space_id"], said["index_id"]) == (space, f"index:vector:{space}")
    assert (said["watermark"], said["approximate"]) == (3, False), "so few are compared one by one"
    assert said["lists"][0]["complete"] is True


async def test_spaces_are_never_mixed(axes: tuple[Scope, str], seeding: Conn, door: Door) -> None:
    """P26-P28, P31: another space finds nothing, other dimensions are a mismatch, and so is a space of nobody."""
    scope, _ = axes
    twin = await vectors(seeding, scope, {}, embedding_space_id="space:twin")
    await seeding.execute("DELETE FROM index_.scope_space WHERE embedding_space_id = 'space:twin'")
    await seeding.execute("DELETE FROM index_.watermark WHERE index_id = 'index:vector:space:twin'")
    assert await names(door, near([1, 0, 0]), embedding_space_id=twin, min_sequence=3) == []
    for vector in ([1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0]):
        error = await door.refused("query", scope_id=SCOPE, query=near(vector), embedding_space_id="space:axes")
        assert error["code"] == "embedding_space_mismatch"
    error = await door.refused("query", scope_id=SCOPE, query=near([1.0]), embedding_space_id="space:none")
    assert error["code"] == "embedding_space_mismatch"
    stranger = door.as_("agent:stranger", tenant_id="tenant:other")
    refused = await stranger.refused("query", scope_id=SCOPE, query=near([1.0]), embedding_space_id="space:axes")
    assert refused["code"] == "scope_not_found", "rights are asked before spaces"


async def test_a_floor_waits_for_the_vectors(axes: tuple[Scope, str], seeding: Conn, door: Door) -> None:
    """K2: words may be there while vectors lag; a query of both is as far as the slower one."""
    scope, space = axes
    scope.put("obj:new", {"text": "axis"})
    await scope.flush(seeding)
    await index(seeding, scope)
    both = {"kind": "hybrid", "text": "axis", "vector": [1, 0, 0]}
    error = await door.refused("query", scope_id=SCOPE, query=both, embedding_space_id=space, min_sequence=4)
    assert (error["details"]["reason"], error["details"]["watermark"]) == ("index_lag", 3)
    assert len(await names(door, lexical("axis"), min_sequence=4)) == 4
    await mark(seeding, scope, f"index:vector:{space}", 4)
    found = await door.ok("query", scope_id=SCOPE, query=both, embedding_space_id=space, min_sequence=4)
    assert {item_name(item) for item in found["items"]} == {"x", "y", "z", "new"}
    assert found["index"]["index_id"] == f"index:lexical+index:vector:{space}"


async def test_a_rare_filter_loses_nothing(seeding: Conn, door: Door) -> None:
    """What a filter keeps is compared one by one: all of it is found, however far away it lies."""
    scope = Scope(SCOPE)
    many = 1000
    for number in range(many):
        scope.put(f"obj:{number}", {"n": number}, object_type="task" if number % 100 == 99 else "claim")
    await scope.flush(seeding)
    await index(seeding, scope)
    angles = {str(n): [math.cos(n / many), math.sin(n / many), 0.0] for n in range(many)}
    space = await vectors(seeding, scope, angles)
    query = near([1, 0, 0], filters={"object_type": ["task"]})
    found = await door.ok("query", scope_id=SCOPE, query=query, embedding_space_id=space, count="bounded")
    assert [item_name(item) for item in found["items"]] == [str(n) for n in range(99, many, 100)]
    assert found["count"] == {"exact": True, "value": 10}
    pages = await walk(door, 3, query=query, embedding_space_id=space)
    assert flat(pages) == [item_name(item) for item in found["items"]]
    for exact in (False, True):
        document = {
            "scope_id": SCOPE, "query": near([0.5, 0.5, 0]), "embedding_space_id": space, "exact": exact,
            "explain_ranking": True,
        }  # fmt: skip
        assert len({(await door.raw("query", orjson.dumps(document))).body for _ in range(3)}) == 1


async def test_objects_of_several_chunks_do_not_shorten_the_list(seeding: Conn, database: Database) -> None:
    """The walk goes on, wider, until as many objects are found as were asked for."""
    scope = Scope(SCOPE)
    many, wanted = 500, 50
    for number in range(many):
        scope.put(f"obj:{number}", {"n": number})
    await scope.flush(seeding)
    docs = await index(seeding, scope)
    given = {str(n): [math.cos(n / many), math.sin(n / many), *[0.0] * 254] for n in range(many)}
    space = await vectors(seeding, scope, given, embedding_space_id="space:walked", dimensions=256)
    await seeding.execute(
        "INSERT INTO index_.vectors (scope_key, space_key, doc, chunk, dimensions, metric, embedding, digest)"
        " SELECT scope_key, space_key, doc, n, dimensions, metric, embedding, digest"
        " FROM index_.vectors, generate_series(1, 2) n WHERE scope_key = $1",
        scope.key,
    )
    reader = await asyncpg.connect(database.role("query"))
    try:
        await reader.execute(f"SET pamspec.scope_keys = '{{{scope.key}}}'")
        sql = "SELECT doc, approximate FROM index_.vector_candidates($1, $2, $3::real[], $4)"
        rows = await reader.fetch(sql, scope.key, space, given["0"], wanted)
    finally:
        await reader.close()
    assert [row["doc"] for row in rows] == [docs[f"obj:{n}"] for n in range(wanted)]
    assert all(row["approximate"] for row in rows)


async def test_erased_and_moved_objects_are_not_near(axes: tuple[Scope, str], seeding: Conn, door: Door) -> None:
    """P25, M036: neither before nor after the index has taken the entry in."""
    scope, space = axes
    scope.put("obj:x", availability_state="deleted")
    scope.put("obj:y", {"text": "elsewhere"})
    await scope.flush(seeding)
    for trust in ("trusted", "all"):
        assert await names(door, near([1, 1, 0], trust=trust), embedding_space_id=space) == ["z"]


@dataclass
class Indexing:
    """An indexing service that knows the vectors of some texts."""

    asked: list[dict[str, str]] = field(default_factory=list)
    away: bool = False
    app: None = None

    async def call(self, call: Call) -> Answer:
        self.asked.append(orjson.loads(call.body))
        if self.away:
            return refusal(ServiceUnavailable("The embedder does not answer; try again."))
        return Answer(200, orjson.dumps({"vector": [0.0, 1.0, 0.0]}))

    async def ready(self) -> tuple[bool, list[Part]]:
        return True, []


async def test_texts_become_vectors(axes: tuple[Scope, str], database: Database, door: Door) -> None:
    _, space = axes
    indexing = Indexing()
    service = build(settings(database), indexing=indexing)
    await service.start()
    try:
        asking = Door(service, door.principal)
        semantic = {"kind": "semantic", "text": "which way is up?"}
        assert (await names(asking, semantic, embedding_space_id=space))[0] == "y"
        hybrid = await asking.ok(
            "query", scope_id=SCOPE, query={"kind": "hybrid", "text": "zax"}, embedding_space_id=space,
            explain_ranking=True,
        )  # fmt: skip
        by_name = {item_name(item): item["explanation"]["lists"] for item in hybrid["items"]}
        assert set(by_name["z"]) == {"lexical", "vector"}
        assert set(by_name["y"]) == {"vector"}
        assert indexing.asked[0] == {"scope_id": SCOPE, "embedding_space_id": space, "text": "which way is up?"}
        stranger = asking.as_("agent:stranger", tenant_id="tenant:other")
        await stranger.refused("query", scope_id=SCOPE, query=semantic, embedding_space_id=space)
        assert len(indexing.asked) == 2, "nobody's text is embedded before its rights are known"
        indexing.away = True
        error = await asking.refused("query", scope_id=SCOPE, query=semantic, embedding_space_id=space)
        assert error["code"] == "service_unavailable"
        assert len(await names(asking, lexical("axis"))) == 3, "words need no embedder"
    finally:
        await service.stop()
    error = await door.refused("query", scope_id=SCOPE, query=semantic, embedding_space_id=space)
    assert error["details"]["reason"] == "embedder_unavailable"


@dataclass
class Reranking:
    """A rerank endpoint: prefers texts with a word, or misbehaves."""

    url: str = ""
    asked: list[dict[str, object]] = field(default_factory=list)
    answer: object = None

    async def rerank(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        document = await request.json()
        self.asked.append(document)
        if self.answer is not None:
            return aiohttp.web.json_response(self.answer)
        texts: Sequence[str] = document["documents"]
        results = [{"index": n, "relevance_score": float("zax" in text)} for n, text in enumerate(texts)]
        return aiohttp.web.json_response({"results": results[::-1]})


@pytest_asyncio.fixture
async def reranking() -> AsyncIterator[Reranking]:
    found = Reranking()
    app = aiohttp.web.Application()
    app.router.add_post("/rerank", found.rerank)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", port).start()
    found.url = f"http://127.0.0.1:{port}/rerank"
    yield found
    await runner.cleanup()


async def test_a_reranker_orders_the_best_once_more(
    axes: tuple[Scope, str], database: Database, door: Door, reranking: Reranking
) -> None:
    call = {"query": lexical("axis"), "rerank": True, "explain_ranking": True}
    plain = await names(door, lexical("axis"))
    async with limited(database, door.principal, rerank_url=reranking.url, rerank_timeout_ms=20_000) as asking:
        found = await asking.ok("query", scope_id=SCOPE, **call)
        assert item_name(found["items"][0]) == "z"
        assert found["index"]["rerank"] == {"applied": True, "model": "default"}
        assert found["items"][0]["explanation"]["rerank"] == {"score": 1.0}
        assert reranking.asked[0]["query"] == "axis"
        assert flat(await walk(asking, 1, **call))[0] == "z"
        wrongs: list[object] = [{"results": []}, {"results": [{"index": 0}]}, [], {"results": "x"}]
        for wrong in wrongs:
            reranking.answer = wrong
            found = await asking.ok("query", scope_id=SCOPE, **call)
            assert found["index"]["rerank"] == {"applied": False, "model": "default", "reason": "failed"}
            assert [item_name(item) for item in found["items"]] == plain


async def test_without_a_reranker_the_order_stays(axes: tuple[Scope, str], database: Database, door: Door) -> None:
    found = await door.ok("query", scope_id=SCOPE, query=lexical("axis"), rerank=True)
    assert found["index"]["rerank"] == {"applied": False, "reason": "not_configured"}
    plain = await names(door, lexical("axis"))
    assert [item_name(item) for item in found["items"]] == plain
    async with limited(database, door.principal, rerank_url="http://127.0.0.1:9/rerank") as asking:
        away = await asking.ok("query", scope_id=SCOPE, query=lexical("axis"), rerank=True)
        assert away["index"]["rerank"]["reason"] in ("failed", "too_slow")
        assert [item_name(item) for item in away["items"]] == plain
        by_vector = near([1, 0, 0])
        none = await asking.ok("query", scope_id=SCOPE, query=by_vector, rerank=True, embedding_space_id="space:axes")
        assert none["index"]["rerank"] == {"applied": False, "reason": "no_text"}


@pytest.mark.parametrize("metric", ["l2", "inner_product"])
async def test_every_metric_grows_with_likeness(seeding: Conn, door: Door, metric: str) -> None:
    scope = Scope(SCOPE)
    for name in AXES:
        scope.put(f"obj:{name}", {"text": name})
    await scope.flush(seeding)
    await index(seeding, scope)
    space = await vectors(seeding, scope, AXES, embedding_space_id=f"space:{metric}", distance_metric=metric)
    assert (await names(door, near([0, 0, 2]), embedding_space_id=space))[0] == "z"
