"""Figures of finding in a scope of 100,000 objects: how long a query takes, and how much of the nearest it finds.

The objects go in through the front door, in batches, and each is given a vector of a space of this run's own, so that
nothing waits for a model. Then the query service answers in this process: what is measured is its work and the store's.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from pamspec_cli.bench import finding_rows
from pamspec_cli.bench.environment import Environment
from pamspec_cli.bench.figures import Figure, percentile
from pamspec_cli.bench.generator import LoadFailed
from pamspec_cli.bench.queries import Reader, query_reader
from pamspec_client import AsyncClient
from pamspec_client.models.objects import Outcome

OBJECTS = 100_000
BATCH = 250
AT_ONCE = 4
SCOPE = "bench:finding"
SPACE = "space:bench:1"
QUESTIONS, WARM = 200, 20
LIMIT = 20
NEAREST = 10
P95_MS = 60.0
RECALL, RECALL_FILTERED = 0.97, 0.95
SPEAKER_OF_100 = {"field": "content:/hundredth", "op": "eq", "value": 7}
INDEXED_WITHIN_S = 1800.0
NAMES = ("find.hybrid_query", "find.lexical_query", "find.semantic_query", "find.vector_recall", "find.filtered_recall")


async def at_scale(environment: Environment) -> Sequence[Figure]:
    """Every figure of a large scope."""
    async with environment.product() as product, environment.client(product) as client:
        await filled(client, OBJECTS)
    async with query_reader(environment) as asked:
        times = await _times(asked)
        recalls = [await _recall(asked, {}), await _recall(asked, {"where": SPEAKER_OF_100})]
    return [
        *(_time(mode, took) for mode, took in times.items()),
        _found("find.vector_recall", recalls[0], RECALL, "recall@10 of approximate search against exact"),
        _found("find.filtered_recall", recalls[1], RECALL_FILTERED, "the same under a filter that keeps 1 in 100"),
    ]


async def filled(client: AsyncClient, count: int) -> None:
    """Put objects and their vectors in, and wait until the indexes have them."""
    await client.create_scope(scope_id=SCOPE, scope_kind="bench")
    await client.call("register_embedding_space", _space())
    at_once = asyncio.Semaphore(AT_ONCE)

    async def put(numbers: range) -> None:
        async with at_once:
            written = (await client.batch(scope_id=SCOPE, items=[_item(number) for number in numbers])).results
            vectors = []
            for number, result in zip(numbers, written, strict=True):
                if not isinstance(result, Outcome):
                    raise LoadFailed(f"a create was answered with {result!r}")
                vector = [round(value, 5) for value in finding_rows.vector(number)]
                vectors.append({"object_id": result.object_id, "version_id": result.version_id, "vector": vector})
            document = {"scope_id": SCOPE, "embedding_space_id": SPACE, "vectors": vectors}
            await client.call("put_vectors", document)

    for start in range(0, count, BATCH * AT_ONCE * 4):
        several = range(start, min(count, start + BATCH * AT_ONCE * 4), BATCH)
        await asyncio.gather(*(put(range(one, min(count, one + BATCH))) for one in several))
    await _indexed(client)


async def _indexed(client: AsyncClient) -> None:
    async with asyncio.timeout(INDEXED_WITHIN_S):
        while True:
            reply = orjson.loads((await client.call("list_indexes", {"scope_id": SCOPE})).body)
            lags = {index["index_id"]: index["lag"]["events"] for index in reply["indexes"]}
            if lags.get("index:lexical") == 0 and lags.get(f"index:vector:{SPACE}") == 0:
                return
            await asyncio.sleep(0.5)


def _item(number: int) -> Any:
    content, source_ref = finding_rows.observation(number)
    return {
        "operation": "create",
        "object_type": "observation",
        "canonical_content": {**content, "hundredth": number % 100},
        "provenance": {"activity": "bench", "source_ref": source_ref},
    }


def _space() -> dict[str, Any]:
    return {
        "scope_id": SCOPE,
        "embedding_space_id": SPACE,
        "provider": "bench",
        "model": "clusters",
        "model_revision": str(finding_rows.SEED),
        "dimensions": finding_rows.DIMENSIONS,
        "distance_metric": "cosine",
        "normalization": "l2",
        "preprocessing_profile": "none",
        "embedding_kind": "dense",
        "canonicalization_rules": "none",
    }


def _asked(number: int, mode: str, limit: int = LIMIT) -> dict[str, Any]:
    """A question about an object: by its words, by a vector near its own, or by both."""
    about = number * 7919 % OBJECTS
    words = {"text": finding_rows.question(about)}
    near = {"vector": finding_rows.vector(OBJECTS + number, near=about)}
    queries: Mapping[str, Mapping[str, Any]] = {
        "lexical": {"kind": "hybrid", "modes": ["lexical"], **words},
        "semantic": {"kind": "semantic", **near},
        "hybrid": {"kind": "hybrid", **words, **near},
    }
    space = {} if mode == "lexical" else {"embedding_space_id": SPACE}
    page = {"pagination": {"limit": limit}}
    return {"scope_id": SCOPE, "query": {**queries[mode], "trust": "all"}, **space, **page}


async def _times(asked: Reader) -> dict[str, list[float]]:
    """Milliseconds of each question in each mode, in turns."""
    took: dict[str, list[float]] = {"hybrid": [], "lexical": [], "semantic": []}
    for number in range(WARM + QUESTIONS):
        for mode, times in took.items():
            one, _ = await asked.timed("query", _asked(number, mode))
            if number >= WARM:
                times.append(one)
    return took


async def _recall(asked: Reader, more: Mapping[str, Any]) -> float:
    """The share of the ten nearest by exact comparison that approximate search finds among its ten nearest."""
    shares = []
    for number in range(QUESTIONS):
        document = _asked(number, "semantic", NEAREST)
        document["query"] |= more
        found = [await _objects(asked, {**document, "exact": exact}) for exact in (False, True)]
        shares.append(len(found[0] & found[1]) / len(found[1]))
    return statistics.fmean(shares)


async def _objects(asked: Reader, document: Mapping[str, Any]) -> set[str]:
    _, body = await asked.timed("query", {**document, "fields": ["object_id"]})
    return {item["projection"]["object_id"] for item in orjson.loads(body)["items"]}


def _time(mode: str, took: Sequence[float]) -> Figure:
    value, middle = percentile(took, 0.95), statistics.median(took)
    aim = f"<= {P95_MS:g} ms"
    note = (
        f"p95 of {len(took)} questions at {OBJECTS:,} objects, without the embedding of the text; p50 {middle:.1f} ms"
    )
    return Figure(f"find.{mode}_query", value, "ms", None, None, aim, value <= P95_MS, note=note)


def _found(name: str, value: float, aim: float, note: str) -> Figure:
    return Figure(
        name, value, "recall@10", 1.0, value, f">= {aim:g}", value >= aim, note=f"{note}; {OBJECTS:,} vectors"
    )
