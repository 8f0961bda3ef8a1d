"""What ends a subscription for good: unsubscribe, revocation, silence; and its terminal record in ledger order."""

from __future__ import annotations

import asyncio
import contextlib

import orjson
import pytest

from pamspec_common.calls import refusal
from pamspec_common.errors import ServiceUnavailable
from pamspec_common.peers import LocalPeer
from pamspec_common.service import Service
from services.subscription.tests.test_opening import FailingPeer
from services.subscription.tests.world import ADMIN, GUEST, World, call, ok, refused, sequences, sse, subscribed, until


async def test_unsubscribe_ends_delivery_and_is_answered_again(world: World, service: Service) -> None:
    """P130, P218: nothing after the close is ever delivered."""
    scope = await world.scope()
    name = await subscribed(service, scope, after_sequence=0)
    await world.create(scope, 2)
    await ok(service, "poll", {"subscription_id": name, "after_sequence": 0, "max": 2})
    first = await ok(service, "unsubscribe", {"subscription_id": name, "operation_id": "op:x"})
    assert first["closed"] == {"reason": "unsubscribed", "last_delivered_sequence": 2}
    event = (await world.events(scope))[-1]
    assert event["event_type"] == "subscription_closed"
    assert event["payload"].items() >= {"subscription_id": name, **first["closed"]}.items()
    await world.create(scope, 1)
    for _ in range(2):
        page = await ok(service, "poll", {"subscription_id": name, "after_sequence": 0, "wait_ms": 20_000})
        assert (page["events"], page["closed"]) == ([], first["closed"])
    assert (await ok(service, "unsubscribe", {"subscription_id": name, "operation_id": "op:x"})) == first
    head = await world.head(scope)
    assert (await ok(service, "ack", {"subscription_id": name, "sequence": head}))["next_after_sequence"] == 0
    error = await refused(service, "reset", {"subscription_id": name, "after_sequence": 0})
    assert error["code"] == "invalid_request"
    entry = (await ok(service, "list_subscriptions", {"subscription_id": name}))["subscriptions"][0]
    assert entry["closed"] == first["closed"]
    closed = [one for one in await world.events(scope) if one["event_type"] == "subscription_closed"]
    assert len(closed) == 1


async def test_the_terminal_record_comes_in_ledger_order_on_every_replica(world: World, service: Service) -> None:
    scope = await world.scope()
    other = await world.service()
    await world.create(scope, 3)
    name = await subscribed(service, scope, after_sequence=0, channel="sse")
    async with world.served(service) as url, sse(url, name) as stream:
        for _ in range(4):
            await stream.event()
        late = await world.create(scope, 2)
        closed = await ok(other, "unsubscribe", {"subscription_id": name})
        await world.create(scope, 2)
        assert [(await stream.event())["event"]["sequence"] for _ in range(2)] == [
            one["ledger_sequence"] for one in late
        ]
        last = await stream.frame()
        while "progress" in last:
            last = await stream.frame()
        assert last["closed"] == {"reason": "unsubscribed", "last_delivered_sequence": late[-1]["ledger_sequence"]}
        with pytest.raises(EOFError):
            await stream.frame()
        async with sse(url, name) as again:
            assert (await again.frame())["closed"] == closed["closed"]


async def test_the_last_delivered_sequence_counts_what_a_channel_here_sent(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope, after_sequence=0, channel="sse")
    made = await world.create(scope, 3)
    async with world.served(service) as url, sse(url, name) as stream:
        while (await stream.event())["event"]["sequence"] < made[-1]["ledger_sequence"]:
            continue
        closed = await ok(service, "unsubscribe", {"subscription_id": name}, ADMIN)
        assert closed["closed"]["last_delivered_sequence"] == made[-1]["ledger_sequence"]


async def test_a_waiting_poll_learns_of_the_close(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope, filter={"event_classes": ["object_deleted"]})
    poll = asyncio.create_task(ok(service, "poll", {"subscription_id": name, "wait_ms": 20_000}))
    await until(lambda: _held(world, name))
    closed = await ok(await world.service(), "unsubscribe", {"subscription_id": name})
    assert (await asyncio.wait_for(poll, 18))["closed"] == closed["closed"]


