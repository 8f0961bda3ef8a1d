"""A relay killed at each point between reading a row and forgetting it: nothing is lost, nothing is stored twice.

The points are real: a lock that the test holds keeps the statement where it is until SIGKILL has come.
"""

from __future__ import annotations

import asyncio
import random
import signal

import asyncpg
from nats.aio.client import Client

from pamspec_cli.servers.databases import Database
from pamspec_common import streams
from services.relay.tests.conftest import StartProcess, owned_by
from services.relay.tests.ledger_rows import Ledger, Scope, by_scope, expected, stored, until

LOCK_POSITION_SQL = "SELECT FROM relay.position WHERE partition = 0 FOR UPDATE"
LOCK_LAST_ROW_SQL = "SELECT FROM relay.outbox ORDER BY id DESC LIMIT 1 FOR UPDATE"
WAITS_SQL = """
SELECT count(*) > 0 FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'pamspec-relay' AND wait_event_type = 'Lock'
  AND query LIKE '%relay.outbox%'"""


async def last_sequence(client: Client) -> int:
    """How far the stream has come; 0 without a stream."""
    info = await streams.inspect(client, "PAMSPEC_LEDGER_0")
    return 0 if info is None else info.last_seq


async def reached(client: Client, sequence: int) -> None:
    """Wait until the stream has come that far."""

    async def there() -> bool:
        return await last_sequence(client) >= sequence

    await until(there)


async def waits(ledger: Ledger) -> None:
    """Wait until the relay's statement waits for a lock."""

    async def waiting() -> bool:
        return bool(await ledger.conn.fetchval(WAITS_SQL))

    await until(waiting)


async def lose_sessions(ledger: Ledger) -> None:
    """End what the killed relay left waiting in PostgreSQL, which would otherwise go on without it."""
    await ledger.conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'pamspec-relay'"
    )

    async def gone() -> bool:
        return not await ledger.conn.fetchval(WAITS_SQL)

    await until(gone)


async def positioned(ledger: Ledger) -> None:
    """Wait until partition 0 has a position."""

    async def there() -> bool:
        return bool(await ledger.conn.fetchval("SELECT count(*) FROM relay.position"))

    await until(there)


async def finished(ledger: Ledger, client: Client, scopes: list[Scope], start_process: StartProcess) -> None:
    """Another relay finishes; the stream holds everything once and in order."""
    start_process()
    await ledger.drained()
    assert by_scope(await stored(client)) == expected(scopes)


async def test_killed_after_publishing_before_the_delete(
    database: Database, ledger: Ledger, client: Client, start_process: StartProcess
) -> None:
    scopes = await ledger.add_scopes(7)
    first = start_process()
    await positioned(ledger)
    blocker = await asyncpg.connect(database.dsn)
    async with blocker.transaction():
        await blocker.execute(LOCK_POSITION_SQL)
        await ledger.commit(scopes * 3, client)
        await reached(client, 21)
        await waits(ledger)
        first.kill()
        await lose_sessions(ledger)
    await blocker.close()
    assert await ledger.depth() == 21
    await ledger.commit(scopes)
    await finished(ledger, client, scopes, start_process)


async def test_killed_after_the_delete_before_its_commit(
    database: Database, ledger: Ledger, client: Client, start_process: StartProcess
) -> None:
    scopes = await ledger.add_scopes(7)
    first = start_process()
    await positioned(ledger)
    position_lock, row_lock = await asyncpg.connect(database.dsn), await asyncpg.connect(database.dsn)
    async with row_lock.transaction():
        async with position_lock.transaction():
            await position_lock.execute(LOCK_POSITION_SQL)
            await ledger.commit(scopes * 3, client)
            await waits(ledger)
            await row_lock.execute(LOCK_LAST_ROW_SQL)

        async def deleting() -> bool:
            # It has the position by now and waits for the row.
            return bool(
                await ledger.conn.fetchval(
                    "SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
                    " WHERE a.application_name = 'pamspec-relay' AND a.datname = current_database()"
                    " AND l.relation = 'relay.outbox'::regclass AND l.mode = 'RowExclusiveLock'"
                    " AND a.wait_event_type = 'Lock'"
                )
            )

        await until(deleting)
        first.kill()
        await lose_sessions(ledger)
    await position_lock.close()
    await row_lock.close()
    assert await ledger.depth() == 21
    await finished(ledger, client, scopes, start_process)


