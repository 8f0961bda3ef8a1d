"""Delivery over NATS: on the replica that holds the lease, in order, with a window, and again from the cursor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import nats as nats_client
import orjson
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.aio.msg import Msg

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import EmbeddedNats
from pamspec_common import contracts
from pamspec_common.service import Service
from services.subscription.tests.asgi_client import SlowClient
from services.subscription.tests.world import Document, World, ok, started


@pytest_asyncio.fixture(loop_scope="session")
async def agent(world: World) -> AsyncIterator[Client]:
    """An agent's own connection."""
    assert world.bus is not None
    client = await nats_client.connect(world.bus.url, nkeys_seed_str=world.bus.agent_seed)
    yield client
    await client.close()


class Inbox:
    """Frames as the agent receives them."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[Document] = asyncio.Queue()

    async def arrived(self, message: Msg) -> None:
        frame = orjson.loads(message.data)
        contracts.check("frame", frame)
        assert message.headers == {"Pamspec-Ledger-Epoch": str(frame["ledger_epoch"])}
        self.frames.put_nowait(frame)

    async def frame(self) -> Document:
        return await asyncio.wait_for(self.frames.get(), 60)

    async def event(self) -> Document:
        while "event" not in (frame := await self.frame()):
            assert "progress" in frame, frame
        return frame


async def follow(world: World, service: Service, agent: Client, scope: str, **more: object) -> tuple[str, Inbox]:
    """A subscription over NATS that is listened to from before its first frame: opened with nothing to deliver."""
    answer = await ok(service, "subscribe", {"scope_id": scope, "channel": "nats", **more})
    inbox = Inbox()
    await agent.subscribe(answer["channel_ref"], cb=inbox.arrived)
    await agent.flush()
    return answer["subscription_id"], inbox


async def test_live_events_arrive_in_order_and_name_the_one_before(
    world: World, service: Service, agent: Client
) -> None:
    scope = await world.scope()
    _, inbox = await follow(world, service, agent, scope, delivery={"keepalive_interval_ms": 100})
    start = (await inbox.frame())["progress"]
    made = await world.create(scope, 5)
    await world.hint(scope, [one["ledger_sequence"] for one in made])
    at = start
    for one in made:
        frame = await inbox.frame()
        while "progress" in frame:
            assert frame["progress"] == at
            frame = await inbox.frame()
        assert (frame["event"]["event_id"], frame["prev_sequence"]) == (one["event_id"], at)
        at = frame["event"]["sequence"]


async def test_it_waits_at_its_window_and_goes_on_with_acknowledgements(world: World, agent: Client) -> None:
    service = await world.service(nats_window=10)
    scope = await world.scope()
    name, inbox = await follow(world, service, agent, scope, delivery={"keepalive_interval_ms": 100})
    await inbox.frame()
    made = [one["ledger_sequence"] for one in await world.create(scope, 25)]
    assert [(await inbox.event())["event"]["sequence"] for _ in range(10)] == made[:10]
    for _ in range(4):
        assert (await inbox.frame())["progress"] == made[9]
    await ok(service, "ack", {"subscription_id": name, "sequences": [made[4], made[5]]})
    assert [(await inbox.event())["event"]["sequence"] for _ in range(2)] == made[10:12]
    other = await world.service(nats_window=10)
    await ok(other, "ack", {"subscription_id": name, "sequence": made[11]})
    assert [(await inbox.event())["event"]["sequence"] for _ in range(10)] == made[12:22]
    await ok(service, "poll", {"subscription_id": name, "after_sequence": made[24]})
    assert [(await inbox.event())["event"]["sequence"] for _ in range(3)] == made[22:]


async def test_another_replica_takes_over_at_the_cursor(world: World, agent: Client) -> None:
    """A lease that ran out, as after kill -9: what was in flight comes again, what was acknowledged does not."""
    first = await world.service(lease_s=0.6)
    scope = await world.scope()
    name, inbox = await follow(world, first, agent, scope)
    await inbox.frame()
    made = [one["ledger_sequence"] for one in await world.create(scope, 6)]
    assert [(await inbox.event())["event"]["sequence"] for _ in range(6)] == made
    await ok(first, "ack", {"subscription_id": name, "sequence": made[1]})
    await ok(first, "ack", {"subscription_id": name, "sequences": [made[3]]})
    await world.admin.execute("UPDATE subscription.subscription SET lease_owner = 'a process that was killed'")
    second = await world.service(lease_s=0.6)
    while (frame := await inbox.frame()).get("progress") != made[1]:
        assert "progress" in frame
    frames = [await inbox.event() for _ in range(3)]
    assert [frame["event"]["sequence"] for frame in frames] == [made[2], made[4], made[5]]
    assert frames[0]["prev_sequence"] == made[1]
    await ok(second, "ack", {"subscription_id": name, "sequence": made[5]})
    row = await world.row(name)
    assert row["lease_owner"] != "a process that was killed"


async def test_an_orderly_stop_hands_over_at_once(world: World, agent: Client) -> None:
    first = await world.service(lease_s=60.0)
    scope = await world.scope()
    name, inbox = await follow(world, first, agent, scope)
    await inbox.frame()
    made = [one["ledger_sequence"] for one in await world.create(scope, 2)]
    assert [(await inbox.event())["event"]["sequence"] for _ in range(2)] == made
    await ok(first, "ack", {"subscription_id": name, "sequence": made[1]})
    await first.stop()
    while "ended" not in (frame := await inbox.frame()):
        continue
    assert frame["ended"] == {"reason": "shutdown", "last_sequence": made[1]}
    assert (await world.row(name))["lease_owner"] is None
    await world.service(lease_s=60.0)
    more = (await world.create(scope, 1))[0]["ledger_sequence"]
    assert (await inbox.event())["event"]["sequence"] == more


async def test_the_close_is_the_last_frame(world: World, service: Service, agent: Client) -> None:
    scope = await world.scope()
    name, inbox = await follow(world, service, agent, scope, delivery={"keepalive_interval_ms": 100})
    await inbox.frame()
    made = (await world.create(scope, 1))[0]["ledger_sequence"]
    assert (await inbox.event())["event"]["sequence"] == made
    await ok(service, "unsubscribe", {"subscription_id": name})
    while "closed" not in (frame := await inbox.frame()):
        assert "progress" in frame
    assert frame["closed"] == {"reason": "unsubscribed", "last_delivered_sequence": made}
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(inbox.frames.get(), 0.5)


async def test_a_reset_and_polls_go_together_with_the_channel(world: World, service: Service, agent: Client) -> None:
    """A poll re-reads beside the channel and does not end it; a reset starts it over without an `ended` frame."""
    scope = await world.scope()
    name, inbox = await follow(world, service, agent, scope)
    start = (await inbox.frame())["progress"]
    made = [one["ledger_sequence"] for one in await world.create(scope, 3)]
    assert [(await inbox.event())["event"]["sequence"] for _ in range(3)] == made
    document = {"subscription_id": name, "after_sequence": made[2], "wait_ms": 9000}
    poll = asyncio.create_task(ok(service, "poll", document))
    more = (await world.create(scope, 1))[0]["ledger_sequence"]
    await world.hint(scope, [more])
    assert [event["sequence"] for event in (await poll)["events"]] == [more]
    assert (await inbox.event())["event"]["sequence"] == more
    await ok(service, "reset", {"subscription_id": name, "after_sequence": start})
    assert [(await inbox.event())["event"]["sequence"] for _ in range(4)] == [*made, more]


async def test_the_bus_is_away_for_a_while(database: Database, nats_process: EmbeddedNats) -> None:
    assert nats_process.address is not None
    world = await started(database, nats_process.address)
    service = await world.service()
    scope = await world.scope()
    answer = await ok(service, "subscribe", {"scope_id": scope, "channel": "nats"})
    await nats_process.stop()
    made = [one["ledger_sequence"] for one in await world.create(scope, 3)]
    await nats_process.start()
    agent = await nats_client.connect(nats_process.address.url, nkeys_seed_str=nats_process.address.service_seed)
    inbox = Inbox()
    await agent.subscribe(answer["channel_ref"], cb=inbox.arrived)
    await agent.flush()
    seen = set()
    page = await ok(service, "poll", {"subscription_id": answer["subscription_id"], "after_sequence": made[0] - 1})
    seen |= {event["sequence"] for event in page["events"]}
    assert seen == set(made)
    more = (await world.create(scope, 1))[0]["ledger_sequence"]
    while (await inbox.event())["event"]["sequence"] < more:
        continue
    await agent.close()
    await world.stop()


async def test_streams_of_a_subscription_over_nats_are_refused(world: World, service: Service) -> None:
    scope = await world.scope()
    answer = await ok(service, "subscribe", {"scope_id": scope, "channel": "nats"})
    client = SlowClient(service, answer["subscription_id"])
    client.take(1)
    await asyncio.wait_for(client.done, 60)
    assert client.status == 400
