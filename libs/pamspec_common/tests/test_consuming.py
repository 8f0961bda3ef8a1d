"""The consumer of the ledger: each entry once and in order, whatever the bus, its neighbours and its own end do."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import nats as nats_client
import pytest
import pytest_asyncio
from nats.aio.client import Client

from libs.pamspec_common.tests.consumption import PATIENT, SCHEMA, TABLES, Consumption, Remembering
from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import EmbeddedNats, NatsAddress
from pamspec_common import contracts, streams
from pamspec_common.consuming import queries
from pamspec_common.consuming.consumer import Consumer
from pamspec_common.consuming.model import Heard, Place, Poison, Span, heard, reach, sort_out
from services.relay.tests.ledger_rows import Ledger, until


async def _quiet(error: Exception) -> None:
    """Servers are killed here on purpose."""


@pytest_asyncio.fixture(loop_scope="session")
async def client(nats: NatsAddress) -> AsyncIterator[Client]:
    connection = await nats_client.connect(
        nats.url, nkeys_seed_str=nats.service_seed, max_reconnect_attempts=-1, reconnect_time_wait=0.05, error_cb=_quiet
    )
    yield connection
    await connection.close()


@pytest_asyncio.fixture(loop_scope="session")
async def world(database: Database, nats: NatsAddress, client: Client) -> AsyncIterator[Consumption]:
    ledger = Ledger(database.dsn)
    await ledger.open()
    found = Consumption(
        ledger, client, {"database_url": database.dsn, "nats_url": nats.url, "nats_nkey_seed": nats.service_seed}
    )
    await found.open()
    yield found
    await ledger.close()


def place(taken: int = 0, head: int = 100, epoch: int = 1) -> Place:
    return Place(7, epoch, head, taken, epoch if taken else 0)


def message(sequence: int, epoch: int = 1, token: str = "a") -> Heard:
    return Heard(token, epoch, sequence, f"evt:{sequence}", "object_created", b"{}")


class TestModel:
    def test_what_was_taken_is_dropped_and_what_follows_is_new(self) -> None:
        found = sort_out([message(n) for n in (4, 3, 5, 5, 2)], {"a": place(taken=3)})
        assert [entry.sequence for entry in found.entries] == [4, 5]
        assert found.dropped == 3
        assert not found.holes

    def test_a_hole_is_read_from_the_ledger_up_to_the_last_that_was_heard(self) -> None:
        assert sort_out([message(9), message(6)], {"a": place(taken=3)}).holes == [Span(7, 3, 9)]

    @pytest.mark.parametrize(
        ("told", "at"),
        [
            (message(4, epoch=2), place(3)),
            (message(101), place(3)),
            (message(4, token="b"), place(3)),
            (message(4), Place(7, 2, 100, 3, 1)),
        ],
        ids=["another epoch", "beyond the head", "another scope", "a restored ledger"],
    )
    def test_what_the_ledger_does_not_know_is_dropped(self, told: Heard, at: Place) -> None:
        found = sort_out([told], {"a": at})
        assert (found.entries, found.holes, found.dropped) == ([], [], 1)

    def test_any_arrival_order_gives_the_same_entries(self) -> None:
        rng = random.Random(7)
        for _ in range(200):
            last = rng.randrange(1, 12)
            arrived = [message(n) for n in range(1, last + 1) for _ in range(rng.randrange(1, 3))]
            rng.shuffle(arrived)
            found = sort_out(arrived, {"a": place()})
            assert [entry.sequence for entry in found.entries] == list(range(1, last + 1))
            assert reach(found.entries) == {7: (0, last)}

    def test_a_message_that_is_no_entry_says_nothing(self) -> None:
        subject = "pamspec.ledger.0.tenant.scope.object_created"
        assert heard(subject, None, b"") is None
        assert heard(subject, {"Pamspec-Ledger-Sequence": "x"}, b"") is None
        assert heard("pamspec.ledger.0", {}, b"") is None


STATEMENTS = [name for name in vars(queries) if name.endswith("_SQL")]


@pytest.mark.parametrize("name", STATEMENTS)
async def test_every_statement_prepares_as_a_service_role(database: Database, name: str) -> None:
    conn = await asyncpg.connect(database.role("delegation"), server_settings={"search_path": "delegation"})
    await conn.prepare(getattr(queries, name))
    await conn.close()


async def test_a_services_migration_carries_the_same_tables(world: Consumption) -> None:
    columns = """
    SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns
    WHERE table_schema = $1 AND table_name IN ('inbox', 'parked', 'lease', 'member') ORDER BY 1, 2"""
    own = [tuple(row) for row in await world.ledger.conn.fetch(columns, SCHEMA)]
    assert own == [tuple(row) for row in await world.ledger.conn.fetch(columns, "delegation")]
    assert len({row[0] for row in own}) == TABLES.read_text().count("CREATE TABLE")


async def test_entries_take_effect_once_and_in_order_and_are_acknowledged(world: Consumption) -> None:
    scopes = await world.ledger.add_scopes(20)
    before = [await world.commit(scopes) for _ in range(5)]
    async with world.consumer(**PATIENT) as consumer:
        for rows in before:
            await world.publish(rows)
        await world.publish(await world.commit(scopes))
        await world.all_taken()
        await world.acknowledged()
        assert {part.name: part.ok for part in consumer.parts()} == {"partition_0": True, "inbox": True}


async def test_what_comes_twice_and_out_of_order_takes_effect_once_and_in_order(world: Consumption) -> None:
    scopes = await world.ledger.add_scopes(5)
    rows = [row for _ in range(20) for row in await world.commit(scopes)]
    mixed = rows * 2
    random.Random(3).shuffle(mixed)
    await world.publish(mixed)
    async with world.consumer(**PATIENT):
        await world.all_taken()
        await world.acknowledged()
        await world.publish(rows)
        await world.acknowledged()
        await world.all_taken()


async def test_a_hole_is_filled_from_the_ledger(world: Consumption) -> None:
    scopes = await world.ledger.add_scopes(2)
    async with world.consumer(**PATIENT):
        await world.pulling()
        for _ in range(30):
            await world.commit(scopes)
        await world.publish(await world.commit(scopes))
        await world.all_taken()


async def test_a_lost_tail_is_found_without_any_later_event(world: Consumption) -> None:
    """B45."""
    scopes = await world.ledger.add_scopes(2)
    async with world.consumer():
        await world.pulling()
        await world.commit(scopes)
        await world.all_taken()


async def test_a_message_that_is_no_entry_is_passed_over_and_the_ledger_gives_what_it_hid(world: Consumption) -> None:
    scopes = await world.ledger.add_scopes(1)
    async with world.consumer():
        await world.pulling()
        [row] = await world.commit(scopes)
        await world.client.request(row[4], b"not an event", timeout=30)
        await world.publish(await world.commit(scopes))
        await world.all_taken()
        await world.acknowledged()


async def test_of_two_owners_of_a_partition_one_takes_each_entry_in(world: Consumption) -> None:
    """Leases that overlap: both processes believe that they own the partition, and get every entry."""
    scopes = await world.ledger.add_scopes(10)
    effects = Remembering(), Remembering()
    async with world.consumer(effects[0]):
        await until(lambda: _held(world), 60)
        await world.ledger.conn.execute(
            f"UPDATE {SCHEMA}.lease SET expires_at = clock_timestamp() + interval '5 minutes', owner = 'somebody'"
        )
        await world.ledger.conn.execute(f"DELETE FROM {SCHEMA}.lease")
        async with world.consumer(effects[1]):
            for _ in range(30):
                await world.publish(await world.commit(scopes))
                await world.ledger.conn.execute(f"DELETE FROM {SCHEMA}.lease")
            await world.all_taken()


async def _held(world: Consumption) -> bool:
    count: int = await world.ledger.conn.fetchval(f"SELECT count(*) FROM {SCHEMA}.lease WHERE expires_at > now()")
    return count == 1


async def test_an_owner_that_sleeps_through_its_lease_takes_nothing_in_twice(world: Consumption) -> None:
    """It wakes up inside its transaction, after another has taken the same entries in."""
    scopes = await world.ledger.add_scopes(3)
    slow = Remembering()
    slow.gate.clear()
    async with world.consumer(slow, lock_timeout_ms=500):
        await world.publish(await world.commit(scopes))
        async with asyncio.timeout(60):
            await slow.entered.wait()
        async with world.consumer(lock_timeout_ms=500):
            await world.publish(await world.commit(scopes))
            slow.gate.set()
            await world.all_taken()


async def test_partitions_are_shared_and_a_leaver_hands_over_at_once(world: Consumption) -> None:
    """B50: the consumer of who leaves stays, and what is committed afterwards arrives once."""
    for partition in (1, 2, 3):
        await streams.ensure(world.client, contracts.streams().stream_request("ledger", partition))
        await world.ledger.add_scopes(1, partition)
    long: dict[str, Any] = {"consumer_lease_ms": 300_000, "partitions": 4}

    def holds(consumer: Consumer) -> int:
        return sum(part.name.startswith("partition_") for part in consumer.parts())

    async with world.consumer(**long) as first:
        await until(lambda: _is(holds(first) == 4), 60)
        async with world.consumer(**long) as second:
            await until(lambda: _is(holds(first) == holds(second) == 2), 60)
        await until(lambda: _is(holds(first) == 4), 60)
        await world.publish(await world.commit(world.ledger.scopes))
        await world.all_taken()


async def test_what_died_before_the_stores_clock_jumped_back_is_not_waited_for(world: Consumption) -> None:
    """Its lease and its share seem to last for another hour."""
    scopes = await world.ledger.add_scopes(2)
    for statement in (
        f"INSERT INTO {SCHEMA}.lease (partition, owner, expires_at) VALUES (0, 'dead', now() + interval '1 hour')",
        f"INSERT INTO {SCHEMA}.member (owner, expires_at) VALUES ('dead', now() + interval '1 hour')",
    ):
        await world.ledger.conn.execute(statement)
    async with world.consumer():
        await world.publish(await world.commit(scopes))
        await world.all_taken()


async def _is(answer: bool) -> bool:
    return answer


async def test_killed_between_effect_and_acknowledgement_it_takes_nothing_in_twice(
    world: Consumption, tmp_path: Path
) -> None:
    """B47."""
    scopes = await world.ledger.add_scopes(5)
    for _ in range(3):
        await world.publish(await world.commit(scopes))
    mark = tmp_path / "about to acknowledge"
    arguments = [str(world.settings[name]) for name in ("database_url", "nats_url", "nats_nkey_seed")]
    script = Path(__file__).with_name("consumer_that_hangs.py")
    child = subprocess.Popen([sys.executable, str(script), *arguments, str(mark)])  # noqa: ASYNC220
    try:
        await until(lambda: _is(mark.exists() or child.poll() is not None), 60)
        assert child.poll() is None
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(30)
    assert (await world.info())["num_ack_pending"] > 0
    async with world.consumer():
        await world.publish(await world.commit(scopes))
        await world.all_taken()


async def test_a_purged_stream_loses_nothing(world: Consumption) -> None:
    scopes = await world.ledger.add_scopes(3)
    async with world.consumer():
        await world.publish(await world.commit(scopes))
        await world.all_taken()
    await world.publish(await world.commit(scopes))
    await world.client.request("$JS.API.STREAM.PURGE.PAMSPEC_LEDGER_0", b"", timeout=30)
    async with world.consumer():
        await world.all_taken()
        await world.publish(await world.commit(scopes))
        await world.all_taken()


@pytest.mark.parametrize("lost", ["CONSUMER.DELETE.PAMSPEC_LEDGER_0.delegation_0", "STREAM.DELETE.PAMSPEC_LEDGER_0"])
async def test_a_deleted_consumer_or_stream_is_made_again(world: Consumption, lost: str) -> None:
    """B34."""
    scopes = await world.ledger.add_scopes(2)
    async with world.consumer():
        await world.pulling()
        await world.publish(await world.commit(scopes))
        await world.all_taken()
        await world.client.request(f"$JS.API.{lost}", b"", timeout=30)
        await world.commit(scopes)
        await streams.ensure(world.client, contracts.streams().stream_request("ledger", 0))
        await world.pulling()
        await world.publish(await world.commit(scopes))
        await world.all_taken()
        await world.acknowledged()


async def test_without_the_bus_the_ledger_feeds_it(world: Consumption, nats_process: EmbeddedNats) -> None:
    scopes = await world.ledger.add_scopes(2)
    async with world.consumer() as consumer:
        await world.pulling()
        await nats_process.stop()
        await world.commit(scopes)
        await world.all_taken()
        assert all(part.ok for part in consumer.parts())
        await nats_process.start()
        await world.pulling()
        await world.publish(await world.commit(scopes))
        await world.all_taken()


@pytest.mark.parametrize("kind", ["poison", "defect"])
async def test_what_an_effect_cannot_take_is_parked_listed_and_replayed(world: Consumption, kind: str) -> None:
    scopes = await world.ledger.add_scopes(3)
    rows = [row for _ in range(4) for row in await world.commit(scopes)]
    bad = rows[4]
    effect = Remembering()
    getattr(effect, kind).add(bad[2])
    async with world.consumer(effect) as consumer:
        await world.publish(rows)
        await until(lambda: _parked(consumer, 1), 60)
        [parked] = await consumer.parked()
        assert (parked.scope_key, parked.sequence, parked.event_id) == bad[:3]
        assert parked.reason == ("not to be taken" if kind == "poison" else "KeyError")
        await until(lambda: _is(not next(p for p in consumer.parts() if p.name == "inbox").ok), 60)
        await world.publish(await world.commit(scopes))
        wanted = {scope.scope_key: scope.last_seq for scope in scopes}

        async def others() -> bool:
            found = {key: entries[-1][0] for key, entries in (await world.taken()).items()}
            return found == wanted

        await until(others, 60)
        assert sum(len(entries) for entries in (await world.taken()).values()) == len(rows) + 3 - 1
        with pytest.raises(Poison if kind == "poison" else KeyError):
            await consumer.replay(bad[0], bad[1])
        assert len(await consumer.parked()) == 1
        getattr(effect, kind).clear()
        assert await consumer.replay(bad[0], bad[1])
        assert not await consumer.replay(bad[0], bad[1])
        assert await consumer.parked() == []
        assert (bad[1], bad[2]) in (await world.taken())[bad[0]]


async def test_what_operators_ask_for_is_carried_out(world: Consumption) -> None:
    """Replay and skip by marks in the store: one that fails again stays, with its mark taken away; others are done."""
    scopes = await world.ledger.add_scopes(3)
    rows = [row for _ in range(2) for row in await world.commit(scopes)]
    effect = Remembering(poison={row[2] for row in rows[3:]})
    ask = f"UPDATE {SCHEMA}.parked SET asked = $3, asked_at = clock_timestamp() WHERE scope_key = $1 AND sequence = $2"
    async with world.consumer(effect) as consumer:
        await world.publish(rows)
        await until(lambda: _parked(consumer, 3), 60)
        await world.ledger.conn.execute(ask, *rows[3][:2], "replay")
        marked = f"SELECT count(*) FROM {SCHEMA}.parked WHERE asked IS NOT NULL"
        await until(lambda: _none(world, marked), 60)
        assert len(await consumer.parked()) == 3
        effect.poison.discard(rows[4][2])
        await world.ledger.conn.execute(ask, *rows[4][:2], "replay")
        await world.ledger.conn.execute(ask, *rows[5][:2], "skip")
        await until(lambda: _parked(consumer, 1), 60)
        taken = await world.taken()
        assert (rows[4][1], rows[4][2]) in taken[rows[4][0]]
        assert (rows[5][1], rows[5][2]) not in taken[rows[5][0]]
        [left] = await consumer.parked()
        assert (left.scope_key, left.sequence, left.reason) == (*rows[3][:2], "not to be taken")


async def _none(world: Consumption, count: str) -> bool:
    return bool(await world.ledger.conn.fetchval(count) == 0)


async def _parked(consumer: Consumer, count: int) -> bool:
    return len(await consumer.parked()) == count


async def test_a_restored_ledger_takes_effect_anew(world: Consumption) -> None:
    [scope] = await world.ledger.add_scopes(1)
    for _ in range(5):
        await world.commit([scope])
    async with world.consumer():
        await world.all_taken()
        old = world.ledger.rows([scope])
        scope.events.pop()
        scope.last_seq -= 1
        await world.ledger.conn.execute("UPDATE core.scope_head SET ledger_epoch = 2")
        await world.publish(old)

        async def anew() -> bool:
            epochs = await world.ledger.conn.fetch(f"SELECT ledger_epoch FROM {SCHEMA}.inbox")
            return [row[0] for row in epochs] == [2]

        await until(anew, 60)
        await world.publish(await world.commit([scope]), epoch=2)
        await world.all_taken()
