"""Refused subscriptions leave an entry, delivered to auditors, administrators and the one refused alone."""

from __future__ import annotations

import aiohttp

from services.subscription.tests.world import ADMIN, AGENT, GUEST, World, ok, refused, subscribed, token


async def test_a_refusal_reaches_only_whom_it_concerns(world: World) -> None:
    scope = await world.scope()
    await world.rules(
        '@id("quiet") forbid(principal == Agent::"agent:guest", action == Action::"subscribe", resource);', scope
    )
    await world.bind("reader", scope)
    refusing = await world.service()
    for _ in range(3):
        assert (await refused(refusing, "subscribe", {"scope_id": scope}, GUEST))["code"] == "access_denied"
    service = await world.service()
    opened = {by: await subscribed(service, scope, by, channel="poll") for by in (ADMIN, AGENT)}
    await world.rules("", scope)
    opened[GUEST] = await subscribed(service, scope, GUEST, channel="poll")
    await refusing.stop()
    got = {}
    for by, name in opened.items():
        page = await ok(service, "poll", {"subscription_id": name}, by)
        got[by] = [event for event in page["events"] if event["event_type"] == "access_denied"]
    (event,) = got[ADMIN]
    assert got == {ADMIN: [event], AGENT: [], GUEST: [event]}
    assert event["actor"] == {"actor_id": GUEST.actor_id, "actor_kind": "agent"}
    assert (event["payload"]["operation"], event["payload"]["count"]) == ("subscribe", 3)


async def test_a_stream_that_is_refused_is_told_of_too(world: World) -> None:
    scope = await world.scope()
    await world.bind("reader", scope)
    service = await world.service()
    name = await subscribed(service, scope, GUEST, channel="sse")
    await world.unbind(scope)
    async with world.served(service) as url, aiohttp.ClientSession() as session:
        headers = {"x-pamspec-principal": token(GUEST)}
        async with session.get(f"{url}/v1/subscriptions/{name}/stream", headers=headers) as response:
            assert response.status == 404, await response.text()
    told = [event for event in await world.events(scope) if event["event_type"] == "access_denied"]
    assert [(event["actor"]["actor_id"], event["payload"]["operation"]) for event in told] == [
        (GUEST.actor_id, "subscribe")
    ]
