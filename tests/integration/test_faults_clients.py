"""Clients that don't read, locks that are held, pools that are empty, and wake-ups that never come."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import psutil

from pamspec_client.frames import Frame, decode
from pamspec_client.sse import SseParser
from tests.integration.checks import drained, whole
from tests.integration.harness import Fleet, until
from tests.integration.load import followed, items, make_scopes, notes
from tests.integration.wires import Wire

MIB = 1024 * 1024
SMALL_POOL = {"PAMSPEC_POOL_SIZE": "4", "PAMSPEC_POOL_WAIT_MS": "300", "PAMSPEC_LOCK_TIMEOUT_MS": "800"}
BOUND_S = 20.0
"""Within this every request is answered, whatever it waits for."""


@asynccontextmanager
async def held(fleet: Fleet, statement: str, *arguments: object) -> AsyncIterator[None]:
    """A transaction of somebody else that holds what this statement locks."""
    async with fleet.database() as connection, connection.transaction():
        await connection.execute(statement, *arguments)
        yield


async def ask(session: aiohttp.ClientSession, url: str, document: dict[str, Any]) -> tuple[int, str, str | None, float]:
    """Status, error code, Retry-After and seconds of one request, without retries."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with session.post(url, json=document) as answer:
        body = await answer.json()
        code = body.get("error", {}).get("code", "")
        return answer.status, code, answer.headers.get("Retry-After"), loop.time() - began


def refused_in_time(answers: list[tuple[int, str, str | None, float]]) -> None:
    """Every refusal is service_unavailable with a Retry-After, and nobody waited longer than the bound."""
    for status, code, retry_after, seconds in answers:
        assert seconds < BOUND_S
        if status >= 400:
            assert (status, code) == (503, "service_unavailable")
            assert retry_after is not None
            assert int(retry_after) >= 1


async def test_held_scopes_and_an_empty_pool_are_refused_in_time_and_leave_nothing_behind(fleet: Fleet) -> None:
    """M097, M090: sixteen scopes held for long; after the release everything goes on at once."""
    write = fleet.add("write", "write-3", SMALL_POOL)
    door = fleet.add("gateway", "gateway-3", {"PAMSPEC_WRITE_URL": write.url})
    async with fleet.extra(write, door), aiohttp.ClientSession(headers=fleet.headers) as session:
        scopes = await make_scopes(fleet.client(), "held", 20)
        busy, free = scopes[:16], scopes[16:]
        requests = [next(notes([scope_id], f"held-{scope_id}")) for scope_id in scopes for _ in range(3)]
        bodies = [{**request, "idempotency_key": f"{number}"} for number, request in enumerate(requests)]
        lock = (
            "SELECT FROM core.scope_head JOIN core.scope USING (scope_key) WHERE scope_id = ANY($1)"
            " FOR UPDATE OF scope_head"
        )
        async with held(fleet, lock, busy):
            calls = (ask(session, f"{door.url}/v1/create", body) for body in bodies)
            answers = await asyncio.gather(*calls)
        refused_in_time(answers)
        by_scope = dict(zip([(b["scope_id"], b["idempotency_key"]) for b in bodies], answers, strict=True))
        assert all(answer[0] == 503 for (scope_id, _), answer in by_scope.items() if scope_id in busy)
        assert any(answer[0] == 201 for (scope_id, _), answer in by_scope.items() if scope_id in free)
        again = await asyncio.gather(*(ask(session, f"{door.url}/v1/create", body) for body in bodies))
        assert [answer[0] for answer in again] == [201] * len(bodies)
        assert max(answer[3] for answer in again) < BOUND_S
    found = await whole(fleet, scopes)
    assert [len(found.created[scope_id]) for scope_id in scopes] == [3] * 20


