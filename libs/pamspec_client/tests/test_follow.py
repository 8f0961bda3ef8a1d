"""Followers: every event once and in order, whatever happens to the channel."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from libs.pamspec_client.tests.conftest import FAST
from libs.pamspec_client.tests.scripted_gateway import SUBSCRIPTION, ScriptedGateway, error, outdated
from pamspec_client import (
    AccessDenied,
    AsyncClient,
    ChannelReplaced,
    ClientError,
    Event,
    InvalidRequest,
    SubscriptionClosed,
)
from pamspec_client.documents import FollowChannel

CHANNELS: tuple[FollowChannel, ...] = ("poll", "sse", "websocket")
PUSHED: tuple[FollowChannel, ...] = ("sse", "websocket")


async def take(events: AsyncIterator[Event], count: int) -> list[int]:
    found = []
    async with asyncio.timeout(60):
        async for event in events:
            found.append(event.sequence)
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize("channel", CHANNELS)
async def test_events_before_and_after_the_start_come_in_order(
    client: AsyncClient, gateway: ScriptedGateway, channel: FollowChannel
) -> None:
    gateway.append(3)
    async with client.follow(SUBSCRIPTION, channel=channel) as events:
        assert await take(events, 3) == [1, 2, 3]
        gateway.append(2)
        assert await take(events, 2) == [4, 5]


@pytest.mark.parametrize("channel", PUSHED)
async def test_a_stream_that_is_cut_goes_on_after_the_last_event(
    client: AsyncClient, gateway: ScriptedGateway, channel: FollowChannel
) -> None:
    gateway.append(10)
    gateway.faults.cut_stream_after = [4, 1, 3]
    async with client.follow(SUBSCRIPTION, channel=channel) as events:
        assert await take(events, 10) == list(range(1, 11))
        assert events.reconnects == 3


async def test_two_cuts_with_no_event_between_keep_the_place(client: AsyncClient, gateway: ScriptedGateway) -> None:
    gateway.append(5)
    gateway.faults.cut_stream_after = [3, 0, 0]
    async with client.follow(SUBSCRIPTION, channel="sse") as events:
        assert await take(events, 5) == [1, 2, 3, 4, 5]
    assert gateway.last_event_ids == ["1-0", "1-3", "1-3", "1-3"]


async def test_a_new_follower_starts_where_the_last_one_finished(client: AsyncClient, gateway: ScriptedGateway) -> None:
    gateway.append(6)
    async with client.follow(SUBSCRIPTION, channel="sse") as events:
        assert await take(events, 3) == [1, 2, 3]
    # The third was taken but not finished: nobody asked for the next one.
    assert gateway.cursor == 2
    async with client.follow(SUBSCRIPTION, channel="sse") as events:
        assert await take(events, 4) == [3, 4, 5, 6]


@pytest.mark.parametrize("channel", CHANNELS)
async def test_the_filter_holds_after_a_cut(
    client: AsyncClient, gateway: ScriptedGateway, channel: FollowChannel
) -> None:
    gateway.filter = lambda entry: entry["sequence"] % 3 == 0
    gateway.append(12)
    gateway.faults.cut_stream_after = [1, 1]
    async with client.follow(SUBSCRIPTION, channel=channel) as events:
        assert await take(events, 4) == [3, 6, 9, 12]


@pytest.mark.parametrize("channel", PUSHED)
async def test_a_lost_frame_is_read_again(
    client: AsyncClient, gateway: ScriptedGateway, channel: FollowChannel
) -> None:
    gateway.append(8)
    gateway.faults.leave_out = {2, 3, 7}
    async with client.follow(SUBSCRIPTION, channel=channel) as events:
        assert await take(events, 8) == list(range(1, 9))


async def test_copies_come_out_once(client: AsyncClient, gateway: ScriptedGateway) -> None:
    gateway.append(4)
    gateway.ledger[2] = {**gateway.ledger[1], "sequence": 3}
    async with client.follow(SUBSCRIPTION) as events:
        assert await take(events, 3) == [1, 2, 4]
        assert events.duplicates == 1


async def test_the_poll_after_a_page_acknowledges_it(client: AsyncClient, gateway: ScriptedGateway) -> None:
    gateway.append(5)
    async with client.follow(SUBSCRIPTION, max_events=2) as events:
        await take(events, 5)
    polls = [document["after_sequence"] for operation, document in gateway.requests if operation == "poll"]
    assert polls == [0, 2, 4]
    assert gateway.cursor == 4


@pytest.mark.parametrize("channel", PUSHED)
async def test_finished_events_are_acknowledged_while_the_channel_lives(
    client: AsyncClient, gateway: ScriptedGateway, channel: FollowChannel
) -> None:
    gateway.append(5)
    async with client.follow(SUBSCRIPTION, channel=channel) as events:
        await take(events, 5)
        waiting = asyncio.ensure_future(anext(events))
        async with asyncio.timeout(60):
            while gateway.cursor < 5:
                await asyncio.sleep(0.01)
        gateway.append(1)
        assert (await waiting).sequence == 6


@pytest.mark.parametrize("channel", CHANNELS)
async def test_the_end_of_the_subscription_is_raised_with_its_reason(
    client: AsyncClient, gateway: ScriptedGateway, channel: FollowChannel
) -> None:
    gateway.append(2)
    async with client.follow(SUBSCRIPTION, channel=channel) as events:
        assert await take(events, 2) == [1, 2]
        gateway.closed = {"reason": "scope_deleted", "last_delivered_sequence": 2}
        gateway.append(0)
        with pytest.raises(SubscriptionClosed) as caught:
            await take(events, 1)
    assert (caught.value.reason, caught.value.last_delivered_sequence) == ("scope_deleted", 2)


@pytest.mark.parametrize("channel", PUSHED)
async def test_the_end_of_a_channel_is_not_the_end_of_the_subscription(
    client: AsyncClient, gateway: ScriptedGateway, channel: FollowChannel
) -> None:
    gateway.append(2)
    gateway.ending = "shutdown"
    async with client.follow(SUBSCRIPTION, channel=channel) as events:
        assert await take(events, 2) == [1, 2]
        gateway.append(1)
        assert await take(events, 1) == [3]


@pytest.mark.parametrize("channel", PUSHED)
async def test_a_consumer_that_was_replaced_stops(
    client: AsyncClient, gateway: ScriptedGateway, channel: FollowChannel
) -> None:
    gateway.ending = "replaced"
    async with client.follow(SUBSCRIPTION, channel=channel) as events:
        with pytest.raises(ChannelReplaced):
            await take(events, 1)


@pytest.mark.parametrize("channel", ["poll", "sse"])
async def test_an_unavailable_service_is_waited_for_without_end(
    client: AsyncClient, gateway: ScriptedGateway, channel: FollowChannel
) -> None:
    gateway.append(2)
    async with client.follow(SUBSCRIPTION, channel=channel) as events:
        assert await take(events, 1) == [1]
        gateway.faults.refuse = [error("service_unavailable", 503) for _ in range(3 * FAST.attempts)]
        gateway.faults.cut_stream_after = [1]
        assert await take(events, 1) == [2]
        gateway.append(1)
        assert await take(events, 1) == [3]


async def test_a_refused_key_is_raised(client: AsyncClient, gateway: ScriptedGateway) -> None:
    gateway.faults.refuse = [error("access_denied", 401)]
    async with client.follow(SUBSCRIPTION) as events:
        with pytest.raises(AccessDenied):
            await take(events, 1)


async def test_a_poll_that_was_replaced_stops(client: AsyncClient, gateway: ScriptedGateway) -> None:
    gateway.append(1)
    async with client.follow(SUBSCRIPTION) as events:
        assert await take(events, 1) == [1]
        gateway.faults.refuse = [error("invalid_request", 400, "replaced")]
        with pytest.raises(ChannelReplaced):
            await take(events, 1)


async def test_a_refused_socket_tells_why(client: AsyncClient, gateway: ScriptedGateway) -> None:
    gateway.append(2)
    gateway.faults.cut_stream_after = [1]
    async with client.follow(SUBSCRIPTION, channel="websocket") as events:
        assert await take(events, 1) == [1]
        gateway.faults.refuse_sockets = 1
        gateway.epoch = 2
        with pytest.raises(InvalidRequest) as caught:
            await take(events, 1)
    assert caught.value.reason == "position_outdated"


async def test_a_position_of_an_older_epoch_is_raised_or_moved_as_the_caller_says(
    client: AsyncClient, gateway: ScriptedGateway
) -> None:
    gateway.append(3)
    async with client.follow(SUBSCRIPTION, channel="sse") as events:
        gateway.faults.cut_stream_after = [3]
        await take(events, 3)
        gateway.faults.refuse = [outdated(2, 1)]
        with pytest.raises(InvalidRequest) as caught:
            await take(events, 1)
    assert caught.value.reason == "position_outdated"

    async with client.follow(SUBSCRIPTION, resume_outdated=True, after_sequence=3) as events:
        waiting = asyncio.ensure_future(anext(events))
        async with asyncio.timeout(60):
            while gateway.requests[-1][0] != "poll":
                await asyncio.sleep(0.01)
        gateway.epoch = 2
        gateway.append(1)
        assert (await waiting).sequence == 4
        gateway.epoch = 3
        assert await take(events, 1) == [1]


async def test_an_unfinished_follower_ends_without_a_trace(client: AsyncClient, gateway: ScriptedGateway) -> None:
    gateway.append(1)
    before = asyncio.all_tasks()
    follower = client.follow(SUBSCRIPTION, channel="sse")
    await anext(follower)
    await follower.aclose()
    await follower.aclose()
    assert {task for task in asyncio.all_tasks() - before if "acknowledge" in repr(task)} == set()


async def test_following_over_nats_needs_a_login(client: AsyncClient) -> None:
    with pytest.raises(ClientError, match="NatsLogin"):
        await anext(client.follow(SUBSCRIPTION, channel="nats"))
