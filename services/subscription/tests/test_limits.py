"""Bounds: slow clients, many clients, large pages, long stretches without a match."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import orjson

from pamspec_common.service import Service
from services.subscription.tests.asgi_client import SlowClient
from services.subscription.tests.world import World, call, ok, sequences, sse, subscribed, until


async def test_a_slow_client_reads_from_the_ledger_and_misses_nothing(world: World) -> None:
    """B66: what no longer fits the buffer comes from the ledger."""
    service = await world.service(channel_buffer=5, channel_stall_s=20.0)
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse")
    client = SlowClient(service, name)
    client.take(2)
    expected: list[int] = []
    for size in (1, 30, 4):
        made = [one["ledger_sequence"] for one in await world.create(scope, size)]
        await world.hint(scope, made)
        expected += made
    client.take(1000)

    async def all_there() -> object:
        return client.sequences == expected

    await until(all_there)
    frames = [frame for frame in client.frames if "event" in frame]
    assert [frame["prev_sequence"] for frame in frames[1:]] == expected[:-1]
    client.leave()
    await asyncio.wait_for(client.done, 60)


async def test_a_client_that_stays_too_slow_gets_an_end_with_its_last_sequence(world: World) -> None:
    service = await world.service(channel_buffer=5, channel_stall_s=20.0)
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse")
    client = SlowClient(service, name)
    client.take(1)
    while not client.done.done():
        made = [one["ledger_sequence"] for one in await world.create(scope, 20)]
        await world.hint(scope, made)
        taken = len(client.chunks)
        client.take(1)

        async def took_it(before: int = taken) -> object:
            return client.done.done() or len(client.chunks) > before

        await until(took_it)
    last = client.frames[-1]["ended"]
    assert last == {"reason": "too_slow", "last_sequence": client.sequences[-1]}
    later = SlowClient(service, name, f"1-{last['last_sequence']}")
    later.take(1000)
    head = await world.head(scope)

    async def all_there() -> object:
        return later.sequences and later.sequences[-1] == head

    await until(all_there)
    everything = client.sequences + later.sequences
    assert everything == list(range(everything[0], head + 1))
    later.leave()
    await later.done


async def test_a_client_that_takes_nothing_is_ended(world: World) -> None:
    """The others are not held up by it."""
    service = await world.service(channel_stall_s=0.5)
    scope = await world.scope()
    stuck, well = [await subscribed(service, scope, channel="sse") for _ in range(2)]
    client, other = SlowClient(service, stuck), SlowClient(service, well)
    client.take(1)
    other.take(1000)
    made = [one["ledger_sequence"] for one in await world.create(scope, 3)]
    await world.hint(scope, made)
    await asyncio.wait_for(client.done, 60)
    assert "ended" not in client.frames[-1]
    assert other.sequences[-3:] == made
    other.leave()
    await other.done
    assert (await world.row(stuck))["state"] == "open"
    page = await ok(service, "poll", {"subscription_id": stuck})
    assert sequences(page)[-3:] == made


async def test_a_socket_that_is_never_read_ends_its_channel(world: World) -> None:
    """The same over TCP, where buffers of the kernel and the server fill first."""
    service = await world.service(channel_stall_s=0.5)
    scope = await world.scope()
    name = await subscribed(service, scope, channel="sse", include_content=True)
    async with world.served(service) as url, sse(url, name) as stream:
        await stream.frame()
        for _ in range(4):
            await world.create(scope, 10, canonical_content="x" * 500_000)

        async def channel_gone() -> object:
            parts = {part.name: part for part in (await service.ready())[1]}
            return parts["channels"].detail["open"] == 0

        await until(channel_gone, 60)


async def test_hundreds_of_streams_hold_no_connection(world: World) -> None:
    """M092: connections to PostgreSQL stay within the pool, and operations still get one."""
    service = await world.service(pool_size=3)
    scope = await world.scope()
    names = [await subscribed(service, scope, channel="sse") for _ in range(120)]
    async with contextlib.AsyncExitStack() as stack:
        clients = [SlowClient(service, name) for name in names]
        for client in clients:
            stack.callback(client.leave)
            client.take(10_000)
        made = [one["ledger_sequence"] for one in await world.create(scope, 5)]
        await world.hint(scope, made)

        async def all_there() -> object:
            return all(client.sequences[-5:] == made for client in clients)

        await until(all_there, 60)
        connections = await world.admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pamspec-subscription'"
            " AND datname = current_database()"
        )
        assert connections <= 3
        assert (await ok(service, "poll", {"subscription_id": await subscribed(service, scope)}))["events"] == []
    await asyncio.wait_for(asyncio.gather(*(client.done for client in clients)), 60)


async def test_more_channels_than_a_process_takes_are_refused(world: World) -> None:
    service = await world.service(channel_limit=1)
    scope = await world.scope()
    first, second = [await subscribed(service, scope, channel="sse") for _ in range(2)]
    client = SlowClient(service, first)
    client.take(100)

    async def open_() -> object:
        return client.frames

    await until(open_)
    refused = SlowClient(service, second)
    refused.take(1)
    await asyncio.wait_for(refused.done, 60)
    assert refused.status == 503
    answer = await call(service, "poll", {"subscription_id": second, "wait_ms": 1000})
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert (await ok(service, "poll", {"subscription_id": second}))["closed"] is None
    client.leave()
    await client.done


async def seed(world: World, scope: str, count: int) -> None:
    """Ledger rows written straight into the table, each a copy of a real one under its own sequence."""
    await world.create(scope, 1)
    key = await world.scope_key(scope)
    await world.admin.execute(
        """
        INSERT INTO core.ledger
        SELECT scope_key, n, 'evt:' || n, event_type, subject_id, recorded_at, convert_to(replace(
          convert_from(event, 'UTF8'), '"sequence":' || sequence, '"sequence":' || n), 'UTF8'), entry_hash
        FROM core.ledger, generate_series($2::bigint, $3) n WHERE scope_key = $1 AND sequence = $2 - 1
        """,
        key,
        await world.head(scope) + 1,
        await world.head(scope) + count,
    )
    await world.admin.execute("UPDATE core.scope_head SET last_seq = last_seq + $2 WHERE scope_key = $1", key, count)


async def test_one_poll_passes_at_most_ten_thousand_rows(world: World, service: Service) -> None:
    scope = await world.scope()
    await seed(world, scope, 25_000)
    for wanted in ({"event_classes": ["object_deleted"]}, {"object_type": "task"}):
        name = await subscribed(service, scope, after_sequence=0, filter=wanted)
        head = await world.head(scope)
        after, steps = 0, []
        while after < head:
            page = await ok(service, "poll", {"subscription_id": name, "after_sequence": after, "wait_ms": 200})
            assert page["events"] == []
            steps.append(page["next_after_sequence"] - after)
            after = page["next_after_sequence"]
        assert steps[:2] == [10_000, 10_000]
        assert len(steps) == 3
        assert (await world.row(name))["cursor_sequence"] == 20_000


async def test_catch_up_pages_are_whole_and_in_order(world: World, service: Service) -> None:
    scope = await world.scope()
    await seed(world, scope, 12_345)
    name = await subscribed(service, scope, after_sequence=0, delivery={"batching_max_events": 900})
    seen: list[int] = []
    after = 0
    while True:
        answer = await call(
            service, "poll", {"subscription_id": name, "after_sequence": after, "max": 1000}, check=False
        )
        page = orjson.loads(answer.body)
        if not page["events"]:
            break
        assert len(page["events"]) <= 900
        seen += sequences(page)
        after = page["next_after_sequence"]
    assert seen == list(range(1, await world.head(scope) + 1))


async def test_a_page_ends_at_its_bytes(world: World, service: Service) -> None:
    """8 MiB, however many events were asked for; then it goes on."""
    scope = await world.scope()
    for _ in range(3):
        await world.create(scope, 4, canonical_content="x" * 1_000_000)
    name = await subscribed(service, scope, after_sequence=0, include_content=True)
    head = await world.head(scope)
    after, pages = 0, []
    while after < head:
        answer = await call(service, "poll", {"subscription_id": name, "after_sequence": after, "max": 1000})
        assert len(answer.body) <= 8 * 1024 * 1024 + 1_300_000
        page = orjson.loads(answer.body)
        assert set(page["envelopes"]) == {one["version_id"] for one in page["events"] if "version_id" in one}
        pages.append(len(page["events"]))
        after = page["next_after_sequence"]
    assert sum(pages) == head
    assert len(pages) == 2


async def test_content_comes_with_its_event_and_an_erased_one_as_its_tombstone(world: World, service: Service) -> None:
    """B54: nothing stops at an event whose content is gone."""
    scope = await world.scope()
    made = await world.create(scope, 3, canonical_content={"n": 1})
    gone = made[1]
    change: dict[str, Any] = {
        "scope_id": scope,
        "object_id": gone["object_id"],
        "expected_version_id": gone["version_id"],
        "policy_basis": "asked",
    }
    await world.written("delete", change)
    name = await subscribed(service, scope, after_sequence=0, include_content=True)
    page = await ok(service, "poll", {"subscription_id": name})
    contents = {key: value["canonical_content"] for key, value in page["envelopes"].items()}
    assert contents[made[0]["version_id"]] == {"n": 1}
    assert contents[gone["version_id"]] == {"tombstone": True}
    assert len(contents) == 4
    streamed = await subscribed(service, scope, after_sequence=0, include_content=True, channel="sse")
    async with world.served(service) as url, sse(url, streamed) as stream:
        frames = [await stream.event() for _ in range(4)]
        assert [frame["envelope"]["version_id"] for frame in frames] == [
            frame["event"]["version_id"] for frame in frames
        ]
        later = (await world.create(scope, 1, canonical_content="live"))[0]
        await world.hint(scope, range(later["ledger_sequence"] - 2, later["ledger_sequence"] + 1))
        while (frame := await stream.event())["event"]["event_id"] != later["event_id"]:
            continue
        assert frame["envelope"]["canonical_content"] == "live"


async def test_batches_grow_for_the_time_asked_for(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(
        service, scope, channel="sse", delivery={"batching_max_wait_ms": 400, "batching_max_events": 3}
    )
    client = SlowClient(service, name)
    client.take(1000)

    async def open_() -> object:
        return client.frames

    await until(open_)
    chunks = len(client.chunks)
    made = []
    for _ in range(5):
        made += [one["ledger_sequence"] for one in await world.create(scope, 1)]
        await world.hint(scope, made[-1:])

    async def all_there() -> object:
        return client.sequences == made

    await until(all_there)
    assert len(client.chunks) - chunks == 2
    client.leave()
    await client.done


async def test_a_waiting_poll_gathers_too(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope, delivery={"batching_max_wait_ms": 1000, "batching_max_events": 3})
    gathered = 0
    while gathered < 3:
        after = await world.head(scope)
        document = {"subscription_id": name, "after_sequence": after, "wait_ms": 9000}
        poll = asyncio.create_task(ok(service, "poll", document))

        async def poll_waits() -> object:
            parts = {part.name: part for part in (await service.ready())[1]}
            return parts["channels"].detail["open"] == 1

        await until(poll_waits)
        for _ in range(3):
            await world.hint(scope, [one["ledger_sequence"] for one in await world.create(scope, 1)])
        # A poll that looked at the ledger between two of the writes has answered at once.
        gathered = len((await poll)["events"])
