"""Figure 5: from the commit to the subscriber at 300 commits/s over 50 scopes, over SSE and over NATS.

The clock starts at the event's `recorded_at`, which PostgreSQL takes before the rows are written, so the COMMIT counts
as part of the way. The floor is one COMMIT of one row and one hop over core NATS at the same rate.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import asyncpg
import nats
from nats.aio.msg import Msg

from pamspec_cli.bench import bodies
from pamspec_cli.bench.environment import Environment
from pamspec_cli.bench.figures import ROUNDS, Figure, Measured, percentile
from pamspec_client import AsyncClient
from pamspec_client.documents import FollowChannel
from pamspec_client.requests import CreateRequest

PER_SECOND = 300
SCOPES = 50
SECONDS = 4.0
FLOOR_SECONDS = 2.0
P50_MS, P99_MS, RATIO = 8.0, 60.0, 3.0
CHANNELS: tuple[FollowChannel, ...] = ("sse", "nats")
_SETTLE_S = 20.0

FLOOR_TABLE_SQL = "CREATE TABLE IF NOT EXISTS public.bench_hop (id bigint PRIMARY KEY, message bytea NOT NULL)"
FLOOR_INSERT_SQL = "INSERT INTO public.bench_hop (id, message) VALUES ($1, $2)"


@dataclass
class Watch:
    """Milliseconds that something took on its way, as they come in."""

    seen: list[float] = field(default_factory=list)
    expected: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, took_ms: float) -> None:
        """One came."""
        self.seen.append(took_ms)
        self.changed.set()

    async def settle(self) -> None:
        """Until all that are expected came; TimeoutError when they don't."""
        async with asyncio.timeout(_SETTLE_S):
            while len(self.seen) < self.expected:
                self.changed.clear()
                await self.changed.wait()

    def take(self) -> list[float]:
        """The latencies since the last round."""
        seen, self.seen, self.expected = self.seen, [], 0
        return seen


async def commit_to_delivered(environment: Environment) -> list[Figure]:
    """A figure for each channel."""
    scopes = [f"bench:delivery-{number}" for number in range(SCOPES)]
    watches = {channel: Watch() for channel in CHANNELS}
    rounds: dict[str, list[tuple[float, float]]] = {channel: [] for channel in CHANNELS}
    floors: list[float] = []
    async with AsyncExitStack() as stack:
        product = await stack.enter_async_context(environment.product())
        client = await stack.enter_async_context(environment.client(product))
        hop = await stack.enter_async_context(Hop(environment))
        followers = [
            asyncio.create_task(follower)
            for scope_id in scopes
            for follower in await _followers(client, scope_id, watches)
        ]
        stack.push_async_callback(_end, followers)
        await _round(client, scopes, watches, 1.0)
        for _ in range(ROUNDS):
            for channel, seen in (await _round(client, scopes, watches, SECONDS)).items():
                rounds[channel].append((percentile(seen, 0.5), percentile(seen, 0.99)))
            floors.append(percentile(await hop.round(FLOOR_SECONDS), 0.5))
        _raise_failures(followers)
    return [_figure(channel, rounds[channel], Measured.of(floors)) for channel in CHANNELS]


def _figure(channel: str, rounds: list[tuple[float, float]], floor: Measured) -> Figure:
    p50, p99 = Measured.of([one for one, _ in rounds]), Measured.of([other for _, other in rounds])
    ratio = p50.median / floor.median
    ok = (p50.median <= P50_MS and p99.median <= P99_MS) or ratio <= RATIO
    return Figure(
        name=f"delivery.{channel}",
        value=p50.median,
        unit="ms p50",
        floor=floor.median,
        ratio=ratio,
        target=f"p50 <= {P50_MS:g} ms and p99 <= {P99_MS:g} ms, or p50 <= {RATIO:g} x floor",
        ok=ok,
        spread=p50.spread,
        floor_spread=floor.spread,
        note=f"{PER_SECOND} commits/s over {SCOPES} scopes; floor: one COMMIT and one core NATS hop",
        details={"p99_ms": round(p99.median, 2), "p99_spread": round(p99.spread, 3)},
    )