async def test_readers_of_a_locked_table_are_refused_in_time_and_leave_nothing_behind(fleet: Fleet) -> None:
    """M090: queries that hang don't hold up reads by id, and neither wedges the pool."""
    client = fleet.client()
    (scope_id,) = await make_scopes(client, "unreadable", 1)
    made = await client.create(**next(notes([scope_id], "unreadable")))
    read: dict[str, Any] = {"scope_id": scope_id, "object_id": made.object_id}
    past = {"kind": "structured", "trust": "all", "as_of": {"recorded_at": made.envelope.recorded_at}}
    query: dict[str, Any] = {"scope_id": scope_id, "query": past}
    second = fleet.add("query", "query-2", SMALL_POOL)
    door = fleet.add("gateway", "gateway-3", {"PAMSPEC_QUERY_URL": second.url})
    async with fleet.extra(second, door), aiohttp.ClientSession(headers=fleet.headers) as session:
        reads, queries = [(f"{door.url}/v1/read", read)] * 25, [(f"{door.url}/v1/query", query)] * 25
        both = [*queries, *reads]
        async with held(fleet, "LOCK TABLE core.ledger IN ACCESS EXCLUSIVE MODE"):
            answers = await asyncio.gather(*(ask(session, url, body) for url, body in both))
        refused_in_time(answers)
        assert [answer[0] for answer in answers] == [503] * 25 + [200] * 25, "reads by id don't wait for queries"
        assert sorted(answer[3] for answer in answers[25:])[12] < 0.5
        async with held(fleet, "LOCK TABLE core.ledger, core.version IN ACCESS EXCLUSIVE MODE"):
            answers = await asyncio.gather(*(ask(session, url, body) for url, body in both))
        refused_in_time(answers)
        assert {answer[0] for answer in answers} == {503}
        again = await asyncio.gather(*(ask(session, url, body) for url, body in both))
        refused_in_time(again)
        await until_served(session, both)


async def until_served(session: aiohttp.ClientSession, requests: list[tuple[str, dict[str, Any]]]) -> None:
    """All at once are answered, if not the first time: on a busy machine a small pool refuses some, never for long."""
    async with asyncio.timeout(30):
        while {answer[0] for answer in await asyncio.gather(*(ask(session, *one) for one in requests))} != {200}:
            pass


class Deaf:
    """A client of a stream that reads nothing until it is told to."""

    def __init__(self, fleet: Fleet, subscription_id: str, after: int) -> None:
        address = urlsplit(fleet["gateway"].url)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect((address.hostname, address.port))
        lines = [
            f"GET /v1/subscriptions/{subscription_id}/stream HTTP/1.1",
            f"Host: {address.netloc}",
            f"Authorization: {fleet.headers['Authorization']}",
            f"Last-Event-ID: 1-{after}",
            "Connection: close",
        ]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())

    async def hear(self) -> list[Frame]:
        """Everything that was sent until the server ended it."""
        reader, writer = await asyncio.open_connection(sock=self._socket)
        try:
            received = await asyncio.wait_for(reader.read(), 60)
        finally:
            writer.close()
        head, _, body = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        return [decode(data) for data in SseParser().feed(_dechunked(body))]


def _dechunked(body: bytes) -> bytes:
    """The content of a chunked body, whole or broken off."""
    content = b""
    while (end := body.find(b"\r\n")) >= 0 and (size := int(body[:end], 16)):
        content += body[end + 2 : end + 2 + size]
        body = body[end + 2 + size + 2 :]
    return content


async def test_a_client_that_never_reads_costs_only_itself(fleet: Fleet) -> None:
    """B66: its channel ends in bounded memory; what it missed comes over the next one, without a hole."""
    client = fleet.client()
    (scope_id,) = await make_scopes(client, "deaf", 1)
    made = await client.subscribe(
        scope_id=scope_id,
        after_sequence=0,
        channel="sse",
        include_content=True,
        filter={"event_classes": ["object_created"]},
    )
    deaf = Deaf(fleet, made.subscription_id, 0)
    processes = [psutil.Process(fleet[name].process.pid) for name in ("subscription", "gateway")]
    before = [process.memory_info().rss for process in processes]
    big = notes([scope_id], "deaf", size=20_000)
    async with followed(lambda _: client, [scope_id], ("sse",)) as followers:
        for _ in range(15):
            await client.batch(scope_id=scope_id, items=items(big, 100))
        found = await whole(fleet, [scope_id])

        async def heard() -> bool:
            return len(followers.all[0].received) == 1500

        await until(heard, 60, "the other follower has everything")
        followers.expect(found)
    grown = [process.memory_info().rss - start for process, start in zip(processes, before, strict=True)]
    assert max(grown) < 96 * MIB, f"grown by {[size // MIB for size in grown]} MiB"
    await until(lambda: channel_left(fleet, made.subscription_id), 60, "the deaf channel ends")
    frames = await deaf.hear()
    sequences = [frame.decoded.sequence for frame in frames if frame.decoded is not None]
    wanted = [entry.sequence for entry in found.created[scope_id]]
    assert sequences == wanted[: len(sequences)], "no hole before its end"
    assert len(sequences) < len(wanted)
    rest = []
    async with client.follow(made.subscription_id, channel="sse", after_sequence=max(sequences, default=0)) as events:
        async for event in events:
            rest.append(event.sequence)
            if event.sequence == wanted[-1]:
                break
    assert sequences + rest == wanted


