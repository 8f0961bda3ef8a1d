"""From outbox to stream: everything, once, in order per scope, whatever order the ids became visible in."""

from __future__ import annotations

import asyncio
import json
import random

import asyncpg
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from pamspec_cli.servers.databases import Database
from services.relay.tests.conftest import StartRelay
from services.relay.tests.ledger_rows import Ledger, by_scope, expected, stored, until


async def test_every_event_is_stored_once_and_in_order_over_many_scopes(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    scopes = await ledger.add_scopes(200)
    chance = random.Random(7)
    for _ in range(10):
        await ledger.commit([chance.choice(scopes) for _ in range(300)])
    await start_relay()
    for _ in range(50):
        await ledger.commit([chance.choice(scopes) for _ in range(chance.choice((1, 3, 9, 40)))], client)
    await ledger.drained()
    assert by_scope(await stored(client)) == expected(scopes)


async def test_messages_carry_the_event_and_the_headers_of_the_contract(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    heard: asyncio.Queue[Msg] = asyncio.Queue()
    await client.subscribe("pamspec.events.>", cb=heard.put)
    (scope,) = await ledger.add_scopes(1)
    await ledger.commit([scope] * 12)
    await ledger.conn.execute("UPDATE core.scope_head SET ledger_epoch = 3")
    await start_relay()
    await ledger.drained()
    rows = await ledger.conn.fetch("SELECT sequence, event_id, event FROM core.ledger ORDER BY sequence")
    messages = await stored(client)
    assert [message.data for message in messages] == [row["event"] for row in rows]
    for message, row in zip(messages, rows, strict=True):
        assert message.headers["Pamspec-Event-Id"] == row["event_id"] == json.loads(message.data)["event_id"]
        assert message.headers["Pamspec-Ledger-Sequence"] == str(row["sequence"])
        assert message.headers["Pamspec-Ledger-Epoch"] == "3", "the epoch at publishing, not that of the commit"
        assert "Nats-Msg-Id" not in message.headers
    republished = [await asyncio.wait_for(heard.get(), 60) for _ in messages]
    assert [message.data for message in republished] == [message.data for message in messages]


async def test_a_late_commit_under_a_lower_id_is_not_passed_over(
    database: Database, ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    """B07, B09: the relay restarts between the commits, and no cursor over ids hides the lower ones."""
    slow, quick = await ledger.add_scopes(2)
    early = await asyncpg.connect(database.dsn)
    transaction = early.transaction()
    await transaction.start()
    await ledger.insert(ledger.rows([slow] * 3), early)
    await ledger.commit([quick] * 3)
    first = await start_relay()
    await ledger.drained()
    assert list(by_scope(await stored(client))) == [quick.scope_token]
    await first.stop()
    await start_relay()
    await ledger.commit([quick], client)
    await ledger.drained()
    await transaction.commit()
    await early.close()
    await ledger.commit([slow], client)
    await ledger.drained()
    assert by_scope(await stored(client)) == expected([slow, quick])


async def test_ids_that_were_rolled_back_are_no_obstacle(
    database: Database, ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    """B12."""
    scopes = await ledger.add_scopes(5)
    await start_relay()
    doomed = await asyncpg.connect(database.dsn)
    for round_ in range(20):
        transaction = doomed.transaction()
        await transaction.start()
        await doomed.execute(
            "INSERT INTO relay.outbox (partition, scope_key, sequence, event_id, ledger_epoch, subject, message)"
            " SELECT 0, $1, 1000000 + n, 'evt:never', 1, 'pamspec.ledger.0.a.b.c', '' FROM generate_series(1, 500) n",
            scopes[0].scope_key,
        )
        await ledger.commit(scopes, client if round_ % 2 else None)
        await transaction.rollback()
    await doomed.close()
    await ledger.drained()
    assert by_scope(await stored(client)) == expected(scopes)


async def test_a_lost_wake_up_costs_one_poll_interval(ledger: Ledger, client: Client, start_relay: StartRelay) -> None:
    (scope,) = await ledger.add_scopes(1)
    await start_relay(relay_poll_ms=50)
    await ledger.commit([scope])
    await ledger.drained(5)
    await ledger.commit([scope])
    await ledger.drained(5)
    assert by_scope(await stored(client)) == expected([scope])


async def test_a_wake_up_spares_the_poll_interval(ledger: Ledger, client: Client, start_relay: StartRelay) -> None:
    (scope,) = await ledger.add_scopes(1)
    await start_relay(relay_poll_ms=60_000, relay_stream_check_ms=60_000)
    await ledger.commit([scope], client)
    await ledger.drained(5)
    for _ in range(20):
        await ledger.commit([scope], client)
        await ledger.drained(5)
    assert by_scope(await stored(client)) == expected([scope])


async def test_batches_keep_to_their_bound_of_bytes(ledger: Ledger, client: Client, start_relay: StartRelay) -> None:
    scopes = await ledger.add_scopes(3)
    rows = [(*row[:3], row[3] + b" " * 60_000, *row[4:]) for row in ledger.rows(scopes * 10)]
    await ledger.insert(rows)
    await start_relay(relay_batch_bytes=1024 * 1024)
    await ledger.drained()
    messages = await stored(client)
    assert by_scope(messages) == expected(scopes)
    batches: dict[str, int] = {}
    for message in messages:
        batch = message.headers.get("Nats-Batch-Id", str(message.sequence))
        batches[batch] = batches.get(batch, 0) + len(message.data)
    assert len(batches) > 1
    assert max(batches.values()) <= 1024 * 1024


async def test_an_orderly_stop_finishes_what_is_in_flight_and_hands_over_at_once(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    scopes = await ledger.add_scopes(20)
    first = await start_relay(relay_lease_ms=60_000)
    for _ in range(20):
        await ledger.commit(scopes * 20)
    assert (await first.ready())[0]

    async def under_way() -> bool:
        return bool(await ledger.conn.fetchval("SELECT stream_seq > 0 FROM relay.position"))

    await until(under_way)
    await first.stop()
    assert not (await first.ready())[0]
    assert await ledger.depth() > 0
    position = await ledger.conn.fetchval("SELECT stream_seq FROM relay.position")
    assert position == len(await stored(client)), "nothing was left between the stream and the outbox"
    await start_relay(relay_lease_ms=60_000)
    await ledger.drained(10)
    assert by_scope(await stored(client)) == expected(scopes)


async def test_partitions_beyond_todays_number_are_still_served(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    old, new = (await ledger.add_scopes(1, partition=5)), (await ledger.add_scopes(1, partition=0))
    await ledger.commit([*old, *new])
    await start_relay(partitions=2)
    await ledger.drained()
    assert by_scope(await stored(client, 5)) == expected(old)
    assert by_scope(await stored(client, 0)) == expected(new)


async def test_the_outbox_does_not_grow_under_constant_load(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    """B20, scaled: rows come and go, the table reaches a plateau, nobody deadlocks."""
    scopes = await ledger.add_scopes(100)
    await start_relay()
    sizes = []
    for _ in range(6):
        for _ in range(10):
            await ledger.commit(scopes * 5, client)
        await ledger.drained()
        await ledger.conn.execute("VACUUM relay.outbox")
        sizes.append(await ledger.conn.fetchval("SELECT pg_relation_size('relay.outbox')"))
    assert max(sizes[2:]) <= max(sizes[:2]) * 1.5 + 8192
    assert await ledger.conn.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
    assert by_scope(await stored(client)) == expected(scopes)


async def test_depth_and_age_show_in_readiness(
    ledger: Ledger, start_relay: StartRelay, caplog: pytest.LogCaptureFixture
) -> None:
    (scope,) = await ledger.add_scopes(1)
    relay = await start_relay(relay_alert_depth=10, nats_url="nats://127.0.0.1:1", nats_nkey_seed=None)

    async def outbox() -> tuple[bool, int, float]:
        part = next(part for part in (await relay.ready())[1] if part.name == "outbox")
        return part.ok, part.detail["depth"], part.detail["oldest_s"]

    await ledger.commit([scope] * 5)

    async def counted() -> bool:
        return (await outbox())[1] == 5

    await until(counted)
    assert (await outbox())[0]
    await ledger.commit([scope] * 20)

    async def alarmed() -> bool:
        return not (await outbox())[0]

    await until(alarmed)
    assert (await outbox())[1] == 11, "the count stops just above the threshold"
    assert (await outbox())[2] > 0
    told = [record for record in caplog.records if getattr(record, "action", "") == "relay_outbox_lags"]
    assert len(told) == 1, "once for each time that it begins"
    assert (await relay.ready())[0], "a relay that waits for the bus is degraded, not gone"
