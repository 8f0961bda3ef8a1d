"""Figure 4: a backlog of 200,000 events from the outbox to the stream, against publishing the same messages alone."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import asyncpg
import nats
import orjson
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

import pamspec_relay.app
from pamspec_cli.bench import ledger_rows
from pamspec_cli.bench.environment import Environment
from pamspec_cli.bench.figures import ROUNDS, Figure, Measured, at_least
from pamspec_cli.deployment import in_environment
from pamspec_common import contracts
from pamspec_relay.model import Entry
from pamspec_relay.publisher import Publisher
from pamspec_relay.settings import Settings as RelaySettings

BACKLOG = 200_000
FLOOR_MESSAGES = 40_000
BATCH = 1_000
IN_FLIGHT = 4
SCOPES = 50
STREAM = "PAMSPEC_LEDGER_0"
FLOOR_STREAM = "FLOOR"
PATIENCE_S = 120.0
_LOOK_EVERY_S = 0.02

MESSAGES_SQL = "SELECT subject, event_id, sequence, message FROM relay.outbox WHERE partition = 0 ORDER BY id LIMIT $1"


class Disorder(Exception):
    """The stream does not hold exactly the backlog in ledger order."""


async def drain(environment: Environment) -> Figure:
    """Events per second over five fifths of one backlog, order verified."""
    scope_ids = [f"bench:relay-{number}" for number in range(SCOPES)]
    keys = await ledger_rows.fill(environment.database_url, scope_ids, BACKLOG, outbox=True)
    client = await nats.connect(
        environment.variables["PAMSPEC_NATS_URL"], nkeys_seed_str=environment.variables["PAMSPEC_NATS_NKEY_SEED"]
    )
    try:
        messages = await _entries(environment.database_url)
        stream = client.jetstream()
        floors = [await _publish(client, stream, messages) for _ in range(ROUNDS)]
        rates = await _drain(environment, stream)
        await _verify(client, environment, list(keys.values()))
    finally:
        await client.close()
    return at_least(
        "relay.drain",
        Measured.of(rates),
        "events/s",
        Measured.of(floors),
        0.35,
        or_value=15_000,
        note=f"backlog of {BACKLOG:,} over {SCOPES} scopes, order verified; floor: the same batches, published alone",
    )


async def _entries(database_url: str) -> list[Entry]:
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch(MESSAGES_SQL, FLOOR_MESSAGES)
    finally:
        await connection.close()
    return [Entry(f"floor.{row[0]}", row[1], 1, row[2], row[3]) for row in rows]


async def _publish(client: Client, stream: JetStreamContext, entries: Sequence[Entry]) -> float:
    """Messages per second into an empty stream of the same settings: atomic batches of 1,000, several on their way."""
    request = contracts.streams().stream_request("ledger", 0)
    request |= {"name": FLOOR_STREAM, "subjects": ["floor.>"]}
    request.pop("republish", None)
    await _api(client, f"STREAM.CREATE.{FLOOR_STREAM}", request)
    publisher = Publisher(client, PATIENCE_S)
    await publisher.open()
    started = time.perf_counter()
    flights: deque[asyncio.Future[int]] = deque()
    for sent in range(0, len(entries), BATCH):
        batch = publisher.prepare(list(entries[sent : sent + BATCH]), 1)
        flights.append(await publisher.send(batch, sent))
        if len(flights) == IN_FLIGHT:
            await flights.popleft()
    await asyncio.gather(*flights)
    took = time.perf_counter() - started
    await publisher.close()
    await stream.delete_stream(FLOOR_STREAM)
    return len(entries) / took


async def _api(client: Client, call: str, request: dict[str, object]) -> None:
    answer = orjson.loads((await client.request(f"$JS.API.{call}", orjson.dumps(request), timeout=5)).data)
    if "error" in answer:
        raise RuntimeError(f"{call}: {answer['error']}")


async def _drain(environment: Environment, stream: JetStreamContext) -> list[float]:
    """Run the relay until the backlog is in the stream; events per second of each fifth."""
    with in_environment(environment.deployment.variables("relay")):
        service = pamspec_relay.app.build(RelaySettings())
    await service.start()
    try:
        marks = [BACKLOG * fifth // ROUNDS for fifth in range(ROUNDS + 1)]
        passed: list[float] = []
        deadline = time.perf_counter() + PATIENCE_S
        while len(passed) < len(marks):
            stored = await _stored(stream)
            now = time.perf_counter()
            # The first mark is the first batch: the way there is the taking of the lease.
            while len(passed) < len(marks) and stored >= max(marks[len(passed)], 1):
                passed.append(now)
            if now > deadline:
                raise Disorder(f"after {PATIENCE_S:.0f} s the stream holds {stored} of {BACKLOG} events")
            await asyncio.sleep(_LOOK_EVERY_S)
    finally:
        await service.stop()
    return [BACKLOG / ROUNDS / (after - before) for before, after in pairwise(passed)]


async def _stored(stream: JetStreamContext) -> int:
    try:
        return (await stream.stream_info(STREAM)).state.messages
    except nats.js.errors.NotFoundError:
        return 0


async def _verify(client: Client, environment: Environment, scope_keys: list[int]) -> None:
    """Every event once and in ledger order; Disorder otherwise."""
    expected: dict[str, int] = {}
    subscription = await client.jetstream().pull_subscribe(
        "", stream=STREAM, config=ConsumerConfig(ack_policy=AckPolicy.NONE, inactive_threshold=60)
    )
    seen = 0
    while seen < BACKLOG:
        for message in await subscription.fetch(1000, timeout=10):
            event = orjson.loads(message.data)
            scope = event["scope_id"]
            if event["sequence"] != expected.get(scope, 0) + 1:
                raise Disorder(f"{scope}: {event['sequence']} follows {expected.get(scope, 0)}")
            expected[scope] = event["sequence"]
            seen += 1
    if len(expected) != len(scope_keys) or sum(expected.values()) != BACKLOG:
        raise Disorder(f"{sum(expected.values())} events of {len(expected)} scopes")