async def _held(world: World, name: str) -> object:
    return (await world.row(name))["channel_kind"] is not None


async def test_a_closing_that_was_cut_is_finished(world: World) -> None:
    scope = await world.scope()
    peer = FailingPeer(LocalPeer(world.write))
    service = await world.service(write=peer, upkeep_interval_s=0.2)
    names = [await subscribed(service, scope) for _ in range(2)]
    for name, lost in zip(names, (False, True), strict=True):
        peer.fail_before = None if lost else refusal(ServiceUnavailable(), "op:x")
        peer.lose_after = lost
        assert (await refused(service, "unsubscribe", {"subscription_id": name}))["code"] == "service_unavailable"
        page = await ok(service, "poll", {"subscription_id": name})
        assert page["closed"]["reason"] == "unsubscribed"
    peer.fail_before, peer.lose_after = None, False

    async def all_closed() -> object:
        return await world.admin.fetchval(
            "SELECT bool_and(state = 'closed' AND closed_sequence IS NOT NULL) FROM subscription.subscription"
        )

    await until(all_closed)
    closed = [one for one in await world.events(scope) if one["event_type"] == "subscription_closed"]
    assert sorted(one["payload"]["subscription_id"] for one in closed) == sorted(names)


async def test_prolonged_silence_closes_only_what_waits_for_an_acknowledgement(world: World) -> None:
    """P130: the oldest unacknowledged event must be old; excluded events and healthy streams do not count."""
    scope = await world.scope()
    setup = await world.service()
    only_deleted = {"event_classes": ["object_deleted"]}
    silent = await subscribed(setup, scope)
    excluded = await subscribed(setup, scope, filter=only_deleted)
    acked_singly = await subscribed(setup, scope, filter={"event_classes": ["object_created"]})
    streamed = await subscribed(setup, scope, channel="sse")
    current = await subscribed(setup, scope)
    made = await world.create(scope, 3)
    await ok(setup, "ack", {"subscription_id": acked_singly, "sequences": [one["ledger_sequence"] for one in made]})
    await world.admin.execute(
        "ALTER TABLE core.ledger DISABLE TRIGGER insert_only;"
        "UPDATE core.ledger SET recorded_at = recorded_at - interval '8 days';"
        "UPDATE subscription.subscription SET progressed_at = progressed_at - interval '8 days';"
        "UPDATE core.tenant SET state_at = state_at - interval '8 days'"
    )
    fresh = (await world.create(scope, 1))[0]
    await world.admin.execute(
        "UPDATE subscription.subscription SET cursor_sequence = $2 WHERE subscription_id = $1",
        current,
        fresh["ledger_sequence"] - 1,
    )
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(world.served(setup))
        stream = await stack.enter_async_context(sse(url, streamed))
        await stream.event()
        service = await world.service(upkeep_interval_s=0.2, unacknowledged_limit_s=7 * 86400.0)
        setup_upkeep = await world.row(streamed)
        assert setup_upkeep["state"] == "open"
        await world.admin.execute(
            "UPDATE subscription.subscription SET progressed_at = clock_timestamp() WHERE subscription_id = $1",
            streamed,
        )

        async def silent_closed() -> object:
            return (await world.row(silent))["state"] == "closed"

        await until(silent_closed)
    record = (await world.row(silent))["closed_reason"]
    assert record == "unacknowledged"
    for name in (excluded, acked_singly, current, streamed):
        assert (await world.row(name))["state"] == "open", name
    assert (await world.row(excluded))["cursor_sequence"] >= fresh["ledger_sequence"]
    page = await ok(service, "poll", {"subscription_id": silent})
    assert page["closed"]["reason"] == "unacknowledged"


