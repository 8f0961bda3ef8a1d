"""poll: pages from the ledger, acknowledgement by position, waiting, and what ends it."""

from __future__ import annotations

import asyncio

from pamspec_common.service import Service
from services.subscription.tests.world import OTHER, STRANGER, World, ok, refused, sequences, subscribed


async def test_an_event_is_pollable_the_moment_its_write_was_acknowledged(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope)
    for _ in range(20):
        made = (await world.create(scope))[0]
        page = await ok(service, "poll", {"subscription_id": name})
        assert [event["event_id"] for event in page["events"]] == [made["event_id"]]
        assert page["next_after_sequence"] == made["ledger_sequence"]
        assert page["closed"] is None


async def test_default_start_is_its_own_opening_and_zero_is_the_beginning(world: World, service: Service) -> None:
    scope = await world.scope()
    await world.create(scope, 3)
    later = await ok(service, "subscribe", {"scope_id": scope})
    opened = (await world.events(scope))[-1]
    assert opened["event_type"] == "subscription_opened"
    assert opened["payload"]["subscription_id"] == later["subscription_id"]
    assert later["start_sequence"] == opened["sequence"] == 4
    assert (await ok(service, "poll", {"subscription_id": later["subscription_id"]}))["events"] == []
    for alias in ("after_sequence", "start_sequence"):
        answer = await ok(service, "subscribe", {"scope_id": scope, alias: 0})
        assert answer["start_sequence"] == 0
        page = await ok(service, "poll", {"subscription_id": answer["subscription_id"]})
        assert sequences(page)[:4] == [1, 2, 3, 4]


async def test_delivered_events_come_once_without_a_position_and_again_with_one(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope, after_sequence=0)
    await world.create(scope, 6)
    first = await ok(service, "poll", {"subscription_id": name, "max": 4})
    assert sequences(first) == [1, 2, 3, 4]
    assert sequences(await ok(service, "poll", {"subscription_id": name})) == [5, 6, 7]
    assert sequences(await ok(service, "poll", {"subscription_id": name})) == []
    again = await ok(service, "poll", {"subscription_id": name, "after_sequence": 2})
    assert sequences(again) == [3, 4, 5, 6, 7]
    row = await world.row(name)
    assert (row["cursor_sequence"], row["delivered_sequence"]) == (7, 7)


async def test_a_position_acknowledges_up_to_it(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope, after_sequence=0)
    await world.create(scope, 5)
    await ok(service, "poll", {"subscription_id": name, "after_sequence": 0, "max": 3})
    assert (await world.row(name))["cursor_sequence"] == 0
    await ok(service, "poll", {"subscription_id": name, "after_sequence": 3, "max": 1})
    assert (await world.row(name))["cursor_sequence"] == 3


async def test_a_long_poll_wakes_with_the_event(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope)
    poll = asyncio.create_task(ok(service, "poll", {"subscription_id": name, "wait_ms": 30_000}))
    made = (await world.create(scope))[0]
    await world.hint(scope, [made["ledger_sequence"]])
    async with asyncio.timeout(25):
        assert [event["event_id"] for event in (await poll)["events"]] == [made["event_id"]]


async def test_others_learn_nothing(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope)
    for principal in (OTHER, STRANGER):
        for operation in ("poll", "unsubscribe"):
            error = await refused(service, operation, {"subscription_id": name}, principal)
            assert error["code"] == "object_not_found"
    error = await refused(service, "subscribe", {"scope_id": scope}, STRANGER)
    assert error["code"] == "scope_not_found"


async def test_a_position_may_be_that_of_an_excluded_event(world: World, service: Service) -> None:
    """B56."""
    scope = await world.scope()
    name = await subscribed(service, scope, after_sequence=0, filter={"object_type": "task"})
    await world.create(scope, 3)
    (task,) = await world.create(scope, 1, object_type="task")
    for after in range(5):
        page = await ok(service, "poll", {"subscription_id": name, "after_sequence": after})
        assert sequences(page) == [task["ledger_sequence"]]
    page = await ok(service, "poll", {"subscription_id": name, "after_sequence": task["ledger_sequence"]})
    assert page["events"] == []


async def test_a_floor_that_the_ledger_has_not_reached(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope)
    head = await world.head(scope)
    assert (await ok(service, "poll", {"subscription_id": name, "min_sequence": head}))["closed"] is None
    error = await refused(service, "poll", {"subscription_id": name, "min_sequence": head + 1})
    assert (error["code"], error["details"]["reason"]) == ("service_unavailable", "stale_session")


async def test_malformed_polls_are_refused_with_their_operation_id(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope)
    for wrong in (
        {"max": 0},
        {"max": 1001},
        {"max": "10"},
        {"wait_ms": -1},
        {"wait_ms": 30_001},
        {"after_sequence": -1},
        {"after_sequence": 99},
        {"ledger_epoch": 0},
        {"unknown": 1},
        {"scope_id": "workspace:another"},
    ):
        error = await refused(service, "poll", {"subscription_id": name, "operation_id": "op:mine", **wrong})
        assert (error["code"], error["operation_id"]) == ("invalid_request", "op:mine")
    error = await refused(service, "poll", {"subscription_id": "sub:none"})
    assert error["code"] == "object_not_found"