async def _followers(
    client: AsyncClient, scope_id: str, watches: dict[FollowChannel, Watch]
) -> list[Coroutine[Any, Any, None]]:
    await client.create_scope(scope_id=scope_id, scope_kind="bench")
    made = []
    for channel, watch in watches.items():
        opened = await client.subscribe(
            scope_id=scope_id, filter={"event_classes": ["object_created"]}, channel=channel
        )
        made.append(_follow(client, opened.subscription_id, channel, watch))
    return made


async def _follow(client: AsyncClient, subscription_id: str, channel: FollowChannel, watch: Watch) -> None:
    async with client.follow(subscription_id, channel=channel, ack_every_s=5.0) as events:
        async for event in events:
            watch.note((time.time() - datetime.fromisoformat(event.recorded_at).timestamp()) * 1000)


async def _round(
    client: AsyncClient, scopes: list[str], watches: dict[FollowChannel, Watch], seconds: float
) -> dict[FollowChannel, list[float]]:
    """Write at the rate for so long; what each channel saw of it."""
    count = int(seconds * PER_SECOND)
    for watch in watches.values():
        watch.expected = len(watch.seen) + count
    await _paced(count, lambda number: _create(client, scopes[number % len(scopes)], number))
    for watch in watches.values():
        await watch.settle()
    return {channel: watch.take() for channel, watch in watches.items()}


async def _create(client: AsyncClient, scope_id: str, number: int) -> None:
    body = bodies.create(scope_id)
    request: CreateRequest = {
        "scope_id": scope_id,
        "object_type": body["object_type"],
        "canonical_content": {**body["canonical_content"], "number": number},
        "valid_from": body["valid_from"],
        "provenance": body["provenance"],
    }
    await client.create(**request)


async def _paced(count: int, start: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Start so many tasks at the rate, whether those before have ended or not."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            wait = began + number / PER_SECOND - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            group.create_task(start(number))


class Hop:
    """The floor: insert one row, commit, publish, and a subscriber on another connection."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._stack = AsyncExitStack()
        self._sent: dict[int, float] = {}
        self._watch = Watch()
        self._number = 0

    async def __aenter__(self) -> "Hop":
        variables = self._environment.variables
        seed = variables["PAMSPEC_NATS_NKEY_SEED"]
        self._pool = await self._stack.enter_async_context(asyncpg.create_pool(self._environment.database_url))
        await self._pool.execute(FLOOR_TABLE_SQL)
        self._publisher = await nats.connect(variables["PAMSPEC_NATS_URL"], nkeys_seed_str=seed)
        self._subscriber = await nats.connect(variables["PAMSPEC_NATS_URL"], nkeys_seed_str=seed)
        self._stack.push_async_callback(self._publisher.close)
        self._stack.push_async_callback(self._subscriber.close)
        await self._subscriber.subscribe("bench.hop", cb=self._arrived)
        await self._subscriber.flush()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def round(self, seconds: float) -> list[float]:
        """Milliseconds of each commit and hop, at the rate of the product."""
        self._watch.expected = count = int(seconds * PER_SECOND)
        await _paced(count, self._one)
        await self._watch.settle()
        return self._watch.take()

    async def _one(self, _: int) -> None:
        self._number += 1
        number = self._number
        async with self._pool.acquire() as connection:
            self._sent[number] = time.perf_counter()
            await connection.execute(FLOOR_INSERT_SQL, number, bodies.create_bytes("bench:floor"))
        await self._publisher.publish("bench.hop", str(number).encode())

    async def _arrived(self, message: Msg) -> None:
        self._watch.note((time.perf_counter() - self._sent.pop(int(message.data))) * 1000)


async def _end(followers: list[asyncio.Task[None]]) -> None:
    for follower in followers:
        follower.cancel()
    await asyncio.gather(*followers, return_exceptions=True)


def _raise_failures(followers: list[asyncio.Task[None]]) -> None:
    for follower in followers:
        if follower.done():
            follower.result()
