"""Following over a NATS delivery subject, on a real server whose frames get lost."""

import asyncio
import json
from collections.abc import AsyncIterator

import nats as nats_py
import pytest
import pytest_asyncio
from nats.aio.client import Client as NatsClient

from conftest import TEST_PRINCIPAL_TOKEN
from libs.pamspec_client.tests.conftest import FAST
from libs.pamspec_client.tests.scripted_gateway import SUBSCRIPTION, ScriptedGateway
from libs.pamspec_client.tests.test_follow import take
from pamspec_cli.servers.nats import EmbeddedNats, NatsAddress
from pamspec_client import AsyncClient, NatsLogin, SubscriptionClosed

SUBJECT = f"pamspec.deliver.{TEST_PRINCIPAL_TOKEN}.subscriptiontoken000000000"


class Deliverer:
    """The service's side of the subject."""

    def __init__(self, connection: NatsClient, gateway: ScriptedGateway) -> None:
        self._connection, self._gateway = connection, gateway
        self._previous = 0

    async def deliver(self, *lost: int) -> None:
        """Send the frames of everything committed since; those of the named sequences get lost."""
        for entry in self._gateway.after(self._previous):
            frame = {"event": entry, "prev_sequence": self._previous, "ledger_epoch": 1}
            self._previous = entry["sequence"]
            if entry["sequence"] not in lost:
                await self._send(frame)
        await self._connection.flush()

    async def progress(self) -> None:
        """Say where the head is."""
        await self._send({"progress": len(self._gateway.ledger), "ledger_epoch": 1})
        await self._connection.flush()

    async def close(self) -> None:
        """Say that the subscription is over."""
        closed = {"reason": "unsubscribed", "last_delivered_sequence": self._previous}
        await self._send({"closed": closed, "ledger_epoch": 1})

    async def _send(self, frame: object) -> None:
        await self._connection.publish(SUBJECT, json.dumps(frame).encode())


@pytest_asyncio.fixture
async def client(gateway: ScriptedGateway, nats: NatsAddress) -> AsyncIterator[AsyncClient]:
    gateway.channel_ref = SUBJECT
    async with AsyncClient(gateway.url, "key", retry=FAST, nats=NatsLogin(nats.url, nats.agent_seed)) as made:
        yield made


@pytest_asyncio.fixture
async def deliverer(gateway: ScriptedGateway, nats: NatsAddress) -> AsyncIterator[Deliverer]:
    connection = await nats_py.connect(nats.url, nkeys_seed_str=nats.service_seed, reconnect_time_wait=0.05)
    yield Deliverer(connection, gateway)
    await connection.close()


async def test_what_was_sent_before_anybody_listened_is_read_from_the_ledger(
    client: AsyncClient, gateway: ScriptedGateway, deliverer: Deliverer
) -> None:
    gateway.append(3)
    await deliverer.deliver()
    async with client.follow(SUBSCRIPTION, channel="nats") as events:
        assert await take(events, 3) == [1, 2, 3]
        gateway.append(2)
        await deliverer.deliver()
        assert await take(events, 2) == [4, 5]
    assert gateway.cursor == 4


async def test_a_hole_and_a_lost_tail_are_read_again(
    client: AsyncClient, gateway: ScriptedGateway, deliverer: Deliverer
) -> None:
    async with client.follow(SUBSCRIPTION, channel="nats") as events:
        gateway.append(1)
        assert await take(events, 1) == [1]
        gateway.append(5)
        await deliverer.deliver(2, 3, 5)
        assert await take(events, 5) == [2, 3, 4, 5, 6]
        gateway.append(3)
        await deliverer.deliver(7, 8, 9)
        await deliverer.progress()
        assert await take(events, 3) == [7, 8, 9]
        assert await acknowledged(gateway, 8)


async def test_a_server_that_was_killed_costs_nothing(
    client: AsyncClient, gateway: ScriptedGateway, nats_process: EmbeddedNats
) -> None:
    async with client.follow(SUBSCRIPTION, channel="nats") as events:
        gateway.append(2)
        assert await take(events, 2) == [1, 2]
        waiting = asyncio.ensure_future(anext(events))
        nats_process.process.kill()
        gateway.append(2)
        await nats_process.start()
        assert (await asyncio.wait_for(waiting, 60)).sequence == 3
        assert await take(events, 1) == [4]


async def test_the_end_of_the_subscription_ends_the_follower(
    client: AsyncClient, gateway: ScriptedGateway, deliverer: Deliverer
) -> None:
    async with client.follow(SUBSCRIPTION, channel="nats") as events:
        gateway.append(1)
        assert await take(events, 1) == [1]
        await deliverer.deliver()
        await deliverer.close()
        with pytest.raises(SubscriptionClosed):
            await take(events, 1)


async def acknowledged(gateway: ScriptedGateway, sequence: int) -> bool:
    async with asyncio.timeout(60):
        while gateway.cursor < sequence:
            await asyncio.sleep(0.01)
    return True