async def test_a_revoked_subscriber_does_not_get_its_backlog(world: World) -> None:
    """P133: the right is decided again when the epoch has moved, before anything more is delivered."""
    service = await world.service()
    for channel in ("poll", "sse"):
        scope = await world.scope()
        await world.bind("reader", scope)
        name = await subscribed(service, scope, GUEST, channel=channel)
        await world.create(scope, 5)
        await world.unbind(scope)
        page = await ok(service, "poll", {"subscription_id": name}, GUEST)
        assert page["events"] == []
        assert page["closed"] == {"reason": "authorization_revoked", "last_delivered_sequence": 1}
        event = (await world.events(scope))[-1]
        assert (event["event_type"], event["payload"]["reason"]) == ("subscription_closed", "authorization_revoked")


async def test_a_live_channel_ends_with_the_terminal_record_when_its_right_is_gone(world: World) -> None:
    service = await world.service()
    scope = await world.scope()
    await world.bind("reader", scope)
    name = await subscribed(service, scope, GUEST, channel="sse")
    waiting = await subscribed(service, scope, GUEST)
    poll = asyncio.create_task(call(service, "poll", {"subscription_id": waiting, "wait_ms": 20_000}, GUEST))
    async with world.served(service) as url, sse(url, name, by=GUEST) as stream:
        await stream.frame()
        made = await world.create(scope, 20)
        await world.hint(scope, [one["ledger_sequence"] for one in made])
        while (await stream.event())["event"]["sequence"] < made[-1]["ledger_sequence"]:
            continue
        await world.unbind(scope)
        while "closed" not in (frame := await stream.frame()):
            assert "progress" in frame
        assert frame["closed"]["reason"] == "authorization_revoked"
        with pytest.raises(EOFError):
            await stream.frame()
    first = orjson.loads((await asyncio.wait_for(poll, 18)).body)
    assert sequences(first)[:1] == [made[0]["ledger_sequence"]]
    assert (await world.row(name))["state"] == "closed"


async def test_a_waiting_poll_is_told_when_its_right_is_gone(world: World) -> None:
    service = await world.service()
    scope = await world.scope()
    await world.bind("reader", scope)
    name = await subscribed(service, scope, GUEST)
    poll = asyncio.create_task(ok(service, "poll", {"subscription_id": name, "wait_ms": 20_000}, GUEST))
    await until(lambda: _held(world, name))
    await world.unbind(scope)
    page = await asyncio.wait_for(poll, 18)
    assert (page["events"], page["closed"]["reason"]) == ([], "authorization_revoked")


async def test_a_deleted_scope_closes_what_follows_it(world: World) -> None:
    """Polled, streamed or left alone: closed with that reason and its record, and the owner learns of it."""
    service = await world.service(upkeep_interval_s=0.2)
    scope, other = await world.scope(), await world.scope()
    polled, alone, kept = [await subscribed(service, one, after_sequence=0) for one in (scope, scope, other)]
    streamed = await subscribed(service, scope, after_sequence=0, channel="sse")
    await world.create(scope, 2)
    async with world.served(service) as url, sse(url, streamed) as stream:
        await stream.event()
        await world.written("delete_scope", {"scope_id": scope, "policy_basis": "test"}, ADMIN)
        frame = await stream.frame()
        while "closed" not in frame:
            frame = await stream.frame()
        assert frame["closed"]["reason"] == "scope_deleted"
        page = await ok(service, "poll", {"subscription_id": polled, "after_sequence": 0})
        assert (page["events"], page["closed"]["reason"]) == ([], "scope_deleted")

        async def all_closed() -> bool:
            entries = [
                one["payload"] for one in await world.events(scope) if one["event_type"] == "subscription_closed"
            ]
            return {one["subscription_id"]: one["reason"] for one in entries} == dict.fromkeys(
                (polled, alone, streamed), "scope_deleted"
            )

        async with asyncio.timeout(30):
            while not await all_closed():
                await asyncio.sleep(0.05)
        page = await ok(service, "poll", {"subscription_id": kept, "after_sequence": 0})
        assert page["closed"] is None
        error = await refused(service, "subscribe", {"scope_id": scope, "channel": "poll", "filter": {}})
        assert error["code"] == "scope_not_found"
