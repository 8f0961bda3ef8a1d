"""A stop: every channel gets its end, polls get their answer; bounded, and it may come twice."""

from __future__ import annotations

import asyncio

import pytest

from pamspec_common.errors import ServiceUnavailable
from pamspec_common.peers import LocalPeer
from pamspec_common.service import Service
from pamspec_subscription.app import build
from services.subscription.tests.asgi_client import SlowClient
from services.subscription.tests.world import World, call, ok, sse, subscribed, until


async def test_channels_get_their_last_sequence_and_polls_their_answer(world: World, service: Service) -> None:
    scope = await world.scope()
    streamed = await subscribed(service, scope, channel="sse")
    waiting = await subscribed(service, scope, filter={"event_classes": ["object_deleted"]})
    poll = asyncio.create_task(ok(service, "poll", {"subscription_id": waiting, "wait_ms": 25_000}))
    async with world.served(service) as url, sse(url, streamed) as stream:
        made = (await world.create(scope, 3))[-1]["ledger_sequence"]
        await world.hint(scope, [made - 2, made - 1, made])
        while (await stream.event())["event"]["sequence"] < made:
            continue
        stop = asyncio.create_task(service.drain())
        while "ended" not in (frame := await stream.frame()):
            continue
        assert frame["ended"] == {"reason": "shutdown", "last_sequence": made}
        assert stream.last_id == f"1-{made}"
        with pytest.raises(EOFError):
            await stream.frame()
        await asyncio.wait_for(stop, 60)
    page = await asyncio.wait_for(poll, 18)
    assert (page["events"], page["closed"]) == ([], None)
    assert (await world.row(streamed))["state"] == "open"
    later = await world.service()
    async with world.served(later) as url, sse(url, streamed, f"1-{made}") as stream:
        assert (await stream.frame())["progress"] == made


async def test_a_stop_is_bounded_though_a_client_takes_nothing(world: World) -> None:
    service = await world.service(drain_s=0.5)
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse")
    client = SlowClient(service, name)
    client.take(1)

    async def open_() -> object:
        return client.frames

    await until(open_)
    await world.hint(scope, [one["ledger_sequence"] for one in await world.create(scope, 1)])
    async with asyncio.timeout(6):
        await service.stop()
        await service.stop()
    client.done.cancel()
    await asyncio.gather(client.done, return_exceptions=True)


async def test_nothing_new_opens_while_it_drains(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse")
    await service.drain()
    late = SlowClient(service, name)
    late.take(1)
    await asyncio.wait_for(late.done, 60)
    assert late.status == 503
    answer = await call(service, "poll", {"subscription_id": name, "wait_ms": 20_000})
    assert answer.status == 200
    assert not (await service.ready())[0]


async def test_a_stop_before_the_start_and_a_start_without_the_store(world: World) -> None:
    never = build(world.settings(), LocalPeer(world.write))
    assert (await call(never, "poll", {"subscription_id": "sub:1"})).status == 503
    await never.stop()
    lost = build(world.settings(database_url="postgresql://nobody@127.0.0.1:1/none"), LocalPeer(world.write))
    with pytest.raises(ServiceUnavailable):
        await lost.start()
    await lost.stop()
