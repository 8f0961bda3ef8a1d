"""ack and reset: the cursor is the highest contiguous position, over filters and restarts."""

from __future__ import annotations

import asyncio

import orjson

from pamspec_common.service import Service
from services.subscription.tests.world import OTHER, Document, World, call, ok, refused, sequences, sse, subscribed


async def test_what_was_not_acknowledged_comes_again_after_a_restart(world: World, service: Service) -> None:
    """B52: ten delivered, 1 to 5 and 7 to 10 acknowledged: the sixth, and nothing else, comes again."""
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse")
    made = [one["ledger_sequence"] for one in await world.create(scope, 10)]
    async with world.served(service) as url, sse(url, name) as stream:
        assert [(await stream.event())["event"]["sequence"] for _ in range(10)] == made
        moved = await ok(service, "ack", {"subscription_id": name, "sequence": made[4]})
        assert moved["next_after_sequence"] == made[4]
        moved = await ok(service, "ack", {"subscription_id": name, "sequences": made[6:][::-1]})
        assert moved["next_after_sequence"] == made[4]
    await service.stop()
    later = await world.service()
    more = [one["ledger_sequence"] for one in await world.create(scope, 1)]
    async with world.served(later) as url, sse(url, name) as stream:
        assert (await stream.frame())["progress"] == made[4]
        assert [(await stream.event())["event"]["sequence"] for _ in range(2)] == [made[5], more[0]]
    third = await world.service()
    assert sequences(await ok(third, "poll", {"subscription_id": name, "after_sequence": made[4]})) == [
        made[5],
        more[0],
    ]
    moved = await ok(third, "ack", {"subscription_id": name, "sequences": [made[5]]})
    assert moved["next_after_sequence"] == made[9]
    assert (await world.row(name))["acked_ahead"] == []


async def test_single_acknowledgements_pass_over_what_the_filter_excludes(world: World, service: Service) -> None:
    scope = await world.scope()
    wanted = await world.create(scope, 3)
    for one in wanted:
        change = {
            "object_id": one["object_id"],
            "expected_version_id": one["version_id"],
            "policy_basis": "test",
            "scope_id": scope,
        }
        await world.written("delete", change)
        await world.create(scope, 2)
    name = await subscribed(service, scope, after_sequence=0, filter={"event_classes": ["object_deleted"]})
    page = await ok(service, "poll", {"subscription_id": name, "after_sequence": 0})
    first, second, third = sequences(page)
    moved = await ok(service, "ack", {"subscription_id": name, "sequences": [third, first]})
    assert moved["next_after_sequence"] == second - 1
    moved = await ok(service, "ack", {"subscription_id": name, "sequences": [second]})
    assert moved["next_after_sequence"] == third


async def test_a_cumulative_acknowledgement_joins_the_single_ones(world: World, service: Service) -> None:
    scope = await world.scope()
    made = [one["ledger_sequence"] for one in await world.create(scope, 10)]
    by_ack = await subscribed(service, scope, after_sequence=0)
    by_poll = await subscribed(service, scope, after_sequence=0)
    for name in (by_ack, by_poll):
        await ok(service, "ack", {"subscription_id": name, "sequences": made[5:8]})
    moved = await ok(service, "ack", {"subscription_id": by_ack, "sequence": made[4]})
    assert moved["next_after_sequence"] == made[7]
    page = await ok(service, "poll", {"subscription_id": by_poll, "after_sequence": made[4], "max": 1})
    assert sequences(page) == [made[8]]
    assert (await world.row(by_poll))["cursor_sequence"] == made[7]


async def test_acknowledgements_never_move_back_nor_beyond_the_head(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope, after_sequence=0)
    made = [one["ledger_sequence"] for one in await world.create(scope, 5)]
    await ok(service, "ack", {"subscription_id": name, "sequence": made[3]})
    for again in ({"sequence": made[1]}, {"sequences": [1, 2]}, {"sequence": 0}):
        moved = await ok(service, "ack", {"subscription_id": name, **again})
        assert moved["next_after_sequence"] == made[3]
    head = await world.head(scope)
    for beyond in ({"sequence": head + 1}, {"sequences": [1, head + 1]}):
        error = await refused(service, "ack", {"subscription_id": name, **beyond})
        assert error["details"] == {
            "reason": "position_future",
            "ledger_epoch": 1,
            "head_sequence": head,
            "resume_after": made[3],
        }
    shapes: list[Document] = [
        {},
        {"sequence": 1, "sequences": [1]},
        {"sequences": []},
        {"sequences": [0]},
        {"sequence": -1},
    ]
    for shape in shapes:
        assert (await refused(service, "ack", {"subscription_id": name, **shape}))["code"] == "invalid_request"
    for operation, more in [("ack", {"sequence": 1}), ("reset", {"after_sequence": 1})]:
        error = await refused(service, operation, {"subscription_id": name, **more}, OTHER)
        assert error["code"] == "object_not_found"


async def test_concurrent_acknowledgements_lose_nothing(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope)
    other = await world.service()
    made = [one["ledger_sequence"] for one in await world.create(scope, 60)]
    await asyncio.gather(
        *(
            ok((service, other)[at % 2], "ack", {"subscription_id": name, "sequences": [made[at]]})
            for at in reversed(range(60))
        )
    )
    row = await world.row(name)
    assert (row["cursor_sequence"], row["acked_ahead"]) == (made[-1], [])


async def test_reset_delivers_again_and_ends_what_was_open(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope)
    start = await world.head(scope)
    made = [one["ledger_sequence"] for one in await world.create(scope, 5)]
    assert sequences(await ok(service, "poll", {"subscription_id": name})) == made
    async with world.served(service) as url, sse(url, name) as stream:
        await stream.frame()
        moved = await ok(service, "reset", {"subscription_id": name, "after_sequence": made[2]})
        assert moved["next_after_sequence"] == made[2]
        while "ended" not in (frame := await stream.frame()):
            continue
        assert frame["ended"]["reason"] == "replaced"
    service = await world.service()
    assert sequences(await ok(service, "poll", {"subscription_id": name})) == made[3:]
    await ok(service, "reset", {"subscription_id": name, "after_sequence": start})
    assert sequences(await ok(service, "poll", {"subscription_id": name})) == made
    error = await refused(service, "reset", {"subscription_id": name, "after_sequence": made[-1] + 1})
    assert error["details"]["reason"] == "position_future"


async def test_a_loop_of_polls_never_sees_a_position_twice(world: World, service: Service) -> None:
    """B68: two writers, two pollers without a position, every event once."""
    scope = await world.scope()
    name = await subscribed(service, scope)
    other = await world.service()
    seen: list[int] = []
    stop = asyncio.Event()

    async def poll(by: Service) -> None:
        while True:
            last = stop.is_set()
            answer = await call(by, "poll", {"subscription_id": name, "max": 7})
            if answer.status == 503:
                continue
            events = sequences(orjson.loads(answer.body))
            seen.extend(events)
            if last and not events:
                return

    async def write() -> None:
        for _ in range(30):
            await world.create(scope, 2)

    polls = [asyncio.create_task(poll(by)) for by in (service, other)]
    await asyncio.gather(write(), write())
    stop.set()
    await asyncio.gather(*polls)
    assert sorted(seen) == [event["sequence"] for event in await world.events(scope)][1:]
