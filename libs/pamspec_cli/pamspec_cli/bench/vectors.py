"""Figures of the vector search: how much of what an exact comparison finds the index finds, with and without a filter.

The vectors are synthetic: clusters around centres in all directions, from a fixed seed, so that a run can be repeated.
The truth is computed here, from the numbers that were stored.
"""

from __future__ import annotations

import struct
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from io import BytesIO

import asyncpg
import numpy as np
from numpy.typing import NDArray

from pamspec_cli.bench.environment import Environment
from pamspec_cli.bench.figures import Figure, percentile
from pamspec_cli.development import TENANT_ID

COUNT, DIMENSIONS, CLUSTERS, SPREAD, SEED = 100_000, 384, 200, 0.6, 7
QUERIES, NEAREST = 100, 10
SHARE = 0.01
RECALL, FILTERED = 0.97, 0.95
SPACE_ID, SCOPE_KEY = "space:bench", 7_000_007
INDEX = "vectors_near_384"
_BUILD_S = 900.0
_AT_ONCE = 5000

Floats = NDArray[np.float32]

PLANT_SQL = (
    "INSERT INTO core.tenant (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING",
    "INSERT INTO core.scope (scope_key, tenant_id, scope_id, tenant_token, scope_token, partition, document, ledger_id,"
    " created_at) SELECT " + str(SCOPE_KEY) + ", $1, 'bench:vectors', 't', 's', 0, '{}', 'x', clock_timestamp()",
    "INSERT INTO core.embedding_space (tenant_id, embedding_space_id, descriptor, dimensions, distance_metric,"
    " operation_id) SELECT $1, '" + SPACE_ID + "', '{}', " + str(DIMENSIONS) + ", 'cosine', 'op:bench'",
)
OBJECTS_SQL = """
INSERT INTO index_.indexed_object (scope_key, object_id, doc, kind, version_id, sequence)
SELECT $1, 'obj:' || n, n, 'o', 'ver:' || n, n FROM generate_series(1, $2::bigint) n
"""
INDEX_SQL = "SELECT pg_get_indexdef(('index_.' || $1)::regclass)"
ASK_SQL = "SELECT doc, approximate FROM index_.vector_candidates($1, $2, $3, $4, $5, $6)"


@dataclass(frozen=True)
class Clusters:
    """The stored vectors, numbered from 1 as the docs are, and what is looked for."""

    stored: Floats
    asked: Floats

    @classmethod
    def made(cls, count: int) -> Clusters:
        """So many of length 1."""
        random = np.random.default_rng(SEED)
        centres = random.normal(size=(CLUSTERS, DIMENSIONS))
        return cls(_around(random, centres, count), _around(random, centres, QUERIES))

    def nearest(self, number: int, among: Sequence[int] | None = None) -> set[int]:
        """The docs that are nearest to what is looked for."""
        docs = np.arange(1, len(self.stored) + 1) if among is None else np.asarray(among)
        far = -(self.stored[docs - 1] @ self.asked[number])
        return set(docs[np.argsort(far, kind="stable")[:NEAREST]].tolist())


@dataclass(frozen=True)
class Found:
    """What the searches found."""

    recall: float
    took_ms: list[float]
    approximate: int
    """How many of them walked the index."""


async def plant(conn: asyncpg.Connection, clusters: Clusters) -> float:
    """Store the vectors in a scope of their own, with the index made over all of them; seconds that it took."""
    started = time.perf_counter()
    await conn.execute("SET session_replication_role = replica")
    for statement in PLANT_SQL:
        await conn.execute(statement, TENANT_ID)
    sql = "SELECT space_key FROM core.embedding_space WHERE tenant_id = $1 AND embedding_space_id = $2"
    space_key = await conn.fetchval(sql, TENANT_ID, SPACE_ID)
    await conn.execute(OBJECTS_SQL, SCOPE_KEY, len(clusters.stored))
    index = (await conn.fetchval(INDEX_SQL, INDEX)).replace(" ON ONLY ", " ON ")
    await conn.execute(f"DROP INDEX index_.{INDEX}")
    await conn.copy_to_table(
        "vectors",
        schema_name="index_",
        columns=["scope_key", "space_key", "doc", "chunk", "dimensions", "metric", "embedding", "digest"],
        source=_rows(space_key, clusters.stored),
        format="binary",
    )
    await conn.execute("SET maintenance_work_mem = '1GB'")
    await conn.execute(index, timeout=_BUILD_S)
    await conn.execute("ANALYZE index_.vectors")
    await conn.execute("ANALYZE index_.indexed_object")
    await conn.execute("SET session_replication_role = origin")
    return time.perf_counter() - started


