"""Delivery over NATS: on the replica that holds the lease, in order, with a window, and again from the cursor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import nats as nats_client
import orjson
import pytest_asyncio
from nats.aio.client import Client
from nats.aio.msg import Msg

from pamspec_common import contracts
from pamspec_common.service import Service
from services.subscription.tests.world import Document, World, ok


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
        return await asyncio.wait_for(self.frames.get(), 10)

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