async def channel_left(fleet: Fleet, subscription_id: str) -> bool:
    """Whether no channel holds the subscription any more."""
    async with fleet.database() as connection:
        kind = await connection.fetchval(
            "SELECT channel_kind FROM subscription.subscription WHERE subscription_id = $1", subscription_id
        )
    return kind is None


async def test_streams_hold_no_connection_to_the_store(fleet: Fleet) -> None:
    """M092: two hundred open streams."""
    client = fleet.client()
    (scope_id,) = await make_scopes(client, "many", 1)
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pamspec-%'"
    async with followed(lambda _: client, [scope_id] * 200, ("sse",)) as followers:
        await client.create(**next(notes([scope_id], "many")))

        async def all_heard() -> bool:
            return all(follower.received for follower in followers.all)

        await until(all_heard, 30, "everybody hears the event")
        async with fleet.database() as connection:
            assert await connection.fetchval(count) <= 7 * 11, "no more than the pools of the processes"
        async with asyncio.timeout(60):
            await client.get_scope(scope_id=scope_id)


async def test_without_wake_ups_events_still_arrive_within_the_poll_interval(fleet: Fleet) -> None:
    """B16: the bus of one subscription process and of one write process is cut."""
    assert fleet.nats.address is not None
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(Wire.to(fleet.nats.address.url))
        subscription = fleet.add("subscription", "subscription-2", {"PAMSPEC_NATS_URL": wire.url})
        write = fleet.add("write", "write-3", {"PAMSPEC_NATS_URL": wire.url})
        urls = {"PAMSPEC_SUBSCRIPTION_URL": subscription.url, "PAMSPEC_WRITE_URL": write.url}
        door = fleet.add("gateway", "gateway-3", urls)
        await stack.enter_async_context(fleet.extra(subscription, write, door))
        client = fleet.client("gateway-3")
        (scope_id,) = await make_scopes(client, "unwoken", 1)
        more = notes([scope_id], "unwoken")
        async with followed(lambda _: client, [scope_id], ("poll", "sse", "websocket")) as followers:
            await client.create(**next(more))
            await until(lambda: all_have(followers.all, 1), 60, "events arrive by the bus")
            wire.cut()
            await until(lambda: bus_is_away(fleet), 60, "readiness says that the bus is away")
            seen_lag = asyncio.create_task(lag_shows(subscription.url))
            for number in range(2, 7):
                await client.create(**next(more))
                await drained(fleet, 60)
                await until(partial(all_have, followers.all, number), 60, "it arrives without the bus")
            await asyncio.wait_for(seen_lag, 60)
            wire.mend()
            await fleet.ready("gateway-3")
            await client.create(**next(more))
            await until(lambda: all_have(followers.all, 7), 60, "events arrive by the bus again")
        followers.expect(await whole(fleet, [scope_id]))


async def all_have(followers: list[Any], number: int) -> bool:
    return all(len(follower.received) == number for follower in followers)


async def bus_is_away(fleet: Fleet) -> bool:
    parts = (await fleet.readiness("gateway-3")).get("parts", {})
    assert isinstance(parts, dict)
    return not parts.get("subscription.bus", {"ok": True})["ok"]


async def lag_shows(url: str) -> None:
    """Returns when the gauge of the distance from the ledger has shown one."""
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{url}/metrics") as answer:
                text = await answer.text()
            values = [line.split()[-1] for line in text.splitlines() if line.startswith("pamspec_subscription_lag")]
            if any(float(value) > 0 for value in values):
                return
            await asyncio.sleep(0.01)
