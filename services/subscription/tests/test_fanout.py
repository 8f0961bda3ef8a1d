"""The live path: hints from the bus that are lost, doubled, late or of another epoch, and a bus that is away."""

from __future__ import annotations

import asyncio
import contextlib

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import EmbeddedNats
from pamspec_common.ids import subject_token
from pamspec_common.service import Service
from pamspec_common.telemetry import render_metrics, setup_metrics
from services.subscription.tests.world import (
    TENANT,
    World,
    call,
    ok,
    refused,
    sequences,
    sse,
    started,
    subscribed,
    until,
)


async def test_hints_may_be_doubled_reordered_and_lost(world: World) -> None:
    """B38, B66: every event once, in order, whatever the bus does."""
    service = await world.service(heads_interval_s=30.0)
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse")
    async with world.served(service) as url, sse(url, name) as stream:
        await stream.frame()
        made = [one["ledger_sequence"] for one in await world.create(scope, 12)]
        await world.hint(scope, [made[0], made[0]])
        assert (await stream.event())["event"]["sequence"] == made[0]
        await world.hint(scope, [made[3], made[2], made[3], made[1], made[0]])
        assert [(await stream.event())["event"]["sequence"] for _ in range(3)] == made[1:4]
        await world.hint(scope, [made[11], made[8]])
        frames = [await stream.event() for _ in range(8)]
        assert [frame["event"]["sequence"] for frame in frames] == made[4:]
        assert [frame["prev_sequence"] for frame in frames] == made[3:11]
        more = [one["ledger_sequence"] for one in await world.create(scope, 2)]
        await world.hint(scope, more)
        assert [(await stream.event())["event"]["sequence"] for _ in range(2)] == more


async def test_a_message_that_is_no_event_changes_nothing(world: World) -> None:
    """B49: neither invalid JSON nor another event under this header gets through; the ledger fills the place."""
    service = await world.service(heads_interval_s=0.3)
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse", filter={"object_type": "claim"})
    async with world.served(service) as url, sse(url, name) as stream:
        at = (await stream.frame())["progress"]
        assert world.publisher is not None
        tokens = f"{subject_token(TENANT)}.{subject_token(TENANT, scope)}"
        for data in (b"{", b"[]", b"", b'{"sequence":1,"event_type":"object_created"}'):
            for headers in ({"Pamspec-Ledger-Epoch": "1", "Pamspec-Ledger-Sequence": str(at + 1)}, {}, None):
                await world.publisher.publish(f"pamspec.events.{tokens}.object_created", data, headers=headers)
        await world.publisher.flush()
        made = [one["ledger_sequence"] for one in await world.create(scope, 2)]
        await world.hint(scope, made[1:])
        assert [(await stream.event())["event"]["sequence"] for _ in range(2)] == made


async def test_a_lost_tail_is_found_by_comparing_heads(world: World, service: Service) -> None:
    """B16: no hint ever arrives, and readiness shows the distance while it lasts."""
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse")
    waiting = await subscribed(service, scope)
    async with world.served(service) as url, sse(url, name) as stream:
        await stream.frame()
        poll = asyncio.create_task(ok(service, "poll", {"subscription_id": waiting, "wait_ms": 20_000}))
        made: list[int] = []

        async def distance_shows() -> object:
            made.extend(one["ledger_sequence"] for one in await world.create(scope, 1))
            heads = next(part for part in (await service.ready())[1] if part.name == "heads")
            return heads.detail["lag"] > 0 and b"pamspec_subscription_lag" in render_metrics()[0]

        setup_metrics()
        await until(distance_shows, 60)
        while (await stream.event(2))["event"]["sequence"] < made[-1]:
            continue
        assert sequences(await asyncio.wait_for(poll, 18))[-1] <= made[-1]
        parts = {part.name: part for part in (await service.ready())[1]}
        assert parts["heads"].ok
        assert parts["bus"].ok


async def test_without_any_bus_everything_still_arrives(quiet_world: World) -> None:
    world = quiet_world
    service = await world.service()
    ok_, parts = await service.ready()
    assert ok_
    assert [part.name for part in parts if not part.ok] == ["bus"]
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse")
    async with world.served(service) as url, sse(url, name) as stream:
        await stream.frame()
        for _ in range(3):
            made = [one["ledger_sequence"] for one in await world.create(scope, 3)]
            assert [(await stream.event(2))["event"]["sequence"] for _ in range(3)] == made


