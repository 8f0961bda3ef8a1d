"""Write, relay and subscription together: three kinds of followers over a bus that is killed meanwhile."""

from __future__ import annotations

import asyncio

import nats as nats_client
import orjson
from nats.aio.msg import Msg

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import EmbeddedNats
from pamspec_common.service import Service
from pamspec_relay.app import build as build_relay
from pamspec_relay.settings import Settings as RelaySettings
from services.subscription.tests.world import KEY, KID, World, ok, sequences, sse, started, subscribed, until


async def _poller(service: Service, name: str, seen: list[int], enough: int) -> None:
    after = 0
    while len(seen) < enough:
        page = await ok(service, "poll", {"subscription_id": name, "after_sequence": after, "wait_ms": 5000})
        seen += sequences(page)
        after = page["next_after_sequence"]


async def _streamer(url: str, name: str, seen: list[int], enough: int) -> None:
    async with sse(url, name) as stream:
        while len(seen) < enough:
            seen.append((await stream.event(30))["event"]["sequence"])


class _Agent:
    """A follower over NATS that re-reads by polls whatever a frame shows to be missing, and acknowledges."""

    def __init__(self, service: Service, name: str) -> None:
        self._service, self._name, self._at, self._acknowledged = service, name, 0, 0
        self.seen: list[int] = []
        self.live = 0

    async def arrived(self, message: Msg) -> None:
        frame = orjson.loads(message.data)
        before = frame.get("prev_sequence", frame.get("progress"))
        if before is not None and before > self._at:
            await self.read_again()
        if "event" in frame and frame["event"]["sequence"] > self._at:
            self._at = frame["event"]["sequence"]
            self.seen.append(self._at)
            self.live += 1
        if self._at - self._acknowledged >= 50:
            await ok(self._service, "ack", {"subscription_id": self._name, "sequence": self._at})
            self._acknowledged = self._at

    async def read_again(self) -> None:
        page = await ok(self._service, "poll", {"subscription_id": self._name, "after_sequence": self._at, "max": 1000})
        self.seen += sequences(page)
        self._at = page["next_after_sequence"]


async def test_every_follower_gets_every_event_once_and_in_order(
    database: Database, nats_process: EmbeddedNats
) -> None:
    address = nats_process.address
    assert address is not None
    world = await started(database, address)
    relay = build_relay(
        RelaySettings(
            database_url=database.role("relay"),
            nats_url=address.url,
            nats_nkey_seed=address.service_seed,
            token_keys={KID: KEY},
        )
    )
    await relay.start()
    service = await world.service(nats_window=100)
    scope = await world.scope()
    wanted = {"event_classes": ["object_created"]}
    polled, streamed = [await subscribed(service, scope, after_sequence=0, filter=wanted) for _ in range(2)]
    pushed = await ok(
        service,
        "subscribe",
        {
            "scope_id": scope,
            "after_sequence": 0,
            "filter": wanted,
            "channel": "nats",
            "delivery": {"keepalive_interval_ms": 300},
        },
    )
    agent = _Agent(service, pushed["subscription_id"])
    client = await nats_client.connect(
        address.url, nkeys_seed_str=address.service_seed, reconnect_time_wait=0.1, max_reconnect_attempts=-1
    )
    await client.subscribe(pushed["channel_ref"], cb=agent.arrived)
    await client.flush()
    by_poll: list[int] = []
    by_stream: list[int] = []
    async with world.served(service) as url:
        followers = [
            asyncio.create_task(_poller(service, polled, by_poll, 600)),
            asyncio.create_task(_streamer(url, streamed, by_stream, 600)),
        ]
        made = await _write(world, scope, 200)
        nats_process.process.kill()
        made += await _write(world, scope, 200)
        await nats_process.start()
        made += await _write(world, scope, 200)
        await asyncio.wait_for(asyncio.gather(*followers), 40)
        await until(lambda: _all_there(agent), 40)
    assert by_poll == by_stream == agent.seen == made
    assert agent.live > 100
    await client.close()
    await relay.stop()
    await world.stop()


async def _write(world: World, scope: str, count: int) -> list[int]:
    made = []
    for _ in range(count // 4):
        made += [one["ledger_sequence"] for one in await world.create(scope, 4)]
    return made


async def _all_there(agent: _Agent) -> object:
    return len(agent.seen) >= 600
