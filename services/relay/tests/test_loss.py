"""Loss on the bus: whatever a stream loses comes back from the ledger; expiry by age is no loss; a fork stops."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
from nats.aio.client import Client

from pamspec_cli.servers.nats import EmbeddedNats
from pamspec_common import streams
from pamspec_common.bus import ledger_subject
from pamspec_common.service import Part, Service
from services.relay.tests.conftest import StartRelay
from services.relay.tests.ledger_rows import Ledger, Scope, by_scope, expected, stored, until

STREAM = "PAMSPEC_LEDGER_0"


async def part(service: Service, name: str) -> Part | None:
    """One part of a relay's readiness."""
    return next((part for part in (await service.ready())[1] if part.name == name), None)


async def state(service: Service, partition: int = 0) -> str:
    """The state of a partition; empty when the relay doesn't own it."""
    found = await part(service, f"partition_{partition}")
    return "" if found is None else str(found.detail["state"])


async def draining(service: Service, partition: int = 0) -> None:
    """Wait until the relay drains the partition."""

    async def drains() -> bool:
        return await state(service, partition) == "publishing"

    await until(drains)


async def in_stream(client: Client, scopes: Sequence[Scope], timeout_s: float = 15.0) -> None:
    """Wait until the stream holds exactly what was committed, in order."""

    async def whole() -> bool:
        info = await streams.inspect(client, STREAM) if client.is_connected else None
        return info is not None and info.messages == sum(len(scope.events) for scope in scopes)

    await until(whole, timeout_s, 0.05)
    assert by_scope(await stored(client)) == expected(scopes)