async def test_the_bus_dies_and_returns_under_a_channel(database: Database, nats_process: EmbeddedNats) -> None:
    assert nats_process.address is not None
    world = await started(database, nats_process.address)
    service = await world.service()
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse")
    async with world.served(service) as url, sse(url, name) as stream:
        await stream.frame()
        for action in (nats_process.stop, nats_process.start):
            await action()
            made = [one["ledger_sequence"] for one in await world.create(scope, 3)]
            assert [(await stream.event(5))["event"]["sequence"] for _ in range(3)] == made

        async def bus_is_back() -> object:
            return all(part.ok for part in (await service.ready())[1] if part.name == "bus")

        await until(bus_is_back)
        made = [one["ledger_sequence"] for one in await world.create(scope, 1)]
        await world.hint(scope, made)
        assert (await stream.event())["event"]["sequence"] == made[0]
    await world.stop()


async def test_hints_of_another_epoch_are_dropped_and_a_new_epoch_ends_channels(world: World) -> None:
    """B59: after a restore every old position is outdated, and the error says where to go on."""
    service = await world.service()
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse")
    waiting = await subscribed(service, scope)
    key = await world.scope_key(scope)
    other = await world.service()
    async with world.served(service) as url, sse(url, name) as stream:
        await stream.frame()
        made = [one["ledger_sequence"] for one in await world.create(scope, 2)]
        await world.hint(scope, made, epoch=2)
        while (await stream.event())["event"]["sequence"] < made[-1]:
            continue
        poll = asyncio.create_task(
            call(other, "poll", {"subscription_id": waiting, "after_sequence": made[-1], "wait_ms": 20_000})
        )

        async def is_waiting() -> object:
            return (await world.row(waiting))["channel_kind"] == "poll"

        await until(is_waiting)
        await world.admin.execute("UPDATE core.scope_head SET ledger_epoch = 2 WHERE scope_key = $1", key)
        while "ended" not in (frame := await stream.frame()):
            continue
        assert frame == {"ended": {"reason": "outdated", "last_sequence": made[-1]}, "ledger_epoch": 1}
        assert (await asyncio.wait_for(poll, 18)).status == 503
        error = await refused(other, "poll", {"subscription_id": name, "after_sequence": made[-1], "ledger_epoch": 1})
        assert error["details"] == {
            "reason": "position_outdated",
            "ledger_epoch": 2,
            "head_sequence": made[-1],
            "resume_after": (await world.row(name))["cursor_sequence"],
        }
        resume = error["details"]["resume_after"]
        page = await ok(other, "poll", {"subscription_id": name, "after_sequence": resume, "ledger_epoch": 2})
        assert page["ledger_epoch"] == 2
        async with sse(url, name, f"2-{resume}") as again:
            assert (await again.frame())["ledger_epoch"] == 2


async def test_many_followed_scopes_are_compared_in_one_query(world: World) -> None:
    """B41: channels over hundreds of scopes, none of which gets a hint."""
    service = await world.service(heads_interval_s=0.3)
    scopes = [await world.scope() for _ in range(80)]
    names = [await subscribed(service, scope) for scope in scopes]
    polls = [asyncio.create_task(ok(service, "poll", {"subscription_id": name, "wait_ms": 20_000})) for name in names]

    async def all_wait() -> object:
        query = "SELECT count(*) FROM subscription.subscription WHERE channel_kind = 'poll'"
        return await world.admin.fetchval(query) == len(names)

    await until(all_wait)
    made = await asyncio.gather(*(world.create(scope) for scope in scopes))
    pages = await asyncio.wait_for(asyncio.gather(*polls), 19)
    assert [sequences(page) for page in pages] == [[one["ledger_sequence"]] for (one,) in made]


async def test_a_filter_survives_every_reconnection(world: World, service: Service) -> None:
    """B64: neither a leak nor silence after the connection was cut, from the ledger and live."""
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse", filter={"object_type": "task"})
    async with world.served(service) as url:
        last = None
        for turn in range(3):
            async with sse(url, name, last) as stream:
                caught_up = await world.create(scope, 1, object_type="task") if turn else []
                await stream.frame()
                live = [*await world.create(scope, 2), *await world.create(scope, 1, object_type="task")]
                await world.hint(scope, [one["ledger_sequence"] for one in [*caught_up, *live]])
                for expected in [*caught_up, live[-1]]:
                    frame = await stream.event()
                    assert frame["event"]["event_id"] == expected["event_id"]
                last = stream.last_id
                with contextlib.suppress(OSError):
                    stream.response.close()
