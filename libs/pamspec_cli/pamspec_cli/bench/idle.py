"""Figure 7: what the whole service takes when it does nothing, how fast it starts, and how much an object takes."""

import asyncio
import json
import time
from pathlib import Path

import asyncpg
import psutil

from pamspec_cli.bench import bodies
from pamspec_cli.bench.environment import Environment, Product, up
from pamspec_cli.bench.figures import ROUNDS, Figure, Measured
from pamspec_client import AsyncClient

OBJECTS = 5_000
BATCH = 500
RESIDENT_MB = 250.0
START_S = 10.0
IDLE_S = 3.0
MIB = 1024 * 1024

SIZE_SQL = """
SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname IN ('core', 'relay') AND c.relkind = 'r'
"""


async def idle(environment: Environment) -> list[Figure]:
    """Resident memory and start on existing data, with servers of its own; bytes per object on the run's servers."""
    data = environment.directory / "idle"
    starts, resident = [], []
    async with up(data, environment={}) as product:
        await _store(product, _kept_key(data))
    for _ in range(ROUNDS):
        began = time.perf_counter()
        async with up(data, environment={}) as product:
            starts.append(time.perf_counter() - began)
            await asyncio.sleep(IDLE_S)
            resident.append(psutil.Process(product.pid).memory_info().rss / MIB)
    return [
        _at_most("idle.resident", Measured.of(resident), "MiB", RESIDENT_MB, "pamspec up in one process, Python alone"),
        _at_most("idle.start", Measured.of(starts), "s", START_S, "pamspec up on existing data, servers included"),
        await bytes_per_object(environment),
    ]


def _at_most(name: str, value: Measured, unit: str, limit: float, note: str) -> Figure:
    ok = value.median <= limit
    return Figure(name, value.median, unit, None, None, f"<= {limit:g} {unit}", ok, value.spread, note=note)


def _kept_key(data: Path) -> str:
    return (data / "secrets" / "development-key").read_text(encoding="utf-8").strip()


async def _store(product: Product, key: str, scope_id: str = "bench:idle") -> None:
    async with AsyncClient(product.url, key) as client:
        await client.create_scope(scope_id=scope_id, scope_kind="bench")
        for start in range(0, OBJECTS, BATCH):
            body = bodies.batch_bytes(scope_id, BATCH).replace(b"@" * 12, b"%012d" % start)
            await client.call("batch", json.loads(body))


async def bytes_per_object(environment: Environment) -> Figure:
    """Tables and indexes of one object with one version, its ledger entry and its operation record."""
    connection = await asyncpg.connect(environment.database_url)
    try:
        async with environment.product() as product:
            before = await connection.fetchval(SIZE_SQL)
            await _store(product, environment.key)
            after = await connection.fetchval(SIZE_SQL)
    finally:
        await connection.close()
    content = len(json.dumps(bodies.create("bench:idle")["canonical_content"]))
    note = f"tables and indexes of {OBJECTS:,} creates with {content} bytes of content each"
    return Figure("idle.bytes_per_object", (after - before) / OBJECTS, "bytes", None, None, "reported", True, note=note)
