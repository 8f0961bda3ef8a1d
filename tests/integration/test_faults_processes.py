"""Processes of the service stopped, killed, ended and multiplied while writers and followers go on."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack

import aiohttp
import pytest

from pamspec_client import AsyncClient, RetryPolicy, ServiceUnavailable
from pamspec_client.frames import Frame, decode
from pamspec_client.requests import CreateRequest
from pamspec_client.sse import SseParser
from pamspec_common.peers import ANSWER_TIMEOUT_S
from tests.integration.checks import drained, whole
from tests.integration.harness import SECOND_DOOR, Fleet, until
from tests.integration.load import items, make_scopes, notes, ordeal


async def owner_of(fleet: Fleet, scope_id: str) -> str:
    """The instance of relay that owns the partition of a scope."""
    async with fleet.database() as connection:
        name = await connection.fetchval(
            "SELECT owner FROM relay.lease JOIN core.scope USING (partition) WHERE scope_id = $1", scope_id
        )
    pid = int(name.split("-")[-2])
    return next(label for label, service in fleet.services.items() if service.process.pid == pid)


async def waiting(fleet: Fleet, scope_id: str) -> int:
    """How many events of a scope wait for the bus."""
    async with fleet.database() as connection:
        count = "SELECT count(*) FROM relay.outbox JOIN core.scope USING (scope_key) WHERE scope_id = $1"
        return int(await connection.fetchval(count, scope_id))


async def test_a_relay_stopped_in_mid_batch_wakes_after_another_took_over(fleet: Fleet) -> None:
    """M078, B10: in either partition once; the other partition's scopes don't wait for it."""
    settings = {"PAMSPEC_RELAY_BATCH_MESSAGES": "50"}
    relays = [fleet.add("relay", name, settings) for name in ("relay-a", "relay-b")]
    async with fleet.extra(*relays):
        await fleet.terminate("relay")
        client = fleet.client()
        scopes = await make_scopes(client, "sleeper", 2)
        await until(lambda: shared_out(fleet, scopes), 60, "each relay has a partition")
        for scope_id, other in (scopes, scopes[::-1]):
            await stopped_in_mid_batch(fleet, scope_id, other)
        await fleet["relay"].start()


async def shared_out(fleet: Fleet, scopes: list[str]) -> bool:
    async with fleet.database() as connection:
        owners = await connection.fetch("SELECT owner FROM relay.lease WHERE expires_at > clock_timestamp()")
    return len({row["owner"] for row in owners}) == len(scopes)


async def stopped_in_mid_batch(fleet: Fleet, scope_id: str, other: str) -> None:
    client, backlog, more = fleet.client(), notes([scope_id], f"of-{scope_id}"), notes([other], f"beside-{scope_id}")
    for _ in range(20):
        asleep = await stopped_while_moving(fleet, client, scope_id, backlog)
        if await waiting(fleet, scope_id) > 0:
            break
        # It was through before we were: once more.
        fleet.signal(asleep, signal.SIGCONT)
    assert await waiting(fleet, scope_id) > 0, "never stopped in the middle of its work"
    await client.create(**next(more))
    await until(lambda: is_drained(fleet, other), 60, "the other partition goes on")
    await drained(fleet, 60)
    fleet.signal(asleep, signal.SIGCONT)
    await client.create(**next(backlog))
    await whole(fleet, [scope_id, other])
    await until(lambda: shared_out(fleet, [scope_id, other]), 60, "each relay has a partition again")


async def stopped_while_moving(
    fleet: Fleet, client: AsyncClient, scope_id: str, backlog: Iterator[CreateRequest]
) -> str:
    """The relay that began to move a backlog, stopped soon afterwards."""
    # Neither takes the other's partition over while the backlog is written, however long that takes.
    for relay in ("relay-a", "relay-b"):
        fleet.signal(relay, signal.SIGSTOP)
    for _ in range(10):
        await client.batch(scope_id=scope_id, items=items(backlog, 200))
    before = await waiting(fleet, scope_id)
    for relay in ("relay-a", "relay-b"):
        fleet.signal(relay, signal.SIGCONT)

    async def moving() -> bool:
        return await waiting(fleet, scope_id) < before

    await until(moving, 60, "it drains", every_s=0.001)
    asleep = await owner_of(fleet, scope_id)
    fleet.signal(asleep, signal.SIGSTOP)
    return asleep


async def is_drained(fleet: Fleet, scope_id: str) -> bool:
    return await waiting(fleet, scope_id) == 0


async def test_an_indexing_process_that_stands_still_holds_up_its_own_answers_alone(fleet: Fleet) -> None:
    """What it alone answers is refused soon, so that nobody waits; what is written and found by others goes on."""
    (scope_id,) = await make_scopes(fleet.client(), "still", 1)
    client = fleet.client(retry=RetryPolicy(attempts=1))
    await client.list_indexes(scope_id=scope_id)
    fleet.signal("indexing", signal.SIGSTOP)
    async with asyncio.timeout(ANSWER_TIMEOUT_S - 5):
        with pytest.raises(ServiceUnavailable):
            await client.list_indexes(scope_id=scope_id)
    async with asyncio.timeout(60):
        await client.create(**next(notes([scope_id], "still")))
        page = await client.query(scope_id=scope_id, query={"kind": "hybrid", "modes": ["lexical"], "text": "note"})
    assert page.index is not None
    fleet.signal("indexing", signal.SIGCONT)

    async def answered() -> bool:
        return bool((await fleet.client().list_indexes(scope_id=scope_id)).indexes)

    await until(answered, 60, "it answers again")


async def test_a_third_replica_of_write_joins_during_load(fleet: Fleet) -> None:
    """B14: from two to three, each with its own door; no follower misses an event."""
    async with AsyncExitStack() as stack, ordeal(fleet, "scaled", gateways=["gateway", SECOND_DOOR]) as load:
        third = fleet.add("write", "write-3")
        door = fleet.add("gateway", "gateway-3", {"PAMSPEC_WRITE_URL": third.url})
        await stack.enter_async_context(fleet.extra(third, door))
        load.clients.append(fleet.client("gateway-3"))
        await load.more(200)


class Listening:
    """A raw stream of server-sent events or a WebSocket, and the frames that came."""

    def __init__(self, fleet: Fleet, client: AsyncClient, kind: str) -> None:
        self._fleet, self._client, self._kind = fleet, client, kind
        self.frames: list[Frame] = []
        self.closed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self, scope_id: str) -> None:
        """Subscribe and listen; returns with the first event."""
        made = await self._client.subscribe(
            scope_id=scope_id, after_sequence=0, channel="sse" if self._kind == "stream" else "websocket"
        )
        url = f"{self._fleet['gateway'].url}/v1/subscriptions/{made.subscription_id}/{self._kind}"
        self._task = asyncio.create_task(self._listen(url))
        await until(self._any, 60, "a frame comes")

    async def _any(self) -> bool:
        return bool(self.frames)

    async def _listen(self, url: str) -> None:
        async with aiohttp.ClientSession(headers=self._fleet.headers) as session:
            if self._kind == "ws":
                async with session.ws_connect(url) as socket:
                    async for message in socket:
                        self.frames.append(decode(message.data))
            else:
                async with session.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
                    parser = SseParser()
                    async for chunk in answer.content.iter_any():
                        self.frames += [decode(data) for data in parser.feed(chunk)]
        self.closed.set()

    async def ended(self) -> tuple[str, int]:
        """The reason and the last sequence of the end."""
        async with asyncio.timeout(60):
            await self.closed.wait()
        last = self.frames[-1].ended
        assert last is not None, f"the channel broke off after {len(self.frames)} frames"
        events = [frame.decoded.sequence for frame in self.frames if frame.decoded is not None]
        assert events == sorted(set(events))
        assert not events or last.last_sequence >= events[-1]
        return last.reason, last.last_sequence


@pytest.mark.parametrize("service", ["write", "relay", "query", "subscription", "gateway"])
async def test_sigterm_under_load_loses_nothing_and_channels_get_their_end(fleet: Fleet, service: str) -> None:
    async with ordeal(fleet, f"term-{service}") as load:
        client = fleet.client()
        channels = [Listening(fleet, client, kind) for kind in ("stream", "ws")]
        if service in ("subscription", "gateway"):
            for channel in channels:
                await channel.open(f"scope:term-{service}-0")
        assert await fleet.terminate(service) == 0
        if service in ("subscription", "gateway"):
            for channel in channels:
                assert (await channel.ended())[0] == "shutdown"
        await fleet[service].start()
        await load.more(50)
    await fleet.ready()


async def test_a_relay_ended_in_order_hands_over(fleet: Fleet) -> None:
    """At once, as `services/relay/tests/test_owners.py` shows with leases of a minute."""
    async with fleet.extra(fleet.add("relay", "relay-2")), ordeal(fleet, "handed-over") as load:
        assert await fleet.terminate("relay") == 0
        before = await relayed(fleet)

        async def moved() -> bool:
            return await relayed(fleet) > before

        await until(moved, 60, "the other relay goes on")
        await fleet["relay"].start()
        await load.more(20)


async def relayed(fleet: Fleet) -> int:
    async with fleet.database() as connection:
        return int(await connection.fetchval("SELECT sum(stream_seq)::bigint FROM relay.position"))


async def test_a_killed_subscription_process_is_replaced_by_its_neighbour(fleet: Fleet) -> None:
    """Leases of NATS channels move within their time; followers over HTTP go on at the other door."""
    second = fleet.add("subscription", "subscription-2")
    door = fleet.add("gateway", "gateway-3", {"PAMSPEC_SUBSCRIPTION_URL": second.url})
    async with fleet.extra(second, door), ordeal(fleet, "neighbour", gateways=["gateway-3", "gateway"]) as load:
        fleet.kill("subscription")
        await load.more(600)
        await fleet["subscription"].start()
        await load.more(50)
