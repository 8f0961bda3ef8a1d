"""SSE and WebSocket: catch-up, live, resume, keepalive, replacement and the last frame."""

from __future__ import annotations

import asyncio

import aiohttp
import orjson
import pytest

from pamspec_common import contracts
from pamspec_common.service import Service
from services.subscription.tests.world import World, call, ok, sse, subscribed, token, until


async def test_catch_up_then_live_without_a_hole(world: World, service: Service) -> None:
    scope = await world.scope()
    await world.create(scope, 30)
    name = await subscribed(service, scope, after_sequence=0, channel="sse")
    async with world.served(service) as url, sse(url, name) as stream:
        assert await stream.frame() == {"progress": 0, "ledger_epoch": 1}
        assert stream.last_id == "1-0"
        seen: list[int] = []
        for _ in range(31):
            frame = await stream.event()
            assert frame["prev_sequence"] == (seen[-1] if seen else 0)
            seen.append(frame["event"]["sequence"])
        made = await world.create(scope, 3)
        await world.hint(scope, [one["ledger_sequence"] for one in made])
        for _ in range(3):
            seen.append((await stream.event())["event"]["sequence"])
        assert seen == list(range(1, 35))
        assert stream.last_id == "1-34"


async def test_a_hundred_events_between_two_connections(world: World, service: Service) -> None:
    """M083, B60, B62: resumed by Last-Event-ID, by after_sequence, and by the subscription alone."""
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse")
    start = await world.head(scope)
    async with world.served(service) as url:
        async with sse(url, name) as stream:
            await stream.frame()
            before = stream.last_id
        made = await world.create(scope, 100)
        ids = [one["event_id"] for one in made]
        async with sse(url, name, before) as stream:
            assert [(await stream.event())["event"]["event_id"] for _ in range(100)] == ids
        async with sse(url, name, query=f"?after_sequence={start + 50}&ledger_epoch=1") as stream:
            assert [(await stream.event())["event"]["event_id"] for _ in range(50)] == ids[50:]
        assert (await world.row(name))["cursor_sequence"] == start + 50
        for _ in range(2):
            async with sse(url, name) as stream:
                assert (await stream.frame())["progress"] == start + 50
                assert (await stream.event())["event"]["event_id"] == ids[50]


async def test_an_idle_stream_is_kept_alive_and_its_id_moves_on(world: World, service: Service) -> None:
    """M084, B56: keepalive comments and progress, also past what the filter excludes."""
    scope = await world.scope()
    name = await subscribed(
        service,
        scope,
        channel="sse",
        filter={"event_classes": ["object_deleted"]},
        delivery={"keepalive_interval_ms": 100},
    )
    async with world.served(service) as url, sse(url, name) as stream:
        first = (await stream.frame())["progress"]
        made = await world.create(scope, 5)
        await world.hint(scope, [one["ledger_sequence"] for one in made])
        last = made[-1]["ledger_sequence"]
        while (await stream.frame())["progress"] < last:
            continue
        assert first < last
        assert stream.last_id == f"1-{last}"
        assert stream.comments >= 2


async def test_websocket_carries_the_same_frames(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope, after_sequence=0, channel="websocket")
    await world.create(scope, 3)
    headers = {"x-pamspec-principal": token()}
    async with world.served(service) as url, aiohttp.ClientSession() as session:
        path = f"{url}/v1/subscriptions/{name}/ws"
        async with session.ws_connect(path, headers=headers, params={"after_sequence": "1"}) as socket:
            frames = [orjson.loads(await socket.receive_str(timeout=5)) for _ in range(4)]
            for frame in frames:
                contracts.check("frame", frame)
            assert frames[0] == {"progress": 1, "ledger_epoch": 1}
            assert [frame["event"]["sequence"] for frame in frames[1:]] == [2, 3, 4]
            await service.drain()
            ended = orjson.loads(await socket.receive_str(timeout=5))
            assert ended["ended"] == {"reason": "shutdown", "last_sequence": 4}
            assert (await socket.receive(timeout=5)).type is aiohttp.WSMsgType.CLOSE
            assert socket.close_code == 1012


@pytest.mark.parametrize("newer", ["stream", "poll", "long poll"])
async def test_the_newer_ends_the_older_here_and_on_another_replica(world: World, service: Service, newer: str) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse")
    other = await world.service()
    for second in (service, other):
        async with world.served(service) as url, sse(url, name) as stream:
            await stream.frame()
            if newer == "stream":
                async with world.served(second) as second_url, sse(second_url, name) as later:
                    await later.frame()
                    assert (await stream.frame())["ended"]["reason"] == "replaced"
            else:
                wait = {"wait_ms": 300} if newer == "long poll" else {}
                await ok(second, "poll", {"subscription_id": name, **wait})
                assert (await stream.frame())["ended"]["reason"] == "replaced"
        service = await world.service()


async def test_a_newer_long_poll_ends_the_older(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope)
    for second in (service, await world.service()):
        epoch = (await world.row(name))["channel_epoch"]
        older = asyncio.create_task(call(service, "poll", {"subscription_id": name, "wait_ms": 20_000}))

        async def older_waits(epoch: int = epoch) -> object:
            row = await world.row(name)
            return row["channel_kind"] == "poll" and row["channel_epoch"] > epoch

        await until(older_waits)
        await ok(second, "poll", {"subscription_id": name, "wait_ms": 300})
        answer = await asyncio.wait_for(older, 18)
        error = orjson.loads(answer.body)["error"]
        assert (error["code"], error["details"]["reason"]) == ("invalid_request", "replaced")
