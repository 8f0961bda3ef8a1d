"""What an object, an event and a vector take on disk, what each service takes of memory and processor, and how soon
it is there again after its process was killed.

Runs  pamspec up --processes  on servers of its own in a directory that it removes, stores objects and prints a table:

    .venv/bin/python tools/capacity.py --objects 5000
"""

import argparse
import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import asyncpg
import psutil

from pamspec_cli.bench.environment import up
from pamspec_cli.data import DataDirectory
from pamspec_cli.own_service import administrator
from pamspec_client import AsyncClient

SCOPE = "bench:capacity"
BATCH = 100
WORDS_OF_A_TEXT = 40
SETTLED_S = 600.0
MIB = 1024 * 1024

SIZES_SQL = """
SELECT CASE WHEN c.relname LIKE 'vectors\\_%' THEN 'vector'
            WHEN n.nspname IN ('core', 'relay') THEN 'ledger' ELSE 'index' END AS what,
       sum(pg_total_relation_size(c.oid))::bigint AS bytes
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema') GROUP BY 1
"""
BEHIND_SQL = """
SELECT (SELECT count(*) FROM relay.outbox) + (SELECT count(*) FROM index_.embedding_queue)
     + (SELECT $1::bigint - count(*) FROM index_.vectors)
"""


def texts(count: int) -> list[str]:
    """Texts of one length over a vocabulary whose words are as unevenly frequent as those of a language."""
    source = random.Random(7)
    words = ["".join(source.choices("aeioubdklmnrst", k=source.randint(3, 9))) for _ in range(8000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    return [" ".join(source.choices(words, weights, k=WORDS_OF_A_TEXT)) for _ in range(count)]


async def store(client: AsyncClient, found: list[str], start: int) -> None:
    """One batch of creates."""
    items = [
        {
            "operation": "create",
            "object_type": "observation",
            "canonical_content": {"text": text, "turn": start + number},
            "provenance": {"activity": "told"},
        }
        for number, text in enumerate(found)
    ]
    await client.call("batch", {"scope_id": SCOPE, "idempotency_key": f"capacity-{start}", "items": items})


def bytes_under(directory: Path) -> int:
    """What the files of a directory occupy."""
    return sum(file.stat().st_blocks * 512 for file in directory.rglob("*") if file.is_file())


def load_of(services: Mapping[str, psutil.Process]) -> dict[str, tuple[float, float]]:
    """MiB resident and seconds of processor time of each service, with its children."""
    found = {}
    for name, process in services.items():
        family = [process, *process.children(recursive=True)]
        times = [one.cpu_times() for one in family]
        found[name] = (
            sum(one.memory_info().rss for one in family) / MIB,
            sum(each.user + each.system for each in times),
        )
    return found


async def back_after_kill(data: DataDirectory, service: str, process: psutil.Process) -> float:
    """Seconds from SIGKILL until the service is ready again; whoever watches it pauses 0.2 s before he starts it."""
    url = f"http://127.0.0.1:{data.port(service)}/readyz"
    began = time.monotonic()
    process.kill()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session, asyncio.timeout(SETTLED_S):
        while True:
            try:
                async with session.get(url) as answer:
                    if answer.status == 200 and not process.is_running():
                        return time.monotonic() - began
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(0.02)


async def measure(directory: Path, objects: int) -> None:
    """Prints the table."""
    data = DataDirectory(directory)
    async with up(directory, "--processes", environment={}) as product:
        database = await asyncpg.connect(administrator(data).database_url)
        key = (directory / "secrets" / "development-key").read_text(encoding="utf-8").strip()
        noted = data.noted()["processes"]
        assert isinstance(noted, dict)
        services = {str(name): psutil.Process(int(pid)) for name, pid in noted.items()}
        async with AsyncClient(product.url, key) as client:
            await client.create_scope(scope_id=SCOPE, scope_kind="bench")
            bus = directory / "nats" / "store"
            before = {row["what"]: row["bytes"] for row in await database.fetch(SIZES_SQL)}
            bus_before, idle = bytes_under(bus), load_of(services)
            found, began = texts(objects), time.monotonic()
            for start in range(0, objects, BATCH):
                await store(client, found[start : start + BATCH], start)
            stored = time.monotonic()
            loaded = load_of(services)
            async with asyncio.timeout(SETTLED_S):
                while await database.fetchval(BEHIND_SQL, objects) > 0:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.5)
            settled = time.monotonic()
            await database.execute("VACUUM")
            after = {row["what"]: row["bytes"] for row in await database.fetch(SIZES_SQL)}
            bus_after, finally_ = bytes_under(bus), load_of(services)
            back = {name: await back_after_kill(data, name, process) for name, process in services.items()}
        await database.close()
    content = sum(len(text) for text in found) / objects
    print(f"{objects:,} creates with a text of {content:.0f} bytes each; {stored - began:.1f} s, embedded after")
    print(f"{settled - began:.1f} s. Bytes per object, tables with their indexes:")
    for what in ("ledger", "index", "vector"):
        print(f"  {what:<8} {(after[what] - before[what]) / objects:8.0f}")
    print(f"  {'event':<8} {(bus_after - bus_before) / objects:8.0f}   (files of the stream, one replica)")
    print("service             MiB idle  MiB most  CPU ms/object  s to ready after kill -9")
    for name in services:
        most = max(loaded[name][0], finally_[name][0])
        spent = (finally_[name][1] - idle[name][1]) * 1000 / objects
        print(f"  {name:<18} {idle[name][0]:7.0f}  {most:8.0f}  {spent:12.2f}  {back[name]:10.2f}")


def main() -> None:
    """Parses the arguments and cleans up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=5000)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="pamspec-capacity-"))
    try:
        asyncio.run(measure(directory, arguments.objects))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
