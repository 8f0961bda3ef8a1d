"""A tenant that is suspended receives nothing and loses nothing; one that is gone has no subscriptions any more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import orjson
import pytest
from nats.aio.client import Client

from pamspec_common.principal import RIGHT_OPERATOR, Principal
from pamspec_common.service import Service
from services.subscription.tests import test_webhooks as webhook_tests
from services.subscription.tests.endpoint import Endpoint, taken
from services.subscription.tests.test_delegated import DELEGATE, granted
from services.subscription.tests.test_nats import agent as agent
from services.subscription.tests.test_nats import follow as follow_nats
from services.subscription.tests.test_webhooks import hook as hook
from services.subscription.tests.world import (
    AGENT,
    GUEST,
    TENANT,
    World,
    call,
    ok,
    refused,
    sequences,
    sse,
    subscribed,
    until,
)

OPERATOR = Principal("tenant:operations", "human:operator", "human", frozenset({RIGHT_OPERATOR}))
WAIT_S = 60.0


async def operated(world: World, operation: str) -> None:
    await world.admin.execute(
        "INSERT INTO core.tenant (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING", "tenant:operations"
    )
    await world.written(operation, {"tenant_id": TENANT, "policy_basis": "x"}, OPERATOR)


async def suspend(world: World) -> None:
    await operated(world, "suspend_tenant")


async def resume(world: World) -> None:
    await operated(world, "resume_tenant")


async def state(world: World, name: str) -> str:
    return str((await world.row(name))["state"])


def unheld(world: World, name: str) -> Callable[[], Awaitable[bool]]:
    """Nobody delivers it: its lease has run out, or was never renewed."""

    async def found() -> bool:
        left = await world.admin.fetchval(
            "SELECT lease_expires_at > clock_timestamp() FROM subscription.subscription WHERE subscription_id = $1",
            name,
        )
        return not left

    return found


async def test_polls_are_refused_and_go_on_where_they_were(world: World, service: Service) -> None:
    scope = await world.scope()
    only = {"event_classes": ["object_created"]}
    name = await subscribed(service, scope, after_sequence=0, channel="poll", filter=only)
    made = [one["ledger_sequence"] for one in await world.create(scope, 4)]
    page = await ok(service, "poll", {"subscription_id": name, "max": 2})
    assert sequences(page) == made[:2]
    await ok(service, "ack", {"subscription_id": name, "sequence": made[1]})
    await suspend(world)
    for _ in range(2):
        assert (await refused(service, "poll", {"subscription_id": name}))["code"] in (
            "scope_not_found",
            "access_denied",
        )
    assert await state(world, name) == "open"
    await resume(world)
    assert made[2:] == sequences(await ok(service, "poll", {"subscription_id": name}))[:2]


async def test_a_poll_that_waits_ends_and_its_subscription_stays(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse")
    waiting = asyncio.create_task(call(service, "poll", {"subscription_id": name, "wait_ms": 20_000}))

    async def held() -> object:
        return (await world.row(name))["channel_kind"] == "poll"

    await until(held, WAIT_S)
    await suspend(world)
    assert (await asyncio.wait_for(waiting, WAIT_S)).status in (403, 404)
    assert await state(world, name) == "open"
    await resume(world)
    made = (await world.create(scope, 1))[0]["ledger_sequence"]
    assert made in sequences(await ok(service, "poll", {"subscription_id": name}))


async def test_a_stream_ends_without_a_close_and_is_opened_again(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse", delivery={"keepalive_interval_ms": 100})
    async with world.served(service) as url:
        async with sse(url, name) as stream:
            await stream.frame()
            await suspend(world)
            while "ended" not in (frame := await stream.frame(WAIT_S)):
                assert "progress" in frame, frame
            assert frame["ended"]["reason"] == "shutdown"
            with pytest.raises(EOFError):
                await stream.frame()
        assert await state(world, name) == "open"
        await resume(world)
        made = (await world.create(scope, 1))[0]["ledger_sequence"]
        async with sse(url, name) as stream:
            assert (await stream.event(WAIT_S))["event"]["sequence"] == made


async def test_over_the_bus_it_stands_still_and_goes_on_from_its_cursor(world: World, agent: Client) -> None:
    service = await world.service(lease_s=0.6, nats_window=2)
    scope = await world.scope()
    name, inbox = await follow_nats(world, service, agent, scope, delivery={"keepalive_interval_ms": 100})
    await inbox.frame()
    made = [one["ledger_sequence"] for one in await world.create(scope, 4)]
    assert [(await inbox.event())["event"]["sequence"] for _ in range(2)] == made[:2]
    await ok(service, "ack", {"subscription_id": name, "sequence": made[0]})
    assert (await inbox.event())["event"]["sequence"] == made[2]
    await suspend(world)
    await until(unheld(world, name), WAIT_S)
    assert await state(world, name) == "open"
    assert (await world.row(name))["cursor_sequence"] == made[0]
    while not inbox.frames.empty():
        assert "event" not in inbox.frames.get_nowait()
    await resume(world)
    assert [(await inbox.event())["event"]["sequence"] for _ in range(2)] == made[1:3]


async def test_an_endpoint_gets_nothing_meanwhile_and_the_rest_afterwards(world: World, hook: Endpoint) -> None:
    service = await world.service(**{**webhook_tests.LOOPBACK, "lease_s": 0.6})
    scope = await world.scope()
    hook.answer = webhook_tests.answering(*[503] * 1000)
    only = {"event_classes": ["object_created"]}
    name = await webhook_tests.follow(service, hook, scope, after_sequence=0, filter=only)
    made = [one["ledger_sequence"] for one in await world.create(scope, 2)]
    await hook.until(lambda: hook.seen)
    await suspend(world)
    await until(unheld(world, name), WAIT_S)
    assert await state(world, name) == "open"
    hook.answer = taken
    await resume(world)
    await hook.keeps(made)
    assert hook.closed is None


async def test_time_suspended_is_no_silence(world: World) -> None:
    """What nobody could acknowledge is not held against its owner, then or right after."""
    setup = await world.service()
    scope = await world.scope()
    kept = await subscribed(setup, scope)
    await world.create(scope, 3)
    await suspend(world)
    await world.admin.execute(
        "ALTER TABLE core.ledger DISABLE TRIGGER insert_only;"
        "UPDATE core.ledger SET recorded_at = recorded_at - interval '8 days';"
        "UPDATE subscription.subscription SET progressed_at = progressed_at - interval '8 days';"
        "UPDATE core.tenant SET state_at = state_at - interval '8 days'"
    )
    ended = await subscribed_elsewhere(world, setup)
    service = await world.service(upkeep_interval_s=0.1, unacknowledged_limit_s=7 * 86400.0)

    async def swept() -> object:
        return (await world.row(ended))["state"] == "closed"

    await until(swept, WAIT_S)
    assert await state(world, kept) == "open"
    await resume(world)
    again = await subscribed_elsewhere(world, setup)
    await until(lambda: _is(world, again, "closed"), WAIT_S)
    assert await state(world, kept) == "open"
    assert len(sequences(await ok(service, "poll", {"subscription_id": kept}))) >= 3


async def subscribed_elsewhere(world: World, service: Service) -> str:
    """A silent subscription of a tenant that was never suspended, which the next round of upkeep closes."""
    tenant = "tenant:elsewhere"
    by = Principal(tenant, "agent:a", "agent", roles=frozenset({"admin"}))
    scope = f"workspace:silent-{asyncio.get_running_loop().time()}"
    await world.written("create_scope", {"scope_id": scope, "scope_kind": "workspace"}, by)
    name = await subscribed(service, scope, by)
    item = {"object_type": "claim", "canonical_content": "x", "provenance": {"activity": "test"}}
    await world.written("create", {"scope_id": scope, **item}, by)
    await world.admin.execute(
        "ALTER TABLE core.ledger DISABLE TRIGGER insert_only;"
        "UPDATE core.ledger SET recorded_at = recorded_at - interval '8 days' WHERE scope_key = "
        f"(SELECT scope_key FROM core.scope WHERE scope_id = '{scope}');"
        "UPDATE subscription.subscription SET progressed_at = progressed_at - interval '8 days' "
        f"WHERE subscription_id = '{name}';"
        f"UPDATE core.tenant SET state_at = state_at - interval '8 days' WHERE tenant_id = '{tenant}'"
    )
    return name


async def _is(world: World, name: str, wanted: str) -> bool:
    return await state(world, name) == wanted


async def test_a_subscription_under_a_grant_stays_too(world: World) -> None:
    service = await world.service(upkeep_interval_s=0.1, unacknowledged_limit_s=7 * 86400.0)
    scope = await world.scope()
    grant = await granted(world, scope)
    name = await subscribed(service, scope, DELEGATE, delegation_id=grant, channel="poll")
    await suspend(world)
    assert (await call(service, "poll", {"subscription_id": name}, DELEGATE)).status in (403, 404)
    for _ in range(2):
        swept = await subscribed_elsewhere(world, service)
        await until(partial(_is, world, swept, "closed"), WAIT_S)
    assert await state(world, name) == "open"
    await resume(world)
    made = (await world.create(scope, 1))[0]["ledger_sequence"]
    assert made in sequences(await ok(service, "poll", {"subscription_id": name}, DELEGATE))


async def test_a_right_that_is_gone_after_the_resumption_closes_as_ever(world: World, service: Service) -> None:
    scope = await world.scope()
    await world.bind("reader", scope)
    name = await subscribed(service, scope, GUEST, channel="poll")
    await suspend(world)
    await call(service, "poll", {"subscription_id": name}, GUEST)
    assert await state(world, name) == "open"
    await world.unbind(scope)
    await resume(world)
    page = await ok(service, "poll", {"subscription_id": name}, GUEST)
    assert page["closed"]["reason"] == "authorization_revoked"


@pytest.mark.parametrize("channel", ["poll", "sse"])
async def test_suspensions_and_resumptions_in_a_row_lose_nothing(world: World, channel: str) -> None:
    """A refusal under one state is never turned into a close under another."""
    service = await world.service(upkeep_interval_s=0.05, heads_interval_s=0.02)
    scope = await world.scope()
    names = [await subscribed(service, scope, channel=channel) for _ in range(5)]
    done = asyncio.Event()

    async def follow(url: str, name: str) -> None:
        while not done.is_set():
            with contextlib.suppress(EOFError, AssertionError):
                if channel == "sse":
                    async with sse(url, name) as stream:
                        while "ended" not in await stream.frame():
                            continue
                else:
                    await call(service, "poll", {"subscription_id": name, "wait_ms": 200})

    async with world.served(service) as url:
        following = [asyncio.create_task(follow(url, name)) for name in names]
        for _ in range(10):
            await suspend(world)
            await resume(world)
        await suspend(world)
        await resume(world)
        done.set()
        made = (await world.create(scope, 1))[0]["ledger_sequence"]
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        assert {await state(world, name) for name in names} == {"open"}
        for name in names:
            events: list[int] = []
            while made not in events:
                answer = await call(service, "poll", {"subscription_id": name})
                assert answer.status == 200, answer.body
                page: dict[str, Any] = orjson.loads(answer.body)
                assert page["closed"] is None
                events += sequences(page)


async def test_of_an_offboarded_tenant_nothing_is_left(world: World, hook: Endpoint) -> None:
    service = await world.service(**webhook_tests.LOOPBACK, upkeep_interval_s=0.1)
    scope = await world.scope()
    await subscribed(service, scope, channel="poll")
    await webhook_tests.follow(service, hook, scope, AGENT)
    await world.create(scope, 2)
    await operated(world, "offboard_tenant")

    async def left() -> bool:
        found: int = await world.admin.fetchval(
            "SELECT (SELECT count(*) FROM subscription.subscription WHERE tenant_id = $1) + "
            "(SELECT count(*) FROM subscription.webhook WHERE tenant_id = $1)",
            TENANT,
        )
        return found == 0

    await until(left, WAIT_S)
    assert hook.closed is not None
