"""Subscriptions under a grant: opened by a use, cut to its terms, and closed with it, whoever receives from them."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest

from pamspec_common.instants import wire
from pamspec_common.principal import Principal
from pamspec_common.service import Service
from services.subscription.tests.world import (
    ADMIN,
    GUEST,
    TENANT,
    Document,
    World,
    call,
    ok,
    refused,
    sequences,
    sse,
    subscribed,
)

GRANTOR = GUEST
DELEGATE = Principal(TENANT, "agent:delegate", "agent")
FAR = "2099-01-01T00:00:00Z"


async def granted(world: World, scope: str, **terms: Any) -> str:
    """A grant to subscribe, by a grantor with a role in the scope."""
    await world.unbind(scope, GRANTOR)
    await world.bind("contributor", scope, GRANTOR)
    document = {
        "scope_id": scope,
        "delegated_actor": {"actor_id": DELEGATE.actor_id, "actor_kind": "agent"},
        "granted_operations": ["subscribe", "read"],
        "policy_basis": "x",
        "not_before": "2001-01-01T00:00:00Z",
        "not_after": FAR,
        **terms,
    }
    made = await world.written("grant_delegation", document, GRANTOR)
    return str(made["delegation_id"])


async def revoke(world: World, grant: str) -> None:
    await world.written("revoke_delegation", {"delegation_id": grant, "policy_basis": "x"}, GRANTOR)


async def opened(world: World, service: Service, scope: str, grant: str, **more: Any) -> str:
    return await subscribed(service, scope, DELEGATE, delegation_id=grant, **{"channel": "poll", **more})


async def objects(service: Service, name: str, **more: Any) -> list[str]:
    """The objects that a poll tells of."""
    page = await ok(service, "poll", {"subscription_id": name, **more}, DELEGATE)
    return [event["object_id"] for event in page["events"] if event["event_type"] == "object_created"]


async def closed(world: World, name: str) -> None:
    """Wait until the row is closed, without anybody who asks for its events."""
    async with asyncio.timeout(60):
        while (await world.row(name))["state"] != "closed":
            await asyncio.sleep(0.02)
    assert (await world.row(name))["closed_reason"] == "authorization_revoked"


async def test_a_delegate_without_any_right_receives_and_the_use_is_told_first(world: World, service: Service) -> None:
    scope = await world.scope()
    assert (await refused(service, "subscribe", {"scope_id": scope}, DELEGATE))["code"] == "scope_not_found"
    grant = await granted(world, scope)
    name = await opened(world, service, scope, grant, include_content=True)
    made = await world.create(scope)
    assert await objects(service, name) == [made[0]["object_id"]]
    told = [
        event
        for event in await world.events(scope)
        if event["event_type"] in ("delegation_exercised", "subscription_opened")
    ]
    assert [event["event_type"] for event in told] == ["delegation_exercised", "subscription_opened"]
    assert told[0]["payload"]["operation"] == "subscribe"
    assert {event["actor"]["delegation_id"] for event in told} == {grant}


async def test_types_and_ids_leave_everything_else_out(world: World, service: Service) -> None:
    """A confused deputy: the grantor sees all of it."""
    scope = await world.scope()
    first = (await world.create(scope))[0]
    by_type = await opened(world, service, scope, await granted(world, scope, granted_object_types=["decision"]))
    grant = await granted(world, scope, granted_object_ids=[first["object_id"]])
    by_id = await opened(world, service, scope, grant, after_sequence=0)
    secret = (await world.create(scope, object_type="decision"))[0]
    other = (await world.create(scope))[0]
    edge = {
        "scope_id": scope, "relationship_type": "supports", "source_object_id": first["object_id"],
        "target_object_id": other["object_id"], "directionality": "directed", "provenance": {"activity": "test"},
    }  # fmt: skip
    relationship = (await world.written("relate", edge))["relationship_id"]
    assert await objects(service, by_type, after_sequence=0) == [secret["object_id"]]
    assert await objects(service, by_id, after_sequence=0) == [first["object_id"]]
    for name in (by_type, by_id):
        page = await call(service, "poll", {"subscription_id": name, "after_sequence": 0}, DELEGATE)
        assert other["object_id"].encode() not in page.body
        assert relationship.encode() not in page.body
    for wanted, reason in (({"object_id": other["object_id"]}, "object_id"),):
        document = {"scope_id": scope, "delegation_id": grant, "filter": wanted}
        assert (await refused(service, "subscribe", document, DELEGATE))["details"]["reason"] == reason


async def test_other_parties_entries_stay_hidden_from_a_delegate_of_an_auditor(world: World, service: Service) -> None:
    scope = await world.scope()
    await subscribed(service, scope)
    grant = await granted(world, scope)
    await world.bind("admin", scope, GRANTOR)
    name = await opened(world, service, scope, grant, after_sequence=0)
    page = await ok(service, "poll", {"subscription_id": name}, DELEGATE)
    assert all(
        DELEGATE.actor_id in (event["actor"]["actor_id"], event["payload"].get("delegated_actor_id"))
        for event in page["events"]
        if event["event_type"].startswith(("subscription_", "delegation_"))
    )


@pytest.mark.parametrize(
    ("reason", "terms", "more"),
    [
        ("operation", {"granted_operations": ["read"]}, {}),
        ("operation", {"granted_operations": ["subscribe"]}, {"include_content": True}),
        ("not_before", {"not_before": "2098-01-01T00:00:00Z"}, {}),
        ("not_after", {"not_after": "2002-01-01T00:00:00Z"}, {}),
        ("object_type", {"granted_object_types": ["task"]}, {"filter": {"object_type": "claim"}}),
    ],
)
async def test_a_subscribe_is_refused_by_the_rule_that_it_breaks(
    world: World, service: Service, reason: str, terms: Document, more: Document
) -> None:
    scope = await world.scope()
    grant = await granted(world, scope, **terms)
    error = await refused(service, "subscribe", {"scope_id": scope, "delegation_id": grant, **more}, DELEGATE)
    assert (error["code"], error["details"]["reason"]) == ("access_denied", reason)
    assert not any(event["event_type"] == "delegation_exercised" for event in await world.events(scope))


async def test_a_strangers_grant_is_no_grant(world: World, service: Service) -> None:
    scope = await world.scope()
    grant = await granted(world, scope)
    stranger = Principal(TENANT, "agent:stranger", "agent")
    bodies = {
        (
            await call(service, "subscribe", {"scope_id": one, "delegation_id": name, "operation_id": "op:1"}, stranger)
        ).body
        for one, name in ((scope, grant), (scope, "dlg:none"), ("workspace:none", grant))
    }
    assert len(bodies) == 1
    assert b"scope_not_found" in bodies.pop()


async def test_a_revocation_closes_what_is_polled_before_the_next_event(world: World, service: Service) -> None:
    scope = await world.scope()
    grant = await granted(world, scope)
    name = await opened(world, service, scope, grant)
    await world.create(scope)
    await revoke(world, grant)
    page = await ok(service, "poll", {"subscription_id": name}, DELEGATE)
    assert (page["events"], page["closed"]["reason"]) == ([], "authorization_revoked")


async def test_a_revocation_ends_a_stream_with_a_terminal_record(world: World, service: Service) -> None:
    scope = await world.scope()
    grant = await granted(world, scope)
    name = await opened(world, service, scope, grant, channel="sse")
    async with world.served(service) as url, sse(url, name, by=DELEGATE) as stream:
        await stream.frame()
        made = (await world.create(scope))[0]["ledger_sequence"]
        await world.hint(scope, [made])
        assert (await stream.event(30))["event"]["sequence"] == made
        await revoke(world, grant)
        late = (await world.create(scope))[0]["ledger_sequence"]
        await world.hint(scope, [late])
        async with asyncio.timeout(60):
            while "closed" not in (last := await stream.frame(60)):
                assert last.get("event", {}).get("sequence") != late
    assert last["closed"]["reason"] == "authorization_revoked"
    await closed(world, name)


@pytest.mark.parametrize("channel", ["sse", "poll"])
async def test_the_end_of_the_window_closes_without_any_entry_to_tell_of_it(world: World, channel: str) -> None:
    service = await world.service(upkeep_interval_s=0.2 if channel == "poll" else 3600.0, heads_interval_s=60.0)
    scope = await world.scope()
    now: datetime = await world.admin.fetchval("SELECT clock_timestamp()")
    grant = await granted(world, scope, not_after=wire(now + timedelta(seconds=3)))
    name = await opened(world, service, scope, grant, channel=channel, delivery={"keepalive_interval_ms": 60_000})
    if channel == "sse":
        async with world.served(service) as url, sse(url, name, by=DELEGATE) as stream:
            async with asyncio.timeout(60):
                while "closed" not in (last := await stream.frame(60)):
                    pass
        assert last["closed"]["reason"] == "authorization_revoked"
    await closed(world, name)
    ended: datetime = await world.admin.fetchval("SELECT clock_timestamp()")
    assert ended > now + timedelta(seconds=3)


async def test_the_last_use_ends_what_is_open(world: World) -> None:
    service = await world.service(upkeep_interval_s=0.2)
    scope = await world.scope()
    grant = await granted(world, scope, usage_limit=2)
    first = await opened(world, service, scope, grant)
    await world.create(scope)
    assert len(await objects(service, first)) == 1
    await opened(world, service, scope, grant)
    await closed(world, first)
    error = await refused(service, "subscribe", {"scope_id": scope, "delegation_id": grant}, DELEGATE)
    assert error["details"]["reason"] == "usage_limit"


async def test_rights_that_the_grantor_lost_close_it(world: World, service: Service) -> None:
    scope = await world.scope()
    grant = await granted(world, scope)
    name = await opened(world, service, scope, grant)
    await world.create(scope)
    await world.unbind(scope, GRANTOR)
    page = await ok(service, "poll", {"subscription_id": name}, DELEGATE)
    assert (page["events"], page["closed"]["reason"]) == ([], "authorization_revoked")


async def test_a_repeated_subscribe_is_one_use(world: World, service: Service) -> None:
    scope = await world.scope()
    grant = await granted(world, scope, usage_limit=5)
    document = {"scope_id": scope, "delegation_id": grant, "idempotency_key": "k"}
    answers = [await call(service, "subscribe", document, DELEGATE) for _ in range(3)]
    assert len({orjson.loads(answer.body)["subscription_id"] for answer in answers}) == 1
    told = [event for event in await world.events(scope) if event["event_type"] == "delegation_exercised"]
    assert len(told) == 1


async def test_an_administrators_own_subscription_needs_no_grant(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope, ADMIN, channel="poll")
    await world.create(scope)
    assert sequences(await ok(service, "poll", {"subscription_id": name}, ADMIN))
    error = await refused(service, "poll", {"subscription_id": name, "delegation_id": "dlg:1"}, ADMIN)
    assert error["code"] == "invalid_request"
