"""Start, readiness, wake-ups and stop of the service; every command that was taken gets its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import nats
import pytest
from pydantic import SecretStr

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common.bus import wake_subject
from pamspec_common.calls import Answer, Call
from pamspec_common.errors import ServiceUnavailable
from pamspec_common.internal import answer as run
from pamspec_common.principal import TokenSigner
from pamspec_write.app import build
from services.write.tests.test_faults import end_backends, waiting_backends
from services.write.tests.writer import AGENT, KEY, Writer, check_answer, claim, started, stopped, write_settings

Hold = Callable[[int], AbstractAsyncContextManager[None]]


async def test_a_commit_wakes_the_relay_of_its_partition(writer: Writer, write_bus: NatsAddress) -> None:
    listener = await nats.connect(write_bus.url, nkeys_seed_str=write_bus.service_seed)
    heard = await listener.subscribe(wake_subject(0))
    await listener.flush()
    deadline = time.monotonic() + 10
    while not any(part.name == "bus" and part.ok for part in (await writer.service.ready())[1]):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    for _ in range(50):
        await writer.create()
        try:
            message = await heard.next_msg(timeout=0.2)
            break
        except nats.errors.TimeoutError:
            continue
    else:
        raise AssertionError("no wake-up was heard")
    assert message.data == b""
    await listener.close()


async def test_nothing_is_done_for_an_unknown_caller(writer: Writer) -> None:
    body = b'{"scope_id":"%s"}' % writer.scope.encode()
    for token in ("", "k1.x.y", TokenSigner("k2", KEY).sign(AGENT), TokenSigner("k1", b"other").sign(AGENT)):
        for operation in writer.service.operations:
            answer = await run(writer.service.operations, Call(operation, token, body))
            check_answer(operation, answer)
            assert answer.status == 401


async def test_before_the_start_and_after_the_stop(database: Database, write_bus: NatsAddress) -> None:
    service = build(write_settings(database, write_bus))
    call = Call("create", TokenSigner("k1", KEY).sign(AGENT), b"{}")
    assert (await run(service.operations, call)).status == 503
    assert not (await service.ready())[0]
    await service.stop()
    await service.stop()
    writer = await started(database, write_settings(database, write_bus))
    assert (await writer.service.ready())[0]
    await stopped(writer)
    await writer.service.stop()
    for scope_id in (writer.scope, "scope:unknown"):
        assert (await writer.refused("create", claim(scope_id)))["code"] == "service_unavailable"


async def test_a_stop_finishes_what_waits(database: Database, write_bus: NatsAddress, hold: Hold) -> None:
    writer = await started(database, write_settings(database, write_bus))
    async with hold(await writer.scope_key()):
        tasks = [asyncio.create_task(writer.call("create", claim(writer.scope, n))) for n in range(30)]
        await waiting_backends(writer, 1)
        stopping = asyncio.create_task(writer.service.stop())
        await asyncio.sleep(0)
        late = asyncio.create_task(writer.call("create", claim(writer.scope)))
        assert (await late).status == 503
    assert {answer.status for answer in await asyncio.gather(*tasks)} == {201}
    await stopping
    assert await writer.count("core.version") == 30
    await writer.admin.close()


async def test_a_stop_is_bounded_and_answers_the_rest(database: Database, write_bus: NatsAddress, hold: Hold) -> None:
    writer = await started(database, write_settings(database, write_bus, drain_s=0.3, lock_timeout_ms=30_000))
    free = await writer.new_scope()
    async with hold(await writer.scope_key()):
        tasks = [
            asyncio.create_task(writer.call("create", claim(scope_id, n), key=str(n)))
            for n, scope_id in enumerate([writer.scope] * 10 + [free] * 10)
        ]
        await waiting_backends(writer, 1)
        began = time.monotonic()
        await writer.service.stop()
        assert time.monotonic() - began < 15
        async with asyncio.timeout(60):
            answers: list[Answer] = await asyncio.gather(*tasks)
    assert {answer.status for answer in answers[:10]} == {503}
    assert {answer.status for answer in answers[10:]} == {201}
    assert await writer.count("core.version") == 10
    await writer.admin.close()


async def test_a_start_without_a_store_says_so(database: Database, write_bus: NatsAddress) -> None:
    service = build(write_settings(database, write_bus, database_url=SecretStr("postgresql://x@127.0.0.1:1/x")))
    with pytest.raises(ServiceUnavailable):
        await service.start()
    await service.stop()


async def test_a_store_that_is_away_shows_in_readiness(
    database: Database, write_bus: NatsAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pamspec_write.handlers.outbox.SAMPLE_S", 0.05)
    writer = await started(database, write_settings(database, write_bus))
    await until_ready(writer, True)
    await writer.admin.execute(f'ALTER DATABASE "{database.name}" CONNECTION LIMIT 0')
    await end_backends(writer)
    await until_ready(writer, False)
    await writer.admin.execute(f'ALTER DATABASE "{database.name}" CONNECTION LIMIT -1')
    await until_ready(writer, True)
    await writer.create()
    await stopped(writer)


async def until_ready(writer: Writer, expected: bool) -> None:
    """Return when readiness says so."""
    deadline = time.monotonic() + 30
    while (await writer.service.ready())[0] is not expected:
        assert time.monotonic() < deadline, await writer.service.ready()
        await asyncio.sleep(0.02)


async def test_a_full_outbox_refuses_writes_until_it_drains(
    database: Database, write_bus: NatsAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pamspec_write.handlers.outbox.SAMPLE_S", 0.05)
    writer = await started(database, write_settings(database, write_bus, outbox_limit=3, outbox_alert=2))
    for _ in range(3):
        made = await writer.create()
    await until_ready(writer, False)
    for operation, document in (
        ("create", claim(writer.scope)),
        ("batch", {"scope_id": writer.scope, "items": [{"operation": "create", **claim(writer.scope)}]}),
    ):
        error = await writer.refused(operation, document)
        assert (error["code"], error["details"]["reason"]) == ("service_unavailable", "outbox_full")
    found = {"scope_id": writer.scope, "operation_id": made["operation_id"]}
    assert (await writer.ok("get_operation", found))["state"] == "committed"
    await writer.admin.execute("DELETE FROM relay.outbox")
    await until_ready(writer, True)
    await writer.create()
    await stopped(writer)


async def test_more_than_the_queue_holds_is_refused_at_once(
    database: Database, write_bus: NatsAddress, hold: Hold
) -> None:
    writer = await started(database, write_settings(database, write_bus, queue_limit=5))
    async with hold(await writer.scope_key()):
        tasks = [asyncio.create_task(writer.call("create", claim(writer.scope, n))) for n in range(8)]
        await waiting_backends(writer, 1)
    statuses = sorted(answer.status for answer in await asyncio.gather(*tasks))
    assert statuses == [201] * 5 + [503] * 3
    await stopped(writer)
