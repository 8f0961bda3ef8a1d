"""Exports and imports: versions per second, and how much memory a long one takes beside a short one."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

import asyncpg
import psutil

from pamspec_cli.bench import bodies, version_rows
from pamspec_cli.bench.environment import Environment, Product
from pamspec_cli.bench.figures import Figure, Measured, at_least, in_turns
from pamspec_client import AsyncClient
from pamspec_client.requests import BatchItem
from pamspec_query.handlers.export import PAGE_BYTES, PAGE_ROWS
from pamspec_query.queries.export import EXPORT_PAGE_SQL

VERSIONS = 30_000
BATCH = 1000
SHORT, LONG = 10_000, 1_000_000
IMPORTED_LONG = 150_000
GROWTH_MIB = 64.0
MIB = 1024 * 1024
_SAMPLE_S = 0.1


async def rates(environment: Environment) -> Sequence[Figure]:
    """Versions per second out, beside the same SELECT alone, and in."""
    scope_id = "bench:transfer"
    connection = await asyncpg.connect(environment.database_url)
    try:
        async with environment.product() as product, environment.client(product) as client:
            await _write(client, scope_id, VERSIONS)
            key = await connection.fetchval("SELECT scope_key FROM core.scope WHERE scope_id = $1", scope_id)
            path = environment.directory / "transfer.ndjson"

            async def export_run() -> float:
                started = time.perf_counter()
                await _export(client, scope_id, path)
                return VERSIONS / (time.perf_counter() - started)

            async def select_run() -> float:
                return await _select_all(connection, key)

            await export_run()
            await select_run()
            exported, selected = await in_turns(export_run, select_run)
            imported = [await _import(client, path, f"{scope_id}-{number}", VERSIONS) for number in range(3)]
    finally:
        await connection.close()
    note = "a file over HTTP, written to disk; floor: the same SELECT alone"
    rate = Measured.of(imported)
    return [
        at_least("export.versions", exported, "versions/s", selected, 0.25, or_value=20_000, note=note),
        Figure(
            name="import.versions",
            value=rate.median,
            unit="versions/s",
            floor=None,
            ratio=None,
            target="measured",
            ok=True,
            spread=rate.spread,
            note="checked line by line, then stored in one transaction, into another name",
        ),
    ]


async def resident(environment: Environment) -> Sequence[Figure]:
    """The most that the service has resident while it exports and imports: a long scope beside a short one."""
    url = environment.database_url
    for scope_id, count in (("bench:short", SHORT), ("bench:long", LONG)):
        await version_rows.fill(url, scope_id, count, version_rows.objects)
    path = environment.directory / "resident.ndjson"
    async with environment.product() as product, environment.client(product) as client:
        exports = []
        for scope_id in ("bench:short", "bench:long"):
            exports.append(await _most(product, _export(client, scope_id, path)))
        path.unlink()
        imports = []
        for count in (SHORT, IMPORTED_LONG):
            scope_id = f"bench:written-{count}"
            await _write(client, scope_id, count)
            await _export(client, scope_id, path)
            imports.append(await _most(product, _import(client, path, f"{scope_id}-in", count)))
    return [
        _growth("export.resident", exports, LONG),
        _growth("import.resident", imports, IMPORTED_LONG),
    ]


def _growth(name: str, most: Sequence[float], count: int) -> Figure:
    short, long = most
    return Figure(
        name=name,
        value=long,
        unit="MiB",
        floor=short,
        ratio=long / short,
        target=f"<= floor + {GROWTH_MIB:g} MiB",
        ok=long <= short + GROWTH_MIB,
        note=f"the most of the whole service in one process, {count:,} versions; floor: {SHORT:,} versions",
    )


async def _most(product: Product, work: Coroutine[Any, Any, object]) -> float:
    """The most MiB that the product has resident while something runs."""
    process = psutil.Process(product.pid)
    most = 0.0
    task = asyncio.create_task(work)
    while not task.done():
        most = max(most, process.memory_info().rss / MIB)
        await asyncio.wait((task,), timeout=_SAMPLE_S)
    await task
    return most


async def _write(client: AsyncClient, scope_id: str, count: int) -> None:
    await client.create_scope(scope_id=scope_id, scope_kind="bench")
    for start in range(0, count, BATCH):
        items = [
            cast(BatchItem, {"operation": "create", **bodies.create(scope_id, str(number))})
            for number in range(start, start + BATCH)
        ]
        await client.batch(scope_id=scope_id, items=items)


async def _export(client: AsyncClient, scope_id: str, path: Path) -> None:
    with path.open("wb") as file:
        async for piece in client.export(scope_id=scope_id):
            file.write(piece)


async def _import(client: AsyncClient, path: Path, scope_id: str, versions: int) -> float:
    """Versions per second of an import under another name."""
    started = time.perf_counter()
    answer = await client.import_(path, remap={"scope_id": scope_id})
    if not answer.imported or answer.versions != versions or answer.replayed:
        raise RuntimeError(f"an import of {answer.versions} versions instead of {versions}")
    return versions / (time.perf_counter() - started)


async def _select_all(connection: "asyncpg.Connection[asyncpg.Record]", scope_key: int) -> float:
    at = seen = 0
    started = time.perf_counter()
    while seen < VERSIONS:
        rows = await connection.fetch(EXPORT_PAGE_SQL, scope_key, at, VERSIONS, PAGE_ROWS, PAGE_BYTES)
        seen += len(rows)
        at = rows[-1]["sequence"]
    return seen / (time.perf_counter() - started)