def alarms(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the relay told operators."""
    return [getattr(record, "action", "") for record in caplog.records if record.levelname == "ERROR"]


async def test_a_stream_deleted_while_idle_is_made_again_and_refilled(
    ledger: Ledger, client: Client, start_relay: StartRelay, caplog: pytest.LogCaptureFixture
) -> None:
    """B36."""
    scopes = await ledger.add_scopes(20)
    await ledger.commit(scopes * 30)
    await start_relay()
    await ledger.drained()
    assert "relay_loss" not in alarms(caplog)
    await client.request(f"$JS.API.STREAM.DELETE.{STREAM}")
    await in_stream(client, scopes)
    assert "relay_loss" in alarms(caplog)
    await ledger.commit(scopes, client)
    await in_stream(client, scopes)


async def test_a_stream_deleted_under_load_keeps_the_order(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    scopes = await ledger.add_scopes(20)
    await start_relay(relay_stream_check_ms=60_000)
    for round_ in range(12):
        await ledger.commit(scopes * 10, client)
        if round_ in (4, 8):
            await client.request(f"$JS.API.STREAM.DELETE.{STREAM}")
    await ledger.drained()
    await in_stream(client, scopes)


async def test_rows_that_wait_go_behind_the_repaired_ones(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    scopes = await ledger.add_scopes(10)
    await ledger.commit(scopes * 5)
    first = await start_relay()
    await ledger.drained()
    await first.stop()
    await client.request(f"$JS.API.STREAM.DELETE.{STREAM}")
    await ledger.commit(scopes * 5)
    await start_relay(relay_batch_messages=20)
    await in_stream(client, scopes)


async def test_a_wiped_jetstream_directory_is_refilled(
    ledger: Ledger, client: Client, start_relay: StartRelay, nats_process: EmbeddedNats
) -> None:
    scopes = await ledger.add_scopes(20)
    await ledger.commit(scopes * 30)
    await start_relay()
    await ledger.drained()
    nats_process.process.kill()
    await ledger.commit(scopes)
    shutil.rmtree(nats_process.store)
    await nats_process.start()
    await in_stream(client, scopes)
    await ledger.drained()


async def test_an_older_copy_of_the_jetstream_directory_is_completed(
    ledger: Ledger, client: Client, start_relay: StartRelay, nats_process: EmbeddedNats, tmp_path: Path
) -> None:
    """The stream is the same and lacks its end, as after a power loss."""
    scopes = await ledger.add_scopes(20)
    await ledger.commit(scopes * 10)
    relay = await start_relay()
    await ledger.drained()
    await relay.stop()
    await nats_process.stop()
    shutil.copytree(nats_process.store, tmp_path / "older")
    await nats_process.start()
    relay = await start_relay()
    await ledger.commit(scopes * 10)
    await ledger.drained()
    await nats_process.stop()
    shutil.rmtree(nats_process.store)
    shutil.copytree(tmp_path / "older", nats_process.store)
    await ledger.commit(scopes)
    await nats_process.start()
    await in_stream(client, scopes)
    await ledger.drained()


@pytest.mark.parametrize("while_running", [True, False])
async def test_without_a_position_the_stream_does_not_grow(
    ledger: Ledger, client: Client, start_relay: StartRelay, *, while_running: bool
) -> None:
    """B18: neither a wiped position nor a wholly wiped memory makes the relay publish history again."""
    scopes = await ledger.add_scopes(20)
    await ledger.commit(scopes * 30)
    relay = await start_relay()
    await ledger.drained()
    if not while_running:
        await relay.stop()
    await ledger.conn.execute("TRUNCATE relay.position, relay.lease, relay.mark, relay.member")
    await ledger.commit(scopes, client)
    if not while_running:
        await start_relay()
    await ledger.drained()
    info = await streams.inspect(client, STREAM)
    assert info is not None
    assert info.last_seq == 620
    await in_stream(client, scopes)
    assert await ledger.conn.fetchval("SELECT stream_seq FROM relay.position") == 620


async def test_a_position_that_lies_behind_is_only_read_forward(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    scopes = await ledger.add_scopes(20)
    await ledger.commit(scopes * 30)
    relay = await start_relay()
    await ledger.drained()
    await relay.stop()
    await ledger.conn.execute("UPDATE relay.position SET stream_seq = 13")
    await ledger.commit(scopes)
    await start_relay()
    await ledger.drained()
    await in_stream(client, scopes)


@pytest.mark.parametrize("request_", [b"", b'{"keep":7}', b'{"seq":300}'], ids=["all", "keep", "upto"])
async def test_a_purge_is_loss(ledger: Ledger, client: Client, start_relay: StartRelay, request_: bytes) -> None:
    scopes = await ledger.add_scopes(20)
    await start_relay()
    await ledger.commit(scopes * 30, client)
    await ledger.drained()
    for _ in range(2):
        await client.request(f"$JS.API.STREAM.PURGE.{STREAM}", request_)

        async def whole() -> bool:
            info = await streams.inspect(client, STREAM)
            return info is not None and info.messages == 600

        await until(whole)
        found = by_scope(await stored(client))
        assert {token: sorted(rows) for token, rows in found.items()} == expected(scopes)
    await ledger.commit(scopes, client)
    await ledger.drained()


async def test_messages_removed_from_the_middle_are_loss(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    scopes = await ledger.add_scopes(20)
    await start_relay()
    await ledger.commit(scopes * 30, client)
    await ledger.drained()
    only = orjson.dumps({"filter": f"pamspec.ledger.0.*.{scopes[3].scope_token}.>"})
    await client.request(f"$JS.API.STREAM.PURGE.{STREAM}", only)
    await in_stream(client, scopes)


async def test_expiry_by_age_is_no_loss(
    ledger: Ledger, client: Client, start_relay: StartRelay, caplog: pytest.LogCaptureFixture
) -> None:
    scopes = await ledger.add_scopes(5)
    relay = await start_relay(stream_max_age_s=1)
    for _ in range(3):
        await ledger.commit(scopes * 4, client)
        await ledger.drained()

        async def expired() -> bool:
            info = await streams.inspect(client, STREAM)
            return info is not None and info.messages == 0

        await until(expired)
    before = await streams.inspect(client, STREAM)
    await relay.stop()
    await start_relay(stream_max_age_s=1)
    await ledger.commit(scopes, client)
    await ledger.drained()
    after = await streams.inspect(client, STREAM)
    assert before is not None
    assert after is not None
    assert after.last_seq == before.last_seq + 5, "only the new ones were published"
    assert "relay_loss" not in alarms(caplog)


async def test_what_is_older_than_the_stream_keeps_is_not_refilled(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    mixed, old, young = await ledger.add_scopes(3)
    await ledger.insert(ledger.rows([mixed] * 9 + [old] * 3), age=timedelta(days=8))
    await ledger.insert(ledger.rows([mixed] * 5 + [young] * 2))
    await ledger.conn.execute("DELETE FROM relay.outbox")
    await start_relay()

    async def whole() -> bool:
        info = await streams.inspect(client, STREAM)
        return info is not None and info.messages == 7

    await until(whole)
    found = by_scope(await stored(client))
    assert [sequence for sequence, _ in found[mixed.scope_token]] == [10, 11, 12, 13, 14]
    assert found[young.scope_token] == expected([young])[young.scope_token]
    assert old.scope_token not in found


def message(scope: Scope, sequence: int, event_id: str, epoch: int = 1) -> tuple[str, dict[str, str]]:
    """Subject and headers as of the relay."""
    tenant_token = scope.tenant_token
    subject = ledger_subject(scope.partition, tenant_token, scope.scope_token, "object_created")
    return subject, {
        "Pamspec-Event-Id": event_id,
        "Pamspec-Ledger-Sequence": str(sequence),
        "Pamspec-Ledger-Epoch": str(epoch),
    }


async def publish(client: Client, subject: str, data: bytes, headers: dict[str, str] | None) -> None:
    """Store a message as nobody but the relay should."""
    reply = orjson.loads((await client.request(subject, data, headers=headers)).data)
    assert "error" not in reply


Foreign = Callable[[Scope], tuple[str, dict[str, str] | None]]


@pytest.mark.parametrize(
    "foreign",
    [
        lambda scope: message(scope, 2, scope.events[1]),
        lambda scope: (f"pamspec.ledger.0.x.{scope.scope_token}.y", None),
        lambda scope: ("pamspec.ledger.0.short", {"Pamspec-Event-Id": "evt:1"}),
        lambda scope: message(scope, 1, "evt:of-another-epoch", epoch=7),
    ],
    ids=["a copy of ours", "without headers", "another subject", "another epoch"],
)
async def test_foreign_messages_in_the_stream_hold_up_nothing(
    ledger: Ledger, client: Client, start_relay: StartRelay, foreign: Foreign
) -> None:
    """B38, B49: the fence refuses, the relay reads back and goes on."""
    (scope,) = await ledger.add_scopes(1)
    await ledger.commit([scope] * 3)
    relay = await start_relay(relay_stream_check_ms=60_000)
    await ledger.drained()
    subject, headers = foreign(scope)
    await publish(client, subject, b"{", headers)
    await ledger.commit([scope] * 12, client)
    await ledger.drained()
    await draining(relay)
    ours = [
        item for item in await stored(client) if item.headers.get("Nats-Expected-Last-Sequence") or item.data != b"{"
    ]
    assert by_scope(ours) == expected([scope])


@pytest.mark.parametrize("beyond", [False, True], ids=["another event", "unknown to the ledger"])
async def test_a_fork_stops_its_partition_until_the_epoch_is_raised(
    ledger: Ledger, client: Client, start_relay: StartRelay, caplog: pytest.LogCaptureFixture, *, beyond: bool
) -> None:
    (forked,) = await ledger.add_scopes(1, partition=0)
    (other,) = await ledger.add_scopes(1, partition=1)
    await ledger.commit([forked] * 3 + [other])
    relay = await start_relay(partitions=2)
    await ledger.drained()
    subject, headers = message(forked, 99 if beyond else 3, "evt:from-a-lost-history")
    await publish(client, subject, b"{}", headers)
    await ledger.commit([forked, other], client)

    async def halted() -> bool:
        return await state(relay) == "halted"

    await until(halted)
    found = await part(relay, "partition_0")
    assert found is not None
    assert not found.ok
    assert "fork" in found.detail["reason"]
    assert "relay_halted" in alarms(caplog)
    await until(lambda: _depth_is(ledger, 1))
    await ledger.commit([other], client)
    await until(lambda: _depth_is(ledger, 1))
    assert [item.headers["Pamspec-Event-Id"] for item in await stored(client, 0)][-1] == "evt:from-a-lost-history"

    await client.request(f"$JS.API.STREAM.DELETE.{STREAM}")
    await ledger.conn.execute("UPDATE core.scope_head SET ledger_epoch = 2 WHERE scope_key = $1", forked.scope_key)
    await ledger.drained()
    await draining(relay)
    messages = await stored(client)
    assert by_scope(messages) == expected([forked])
    assert {item.headers["Pamspec-Ledger-Epoch"] for item in messages} == {"2"}


async def _depth_is(ledger: Ledger, rows: int) -> bool:
    return await ledger.depth() == rows


async def test_an_event_that_the_bus_cannot_take_stops_its_partition_alone(
    ledger: Ledger, client: Client, start_relay: StartRelay
) -> None:
    (large,) = await ledger.add_scopes(1, partition=0)
    (other,) = await ledger.add_scopes(1, partition=1)
    (row,) = ledger.rows([large])
    await ledger.insert([(*row[:3], b" " * (5 * 1024 * 1024), *row[4:])])
    relay = await start_relay(partitions=2)

    async def halted() -> bool:
        return await state(relay) == "halted"

    await until(halted)
    await ledger.commit([other], client)
    await until(lambda: _depth_is(ledger, 1))
    found = await part(relay, "partition_0")
    assert found is not None
    assert "max_payload" in found.detail["reason"]


async def test_a_stream_that_refuses_is_drained_as_soon_as_it_takes_again(
    ledger: Ledger, client: Client, start_relay: StartRelay, caplog: pytest.LogCaptureFixture
) -> None:
    """B30: no acknowledgement is awaited for ever, and the operator sees what differs."""
    scopes = await ledger.add_scopes(10)
    await ledger.commit(scopes * 10)
    relay = await start_relay()
    await ledger.drained()
    info = await streams.inspect(client, STREAM)
    assert info is not None
    full = {**info.config, "max_bytes": 1000, "discard": "new"}
    reply = await client.request(f"$JS.API.STREAM.UPDATE.{STREAM}", orjson.dumps(full))
    assert "error" not in orjson.loads(reply.data)
    await ledger.commit(scopes * 10, client)

    async def refused() -> bool:
        found = await part(relay, "partition_0")
        return found is not None and not found.ok and "drift" in found.detail and found.detail["state"] == "retrying"

    await until(refused)
    assert await ledger.depth() == 100
    assert "relay_stream_drift" in alarms(caplog)
    await client.request(f"$JS.API.STREAM.UPDATE.{STREAM}", orjson.dumps(dict(info.config)))
    await ledger.drained(10)
    await in_stream(client, scopes)
