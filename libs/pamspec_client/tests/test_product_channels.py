"""Every channel delivers the same, goes on where the one before it finished, and delivers again after a reset."""

import pytest

from libs.conftest import Product
from libs.pamspec_client.tests.product_objects import claim, take
from pamspec_client import (
    AccessDenied,
    AsyncClient,
    InvalidRequest,
    NatsLogin,
    SubscriptionClosed,
)
from pamspec_client.documents import FollowChannel

CHANNELS: tuple[FollowChannel, ...] = ("poll", "sse", "websocket", "nats")


@pytest.mark.parametrize("channel", CHANNELS)
async def test_every_channel_delivers_the_same(agent_client: AsyncClient, scope: str, channel: FollowChannel) -> None:
    client = agent_client
    before = [await client.create(**claim(scope, number)) for number in range(3)]
    opened = await client.subscribe(
        scope_id=scope,
        after_sequence=0,
        filter={"event_classes": ["object_created"]},
        channel=channel,
        include_content=True,
    )
    async with client.follow(opened.subscription_id, channel=channel) as events:
        found = await take(events, 3)
        after = [await client.create(**claim(scope, number)) for number in range(3, 6)]
        found += await take(events, 3)
        assert [event.event_id for event in found] == [made.event_id for made in (*before, *after)]
        assert [event.envelope.content for event in found if event.envelope] == list(range(6))
        await client.unsubscribe(subscription_id=opened.subscription_id)
        with pytest.raises(SubscriptionClosed) as caught:
            await take(events, 1)
    assert caught.value.reason


@pytest.mark.parametrize("channel", CHANNELS)
async def test_a_follower_goes_on_where_the_one_before_it_finished(
    agent_client: AsyncClient, scope: str, channel: FollowChannel
) -> None:
    client = agent_client
    opened = await client.subscribe(
        scope_id=scope, after_sequence=0, filter={"event_classes": ["object_created"]}, channel=channel
    )
    made = [await client.create(**claim(scope, number)) for number in range(6)]
    async with client.follow(opened.subscription_id, channel=channel) as events:
        await take(events, 4)
    # The fourth was taken, but nobody asked for the next one.
    entry = await client.get_subscription(opened.subscription_id)
    assert entry.next_after_sequence == made[2].ledger_sequence
    async with client.follow(opened.subscription_id, channel=channel) as events:
        again = await take(events, 3)
    assert [event.event_id for event in again] == [outcome.event_id for outcome in made[3:]]


async def test_reset_delivers_again(agent_client: AsyncClient, scope: str) -> None:
    client = agent_client
    opened = await client.subscribe(scope_id=scope, after_sequence=0, filter={"event_classes": ["object_created"]})
    made = await client.create(**claim(scope))
    page = await client.poll(subscription_id=opened.subscription_id, after_sequence=0)
    assert [event.event_id for event in page.events] == [made.event_id]
    acknowledged = await client.ack(subscription_id=opened.subscription_id, sequence=page.next_after_sequence)
    assert acknowledged.next_after_sequence == page.next_after_sequence
    await client.reset(subscription_id=opened.subscription_id, after_sequence=0)
    again = await client.poll(subscription_id=opened.subscription_id)
    assert [event.event_id for event in again.events] == [made.event_id]
    with pytest.raises(InvalidRequest) as caught:
        await client.ack(subscription_id=opened.subscription_id, sequence=10**6)
    assert caught.value.reason == "position_future"


async def test_a_foreign_nats_login_is_refused(product: Product, agent_client: AsyncClient, scope: str) -> None:
    foreign = NatsLogin(product.nats.url, token="pam_nobody_has_this_one")
    opened = await agent_client.subscribe(scope_id=scope, after_sequence=0, channel="nats")
    async with (
        AsyncClient(product.url, product.key, nats=foreign) as client,
        client.follow(opened.subscription_id, channel="nats") as events,
    ):
        with pytest.raises(AccessDenied):
            await take(events, 1)
