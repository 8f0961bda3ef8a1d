"""Who owns a partition: one relay at a time, another soon after a crash and at once after a stop."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
from nats.aio.client import Client

from pamspec_cli.servers.databases import Database
from pamspec_common import contracts, streams
from pamspec_common.service import Service
from pamspec_relay import queries
from pamspec_relay.model import Doubt, Entry, Position
from pamspec_relay.publisher import Publisher
from pamspec_relay.queries import Claim
from services.relay.tests.conftest import StartProcess, StartRelay, owned_by, owner_of
from services.relay.tests.ledger_rows import Ledger, by_scope, expected, stored, until

TTL = timedelta(seconds=30)


async def held(service: Service) -> set[str]:
    """The partitions that a relay owns."""
    return {part.name for part in (await service.ready())[1] if part.name.startswith("partition_")}


async def test_of_three_relays_started_at_once_exactly_one_owns_the_partition(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    """B25."""
    (scope,) = await ledger.add_scopes(1)
    for _ in range(20):
        relays = await asyncio.gather(*(start_relay() for _ in range(3)))
        await ledger.commit([scope, scope], client)
        await ledger.drained()
        owners = [relay for relay in relays if await held(relay)]
        assert len(owners) == 1
        await asyncio.gather(*(relay.stop() for relay in relays))
    assert by_scope(await stored(client)) == expected([scope])


async def test_after_sigkill_another_takes_over_within_the_lease(
    ledger: Ledger, client: Client, start_process: StartProcess
) -> None:
    scopes = await ledger.add_scopes(3)
    first = start_process()
    await owned_by(ledger, first)
    second = start_process()
    await ledger.commit(scopes, client)
    await ledger.drained()
    assert f"-{first.pid}-" in (await owner_of(ledger) or "")
    first.kill()
    await ledger.commit(scopes)
    await owned_by(ledger, second)
    await ledger.drained()
    assert by_scope(await stored(client)) == expected(scopes)


async def test_after_a_stop_another_takes_over_at_once(ledger: Ledger, client: Client, start_relay: StartRelay) -> None:
    (scope,) = await ledger.add_scopes(1)
    first = await start_relay(relay_lease_ms=60_000)
    await ledger.commit([scope])
    await ledger.drained()
    second = await start_relay(relay_lease_ms=60_000)
    await first.stop()
    stopped = time.monotonic()
    await ledger.commit([scope])
    await ledger.drained()
    assert await held(second) == {"partition_0"}
    assert time.monotonic() - stopped < 20, "far less than the lease"


async def test_relays_share_the_partitions_and_inherit_them(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    scopes = [scope for partition in range(4) for scope in await ledger.add_scopes(2, partition)]
    first = await start_relay(partitions=4)

    async def holds(relay: Service, count: int) -> bool:
        return len(await held(relay)) == count

    await until(lambda: holds(first, 4))
    second = await start_relay(partitions=4)
    await until(lambda: holds(second, 2))
    await until(lambda: holds(first, 2))
    assert not await held(first) & await held(second)
    await ledger.commit(scopes, client)
    await ledger.drained()
    await second.stop()
    await until(lambda: holds(first, 4))
    await ledger.commit(scopes, client)
    await ledger.drained()
    found = {token: rows for partition in range(4) for token, rows in by_scope(await stored(client, partition)).items()}
    assert found == expected(scopes)


async def test_no_advisory_locks_are_held(ledger: Ledger, client: Client, start_relay: StartRelay) -> None:
    """B24: nothing that a pooling proxy could strand."""
    scopes = await ledger.add_scopes(3)
    await start_relay()
    await ledger.commit(scopes, client)
    await ledger.drained()
    assert await ledger.conn.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


async def test_only_a_free_lease_can_be_taken_and_its_epoch_always_grows(ledger: Ledger) -> None:
    conn = ledger.conn
    first = await queries.take_lease(conn, 0, "a", TTL)
    assert first is not None
    assert await queries.take_lease(conn, 0, "b", TTL) is None
    assert await queries.fetch_free(conn, [0, 1]) == [1]
    await queries.release_lease(conn, Claim(0, first, "b"))
    assert await queries.take_lease(conn, 0, "b", TTL) is None, "only its owner gives it back"
    await queries.release_lease(conn, Claim(0, first, "a"))
    second = await queries.take_lease(conn, 0, "b", TTL)
    assert second is not None
    assert second > first
    assert await queries.renew_leases(conn, [Claim(0, first, "a")], "a", TTL) == set()
    await queries.finish_repair(conn, Claim(0, second, "b"), Position("now", 0, 0, 0), [])
    await conn.execute("DELETE FROM relay.lease")
    third = await queries.take_lease(conn, 0, "c", TTL)
    assert third is not None
    assert third > second, "also when the lease rows were lost"


async def test_an_owner_that_lost_its_lease_changes_nothing_in_the_store(ledger: Ledger) -> None:
    (scope,) = await ledger.add_scopes(1)
    conn = ledger.conn
    old = await queries.take_lease(conn, 0, "old", timedelta(0))
    assert old is not None
    zombie = Claim(0, old, "old")
    position = Position("then", 5, 0, 0)
    assert await queries.finish_repair(conn, zombie, position, [])
    await ledger.commit([scope] * 3)
    heir = Claim(0, await queries.take_lease(conn, 0, "heir", TTL) or 0, "heir")
    assert await queries.adopt_position(conn, heir) == position
    ids, entries = await queries.fetch_outbox(conn, heir, [], 10)
    assert len(entries) == 3
    assert await queries.fetch_outbox(conn, zombie, [], 10) == ([], [])
    assert await queries.settle(conn, zombie, "then", 8, ids) is None
    assert not await queries.settle_read_back(conn, zombie, "then", 8, [])
    assert not await queries.finish_repair(conn, zombie, Position("then", 9, 0, 0), [])
    assert await queries.adopt_position(conn, zombie) is None
    await queries.insert_mark(conn, zombie, "then", 9, TTL)
    assert await ledger.depth() == 3
    assert await conn.fetchval("SELECT count(*) FROM relay.mark") == 0
    assert await conn.fetchval("SELECT stream_seq FROM relay.position") == 5
    assert await queries.settle(conn, heir, "then", 8, ids) is not None
    assert await ledger.depth() == 0


@pytest.mark.parametrize("count", [1, 5, 200])
async def test_an_owner_that_lost_its_lease_is_fenced_by_the_stream(client: Client, count: int) -> None:
    await streams.ensure(client, contracts.streams().stream_request("ledger", 0))
    entries = [Entry("pamspec.ledger.0.t.s.object_created", f"evt:{n}", 1, n, b"{}") for n in range(1, count + 1)]
    heir, zombie = Publisher(client, 5.0), Publisher(client, 5.0)
    await heir.open()
    await zombie.open()
    assert await (await heir.send(heir.prepare(entries, 8), 0)) == count
    with pytest.raises(Doubt, match="10071"):
        await (await zombie.send(zombie.prepare(entries, 8), 0))
    assert len(await stored(client)) == count
    assert await (await heir.send(heir.prepare(entries, 8), count)) == 2 * count


async def test_without_any_answer_there_is_a_doubt_in_time(client: Client, database: Database) -> None:
    """B30: a refusal, a missing stream and a silent server end the wait."""
    publisher = Publisher(client, 0.2)
    await publisher.open()
    batch = publisher.prepare([Entry("pamspec.ledger.0.t.s.object_created", "evt:1", 1, 1, b"{}")], 8)
    with pytest.raises(Doubt, match="no stream"):
        await (await publisher.send(batch, 0))
    await client.subscribe("pamspec.ledger.>", cb=_silent)
    with pytest.raises(Doubt, match="in time"):
        await (await publisher.send(batch, 0))
    await publisher.close()


async def _silent(message: object) -> None:
    """Takes a message and answers nothing."""


async def test_what_died_before_the_stores_clock_jumped_back_is_not_waited_for(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    """Its lease and its share seem to last for another hour."""
    scopes = [*await ledger.add_scopes(1), *await ledger.add_scopes(1, partition=1)]
    await ledger.conn.execute(
        "INSERT INTO relay.lease (partition, owner, epoch, expires_at)"
        " VALUES (0, 'dead', 1, clock_timestamp() + interval '1 hour')"
    )
    await ledger.conn.execute("INSERT INTO relay.member VALUES ('dead', clock_timestamp() + interval '1 hour')")
    await ledger.commit(scopes)
    relay = await start_relay(partitions=2)
    await ledger.drained(60)
    assert await held(relay) == {"partition_0", "partition_1"}