async def search(
    conn: asyncpg.Connection, clusters: Clusters, among: Sequence[int] | None = None, *, exactly: bool = False
) -> Found:
    """Look for all that is looked for, and compare with the truth."""
    hits, walked, took = 0, 0, []
    for number, vector in enumerate(clusters.asked):
        async with conn.transaction():
            await conn.execute(f"SET LOCAL pamspec.scope_keys = '{{{SCOPE_KEY}}}'")
            started = time.perf_counter()
            rows = await conn.fetch(ASK_SQL, SCOPE_KEY, SPACE_ID, vector.tolist(), NEAREST, exactly, among)
            took.append((time.perf_counter() - started) * 1000)
        hits += len(clusters.nearest(number, among) & {row["doc"] for row in rows})
        walked += any(row["approximate"] for row in rows)
    return Found(hits / (NEAREST * len(clusters.asked)), took, walked)


def some(count: int, share: float) -> list[int]:
    """Docs that a filter leaves."""
    docs = np.random.default_rng(SEED).choice(np.arange(1, count + 1), max(NEAREST, int(count * share)), replace=False)
    kept: list[int] = sorted(docs.tolist())
    return kept


async def recall(environment: Environment) -> list[Figure]:
    """Recall of the ten nearest at 100,000 vectors, of all and of the 1 % that a filter leaves."""
    clusters = Clusters.made(COUNT)
    conn = await asyncpg.connect(environment.database_url)
    try:
        seconds = await plant(conn, clusters)
        everything = await search(conn, clusters)
        filtered = await search(conn, clusters, some(COUNT, SHARE))
        half = await search(conn, clusters, some(COUNT, 0.5))
    finally:
        await conn.close()
    about = f"of the {NEAREST} nearest at {COUNT:,} vectors of {DIMENSIONS}; stored and indexed in {seconds:.0f} s"
    return [
        _figure("vectors.recall", everything, RECALL, about),
        _figure("vectors.recall_1_percent", filtered, FILTERED, f"of the same, where a filter leaves {SHARE:.0%}"),
        _figure("vectors.recall_50_percent", half, FILTERED, "of the same, where a filter leaves half"),
    ]


def _figure(name: str, found: Found, wanted: float, note: str) -> Figure:
    p50, p95 = (percentile(found.took_ms, share) for share in (0.5, 0.95))
    return Figure(
        name=name,
        value=found.recall,
        unit="recall@10",
        floor=None,
        ratio=None,
        target=f">= {wanted:g}",
        ok=found.recall >= wanted,
        note=f"{note}; p50 {p50:.1f} ms, p95 {p95:.1f} ms; {found.approximate} of {QUERIES} by the index",
        details={"p50_ms": round(p50, 3), "p95_ms": round(p95, 3), "approximate": found.approximate},
    )


def _around(random: np.random.Generator, centres: NDArray[np.float64], count: int) -> Floats:
    found = centres[random.integers(0, len(centres), count)] + SPREAD * random.normal(size=(count, DIMENSIONS))
    unit: Floats = (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)
    return unit


async def _rows(space_key: int, stored: Floats) -> AsyncIterator[bytes]:
    """The rows as COPY reads them in binary."""
    yield b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
    size = 4 + 4 * DIMENSIONS
    for start in range(0, len(stored), _AT_ONCE):
        buffer = BytesIO()
        for number, row in enumerate(stored[start : start + _AT_ONCE], start + 1):
            buffer.write(struct.pack(">hiqiiiqihih", 8, 8, SCOPE_KEY, 4, space_key, 8, number, 2, 0, 2, DIMENSIONS))
            buffer.write(struct.pack(">i1sihh", 1, b"c", size, DIMENSIONS, 0))
            buffer.write(row.astype(">f4").tobytes())
            buffer.write(struct.pack(">i1s", 1, b"x"))
        yield buffer.getvalue()
    yield struct.pack(">h", -1)