async def test_killed_at_any_moment_of_a_drain(ledger: Ledger, client: Client, start_process: StartProcess) -> None:
    scopes = await ledger.add_scopes(40)
    chance = random.Random(11)
    for _ in range(4):
        await ledger.commit(scopes * 25)
        before = await last_sequence(client)
        process = start_process(relay_batch_messages=50)
        await reached(client, before + chance.randrange(1, 600))
        process.kill()
    await finished(ledger, client, scopes, start_process)


async def test_killed_in_the_middle_of_a_repair(ledger: Ledger, client: Client, start_process: StartProcess) -> None:
    scopes = await ledger.add_scopes(40)
    await ledger.commit(scopes * 50)
    first = start_process()
    await ledger.drained()
    first.kill()
    await client.request("$JS.API.STREAM.DELETE.PAMSPEC_LEDGER_0")
    await ledger.commit(scopes * 2)
    for sequence in (1, 700):
        process = start_process(relay_batch_messages=50)
        await reached(client, sequence)
        process.kill()
        assert 0 < await last_sequence(client) < 2000, "killed too late to be in the middle"
    await finished(ledger, client, scopes, start_process)


async def test_sigterm_under_load_leaves_nothing_in_between(
    ledger: Ledger, client: Client, start_process: StartProcess
) -> None:
    scopes = await ledger.add_scopes(40)
    await ledger.commit(scopes * 50)
    process = start_process(relay_batch_messages=100)
    await reached(client, 100)
    assert await asyncio.to_thread(process.end) == 0
    assert await ledger.conn.fetchval("SELECT stream_seq FROM relay.position") == await last_sequence(client)
    assert await ledger.depth() == 2000 - await last_sequence(client)
    await finished(ledger, client, scopes, start_process)


async def test_a_stopped_process_in_mid_batch_is_fenced_when_it_wakes(
    ledger: Ledger, client: Client, start_process: StartProcess
) -> None:
    """The 20 seconds of B10, scaled with the lease: another takes over, the sleeper wakes and changes nothing."""
    scopes = await ledger.add_scopes(30)
    await ledger.commit(scopes * 40)
    sleeper = start_process(relay_batch_messages=40)
    await reached(client, 41)
    sleeper.signal(signal.SIGSTOP)
    stopped_at = await last_sequence(client)
    heir = start_process()
    await owned_by(ledger, heir)
    await ledger.drained()
    assert by_scope(await stored(client)) == expected(scopes)
    assert stopped_at < 1200
    sleeper.signal(signal.SIGCONT)
    for _ in range(20):
        await ledger.commit(scopes, client)
        await ledger.drained()
    assert by_scope(await stored(client)) == expected(scopes)
    await owned_by(ledger, heir)
    heir.kill()
    await owned_by(ledger, sleeper)
    await ledger.commit(scopes, client)
    await ledger.drained()
    assert by_scope(await stored(client)) == expected(scopes)


async def test_a_stopped_process_holds_up_its_own_partition_alone(
    ledger: Ledger, client: Client, start_process: StartProcess
) -> None:
    """B10: of three relays one is stopped; the other partition goes on meanwhile, its own as soon as the lease ends."""
    first, second = await ledger.add_scopes(10, partition=0), await ledger.add_scopes(10, partition=1)
    relays = [start_process(partitions=2, relay_lease_ms=3000) for _ in range(3)]

    async def owners() -> dict[int, str]:
        rows = await ledger.conn.fetch("SELECT partition, owner FROM relay.lease WHERE expires_at > clock_timestamp()")
        return {row["partition"]: row["owner"] for row in rows}

    async def shared() -> bool:
        return len(set((await owners()).values())) == 2

    await until(shared)
    held = await owners()
    (sleeper,) = [relay for relay in relays if f"-{relay.pid}-" in held[0]]
    await ledger.commit(first * 50)
    sleeper.signal(signal.SIGSTOP)
    await ledger.commit([*first, *second] * 20)

    async def drained(partition: int) -> bool:
        waiting = "SELECT count(*) FROM relay.outbox WHERE partition = $1"
        return int(await ledger.conn.fetchval(waiting, partition)) == 0

    await until(lambda: drained(1))
    assert (await owners()).get(0, held[0]) == held[0], "the other partition did not wait for the lease to end"
    await ledger.drained()
    assert (await owners())[0] != held[0]
    sleeper.signal(signal.SIGCONT)
    await ledger.commit([*first, *second] * 5, client)
    await ledger.drained()
    assert by_scope(await stored(client, 0)) == expected(first)
    assert by_scope(await stored(client, 1)) == expected(second)
