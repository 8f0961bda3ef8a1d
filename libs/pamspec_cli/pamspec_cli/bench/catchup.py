"""Figure 6: catching up through poll pages of 1,000, against the same SELECT alone; and pages of a long ledger."""

import random
import statistics
import time

import asyncpg

from pamspec_cli.bench import ledger_rows
from pamspec_cli.bench.environment import Environment
from pamspec_cli.bench.figures import Figure, at_least, in_turns
from pamspec_client import AsyncClient
from pamspec_client.models import PollPage

EVENTS = 50_000
PAGE = 1000
SHORT, LONG = 10_000, 1_000_000
READS = 200
WITHIN = 0.2

PAGE_SQL = """
SELECT sequence, event_type, event FROM core.ledger WHERE scope_key = $1 AND sequence > $2 ORDER BY sequence LIMIT $3
"""


async def catch_up(environment: Environment) -> Figure:
    """Events per second from the first entry to the head."""
    keys = await ledger_rows.fill(environment.database_url, ["bench:catchup"], EVENTS)
    connection = await asyncpg.connect(environment.database_url)
    try:
        async with environment.product() as product, environment.client(product) as client:
            opened = await client.subscribe(scope_id="bench:catchup", after_sequence=0)

            async def product_run() -> float:
                await client.reset(subscription_id=opened.subscription_id, after_sequence=0)
                return await _poll_all(client, opened.subscription_id)

            async def floor_run() -> float:
                return await _select_all(connection, keys["bench:catchup"])

            await product_run()
            await floor_run()
            polled, selected = await in_turns(product_run, floor_run)
    finally:
        await connection.close()
    note = "poll pages of 1,000 over HTTP, each acknowledging the one before; floor: the same SELECT alone"
    return at_least("catchup.poll", polled, "events/s", selected, 0.3, or_value=20_000, note=note)


async def _poll_all(client: AsyncClient, subscription_id: str) -> float:
    at = seen = 0
    started = time.perf_counter()
    while seen < EVENTS:
        page = await _page(client, subscription_id, at)
        seen += len(page.events_raw)
        at = page.next_after_sequence
    return seen / (time.perf_counter() - started)


async def _page(client: AsyncClient, subscription_id: str, after: int) -> PollPage:
    request = {"subscription_id": subscription_id, "after_sequence": after, "max": PAGE}
    return PollPage.of((await client.call("poll", request)).body)


async def _select_all(connection: "asyncpg.Connection[asyncpg.Record]", scope_key: int) -> float:
    at = seen = 0
    started = time.perf_counter()
    while seen < EVENTS:
        rows = await connection.fetch(PAGE_SQL, scope_key, at, PAGE)
        seen += len(rows)
        at = rows[-1]["sequence"]
    return seen / (time.perf_counter() - started)


async def long_ledger(environment: Environment) -> Figure:
    """The first page after any position: as fast at 1,000,000 ledger rows as at 10,000."""
    url = environment.database_url
    await ledger_rows.fill(url, ["bench:short"], SHORT)
    await ledger_rows.fill(url, ["bench:long"], LONG)
    took: dict[str, list[float]] = {"bench:short": [], "bench:long": []}
    async with environment.product() as product, environment.client(product) as client:
        # At the head, so that a page from before it reads and moves nothing.
        opened = {scope_id: (await client.subscribe(scope_id=scope_id)).subscription_id for scope_id in took}
        for number in range(READS + 20):
            for scope_id, subscription_id in opened.items():
                after = random.randrange((SHORT if scope_id == "bench:short" else LONG) - PAGE)
                started = time.perf_counter()
                page = await _page(client, subscription_id, after)
                if len(page.events_raw) != PAGE:
                    raise RuntimeError(f"a page of {len(page.events_raw)} events after {after}")
                if number >= 20:
                    took[scope_id].append((time.perf_counter() - started) * 1000)
    short, long = statistics.median(took["bench:short"]), statistics.median(took["bench:long"])
    return Figure(
        name="catchup.long_ledger",
        value=long,
        unit="ms a page",
        floor=short,
        ratio=long / short,
        target=f"<= {1 + WITHIN:g} x floor",
        ok=long <= short * (1 + WITHIN),
        note=f"first page after any position, {LONG:,} ledger rows; floor: {SHORT:,} rows; median of {READS}",
    )
