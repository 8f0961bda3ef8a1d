"""The bus or the store goes away and comes back: the relay waits, says so, and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from nats.aio.client import Client

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import EmbeddedNats
from pamspec_common.service import Part, Service
from services.relay.tests.conftest import StartProcess, StartRelay, owned_by
from services.relay.tests.ledger_rows import Ledger, Scope, by_scope, expected, stored, until


@asynccontextmanager
async def load(database: Database, scopes: list[Scope], every_s: float = 0.005) -> AsyncIterator[None]:
    """Commits to these scopes, one after another, until the end."""
    writer = Ledger(database.dsn)
    await writer.open()
    ending = asyncio.Event()

    async def write() -> None:
        number = 0
        while not ending.is_set():
            await writer.commit([scopes[number % len(scopes)], scopes[(number * 7) % len(scopes)]])
            number += 1
            await asyncio.sleep(every_s)

    task = asyncio.create_task(write())
    try:
        yield
    finally:
        ending.set()
        await task
        await writer.close()


async def more(ledger: Ledger, rows: int) -> None:
    """Wait until the ledger has so many more entries."""

    async def count() -> int:
        return int(await ledger.conn.fetchval("SELECT count(*) FROM core.ledger"))

    enough = await count() + rows

    async def grown() -> bool:
        return await count() >= enough

    await until(grown)


async def part(service: Service, name: str) -> Part:
    """One part of the readiness."""
    return next(part for part in (await service.ready())[1] if part.name == name)


async def whole(client: Client, ledger: Ledger, scopes: list[Scope]) -> None:
    """Wait for an empty outbox; the stream holds everything once and in order."""
    await ledger.drained()

    async def connected() -> bool:
        return client.is_connected

    await until(connected)
    assert by_scope(await stored(client)) == expected(scopes)


async def test_nats_killed_and_restarted_under_load(
    database: Database, ledger: Ledger, client: Client, start_relay: StartRelay, nats_process: EmbeddedNats
) -> None:
    scopes = await ledger.add_scopes(30)
    relay = await start_relay()
    async with load(database, scopes):
        for _ in range(3):
            await more(ledger, 100)
            nats_process.process.kill()

            async def noticed() -> bool:
                return not (await part(relay, "bus")).ok

            await until(noticed)
            await more(ledger, 100)
            assert await ledger.depth() >= 100
            await nats_process.start()
    await whole(client, ledger, scopes)


async def test_events_committed_while_the_bus_is_away_drain_in_order_afterwards(
    ledger: Ledger, client: Client, start_relay: StartRelay, nats_process: EmbeddedNats
) -> None:
    scopes = await ledger.add_scopes(30)
    await ledger.commit(scopes)
    relay = await start_relay(relay_alert_depth=1000)
    await ledger.drained()
    await nats_process.stop()
    for _ in range(10):
        await ledger.commit(scopes * 20)

    async def alarmed() -> bool:
        return not (await part(relay, "outbox")).ok

    await until(alarmed)
    await nats_process.start()
    await whole(client, ledger, scopes)

    async def well() -> bool:
        return (await part(relay, "outbox")).ok and (await part(relay, "partition_0")).ok

    await until(well)


async def test_a_relay_starts_without_a_bus_and_stops_without_one(
    ledger: Ledger, client: Client, start_relay: StartRelay, nats_process: EmbeddedNats
) -> None:
    (scope,) = await ledger.add_scopes(1)
    await ledger.commit([scope])
    await nats_process.stop()
    first, second = await start_relay(), await start_relay()
    assert not (await part(first, "bus")).ok
    await asyncio.wait_for(first.stop(), 60)
    await nats_process.start()
    await whole(client, ledger, [scope])
    await nats_process.stop()
    await asyncio.wait_for(second.stop(), 60)


async def test_sessions_with_the_store_that_end_under_load_lose_nothing(
    database: Database, ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    scopes = await ledger.add_scopes(30)
    await start_relay()
    async with load(database, scopes):
        for _ in range(8):
            await more(ledger, 40)
            await ledger.conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'pamspec-relay' AND datname = current_database()"
            )
    await whole(client, ledger, scopes)


async def test_a_store_that_refuses_the_relay_for_a_while(
    database: Database, ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    """Longer than the lease: it shows, and nobody has to do anything afterwards."""
    scopes = await ledger.add_scopes(5)
    relay = await start_relay(relay_lease_ms=300)
    await ledger.commit(scopes, client)
    await ledger.drained()
    admin = await asyncpg.connect(database.dsn)
    await admin.execute("REVOKE USAGE ON SCHEMA relay FROM pamspec_relay")

    async def shown() -> bool:
        return not (await part(relay, "store")).ok

    await until(shown)
    await ledger.commit(scopes)
    await admin.execute("GRANT USAGE ON SCHEMA relay TO pamspec_relay")
    await admin.close()
    await whole(client, ledger, scopes)
    await until(lambda: _ok(relay, "store"))


async def _ok(service: Service, name: str) -> bool:
    return (await part(service, name)).ok


async def test_everything_is_killed_now_and_then(
    database: Database, ledger: Ledger, client: Client, start_process: StartProcess, nats_process: EmbeddedNats
) -> None:
    scopes = await ledger.add_scopes(30)
    process = start_process()
    await owned_by(ledger, process)
    async with load(database, scopes):
        await more(ledger, 60)
        process.kill()
        process = start_process()
        await more(ledger, 60)
        nats_process.process.kill()
        process.kill()
        await more(ledger, 60)
        await nats_process.start()
        process = start_process()
        await owned_by(ledger, process)
        await more(ledger, 60)
        nats_process.process.kill()
        await nats_process.start()
        await more(ledger, 60)
    await whole(client, ledger, scopes)
