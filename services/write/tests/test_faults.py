"""Held locks, moved states, crossing scopes, exhausted pools and lost connections: bounded, and nothing twice."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import asyncpg
import orjson
import pytest
import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common.telemetry import render_metrics, setup_metrics
from pamspec_write.handlers import commit as group_commit
from pamspec_write.queries import commit as commit_queries
from services.write.tests.writer import PROVENANCE, TENANT, Writer, claim, started, stopped, write_settings

Hold = Callable[[int], AbstractAsyncContextManager[None]]


async def waiting_backends(writer: Writer, count: int) -> None:
    """Return when that many transactions of the service wait for a lock."""
    deadline = time.monotonic() + 30
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while await writer.admin.fetchval(sql) < count:
        assert time.monotonic() < deadline, "nobody waits for a lock"
        await asyncio.sleep(0.005)


@pytest_asyncio.fixture(loop_scope="session")
async def impatient(database: Database, write_bus: NatsAddress) -> AsyncIterator[Writer]:
    """A service that waits three seconds for a lock or a connection."""
    writer = await started(database, write_settings(database, write_bus, lock_timeout_ms=3000, pool_wait_ms=3000))
    yield writer
    await stopped(writer)


async def test_a_held_scope_is_refused_in_time_and_the_others_go_on(impatient: Writer, hold: Hold) -> None:
    writer = impatient
    held = [writer.scope, *[await writer.new_scope() for _ in range(9)]]
    free = await writer.new_scope()
    for scope_id in (*held, free):
        await writer.ok("create", claim(scope_id))
    holders = [hold(await writer.scope_key(scope_id)) for scope_id in held]
    for holder in holders:
        await holder.__aenter__()
    began = time.monotonic()
    stuck = [
        asyncio.create_task(writer.call("create", claim(scope_id, number))) for number in range(10) for scope_id in held
    ]
    slowest = 0.0
    while not all(task.done() for task in stuck):
        before = time.monotonic()
        await writer.ok("create", claim(free))
        slowest = max(slowest, time.monotonic() - before)
    answers = await asyncio.gather(*stuck)
    assert time.monotonic() - began < 30
    assert slowest < 2.9
    for answer in answers:
        assert answer.status == 503
        assert orjson.loads(answer.body)["error"]["retryable"] is True
    for holder in holders:
        await holder.__aexit__(None, None, None)
    for scope_id in held:
        await writer.ok("create", claim(scope_id))
        await writer.check_scope(scope_id)


async def test_commands_wait_for_a_lock_that_comes_free(writer: Writer, hold: Hold) -> None:
    async with hold(await writer.scope_key()):
        tasks = [asyncio.create_task(writer.create(number)) for number in range(20)]
        await waiting_backends(writer, 1)
        tasks += [asyncio.create_task(writer.create(number)) for number in range(20)]
    made = await asyncio.gather(*tasks)
    assert sorted(answer["ledger_sequence"] for answer in made) == list(range(1, 41))
    await writer.check_scope()


SLOW_COMMIT_SQL = """
CREATE FUNCTION core.wait_in_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('application_name') = 'pamspec-write' AND pg_try_advisory_xact_lock(78) THEN
    PERFORM pg_advisory_xact_lock_shared(77);
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER wait_in_commit AFTER INSERT ON core.ledger DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION core.wait_in_commit()"""


@pytest.mark.parametrize("idle", ["0 seconds", "1 hour"])
async def test_b01_b04_a_slow_commit_is_overtaken_by_nobody(writers: tuple[Writer, Writer], idle: str) -> None:
    """B01, B04: whoever comes during a slow commit gets the sequence after it, however long the scope was idle."""
    slow, quick = writers
    await slow.create("before")
    key, admin = await slow.scope_key(), slow.admin
    moved = "UPDATE core.scope_head SET last_at = last_at - $2::text::interval WHERE scope_key = $1"
    await admin.execute(moved, key, idle)
    seen = "SELECT sequence FROM core.ledger WHERE scope_key = $1 ORDER BY sequence"
    before = [row[0] for row in await admin.fetch(seen, key)]
    await admin.execute(SLOW_COMMIT_SQL)
    try:
        await admin.execute("SELECT pg_advisory_lock(77)")
        first = asyncio.create_task(slow.create("slow"))
        await waiting_backends(slow, 1)
        second = asyncio.create_task(quick.ok("create", claim(slow.scope, "quick")))
        await waiting_backends(slow, 2)
        assert [row[0] for row in await admin.fetch(seen, key)] == before, "neither shows before both do in order"
        await admin.execute("SELECT pg_advisory_unlock(77)")
        async with asyncio.timeout(60):
            made = [answer["ledger_sequence"] for answer in await asyncio.gather(first, second)]
    finally:
        await admin.execute("SELECT pg_advisory_unlock_all()")
        await admin.execute("DROP TRIGGER wait_in_commit ON core.ledger; DROP FUNCTION core.wait_in_commit")
    assert made == [before[-1] + 1, before[-1] + 2]
    assert [row[0] for row in await admin.fetch(seen, key)] == before + made
    await slow.check_scope()


async def test_what_moved_between_prefetch_and_lock_is_read_again(writers: tuple[Writer, Writer], hold: Hold) -> None:
    """Both decide on the version that they read before the lock, and only one of them may."""
    made = await writers[0].create("first")
    change = writers[0].change(made, canonical_content="second", provenance=PROVENANCE)
    async with hold(await writers[0].scope_key()):
        tasks = [asyncio.create_task(writer.call("update", change)) for writer in writers]
        await waiting_backends(writers[0], 2)
    bodies = [orjson.loads(answer.body) for answer in await asyncio.gather(*tasks)]
    refused, done = sorted(bodies, key=lambda body: "error" not in body)
    assert refused["error"]["details"]["current_version_id"] == done["version_id"]
    await writers[0].check_scope()


async def test_a_key_used_between_prefetch_and_lock_is_found(writers: tuple[Writer, Writer], hold: Hold) -> None:
    document = claim(writers[0].scope, "once", source_event={"source": "s", "id": "1"})
    async with hold(await writers[0].scope_key()):
        tasks = [asyncio.create_task(writer.call("create", document, key="k")) for writer in writers]
        await waiting_backends(writers[0], 2)
    answers = await asyncio.gather(*tasks)
    assert answers[0].body == answers[1].body
    assert await writers[0].count("core.version") == 1


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Awaitable[object]]], None]:
    """Runs something once, between the prefetch of the next group and its lock."""

    def arm(run: Callable[[], Awaitable[object]]) -> None:
        lock = commit_queries.lock

        async def locked(*args: Any, **more: Any) -> Any:
            monkeypatch.setattr(group_commit, "lock", lock)
            await run()
            return await lock(*args, **more)

        monkeypatch.setattr(group_commit, "lock", locked)

    return arm


async def test_a_scope_that_did_not_move_keeps_what_was_read_of_it(
    writers: tuple[Writer, Writer], between: Callable[[Callable[[], Awaitable[object]]], None]
) -> None:
    """One group: a batch over both scopes, and commands of the scope that stays while the other one moves."""
    writer, other = writers
    still, moving = writer.scope, await writer.new_scope()
    made = await writer.create("first")
    keyed = claim(still, "keyed", idempotency_key="k")
    before = await writer.ok("create", keyed)
    batch = {"scope_id": moving, "items": [{"operation": "create", **claim(scope_id)} for scope_id in (still, moving)]}
    for scope_id in (still, moving):
        await writer.ok("create", claim(scope_id))
    between(lambda: other.ok("create", claim(moving, "meanwhile")))
    answers = await asyncio.gather(
        writer.ok("batch", batch),
        writer.ok("update", writer.change(made, canonical_content="second", provenance=PROVENANCE)),
        writer.ok("create", keyed),
    )
    assert answers[1]["sequence"] == 2
    assert answers[2] == before
    assert answers[0]["results"][1]["ledger_sequence"] == 3
    for scope_id in (still, moving):
        await writer.check_scope(scope_id)


async def test_commits_of_one_scope_are_in_the_order_of_its_sequence(
    writers: tuple[Writer, Writer], commit_gate: asyncpg.Connection[asyncpg.Record]
) -> None:
    """While one process is in its COMMIT, the other gets no sequence of that scope."""
    first = asyncio.create_task(writers[0].create("first"))
    await waiting_backends(writers[0], 1)
    second = asyncio.create_task(writers[1].create("second"))
    await waiting_backends(writers[0], 2)
    assert await writers[0].count("core.ledger") == 0
    await commit_gate.execute("SELECT pg_advisory_unlock(7)")
    assert [(await task)["ledger_sequence"] for task in (first, second)] == [1, 2]
    await writers[0].check_scope()


async def test_a_moved_tenant_epoch_is_decided_again(
    writer: Writer, hold: Hold, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with hold(await writer.scope_key()):
        task = asyncio.create_task(writer.create("after the change"))
        await waiting_backends(writer, 1)
        await writer.admin.execute("UPDATE core.tenant SET epoch_authz = epoch_authz + 1 WHERE tenant_id = $1", TENANT)
    await task
    assert "batch_decided_again" in {getattr(record, "action", "") for record in caplog.records}
    await writer.check_scope()
    assert await writer.count("core.version") == 1


async def test_crossing_sets_of_scopes_end_without_a_deadlock(
    writers: tuple[Writer, Writer], caplog: pytest.LogCaptureFixture
) -> None:
    scopes = [writers[0].scope, *[await writers[0].new_scope() for _ in range(5)]]

    def batch(order: list[str]) -> dict[str, Any]:
        items = [{"operation": "create", **claim(scope_id)} for scope_id in order]
        return {"scope_id": order[0], "atomic": True, "items": items}

    orders = [scopes[start:] + scopes[:start] for start in range(6)] + [scopes[::-1]] * 6
    answers = await asyncio.gather(
        *(writers[number % 2].call("batch", batch(order[: 2 + number % 5])) for number, order in enumerate(orders * 4)),
        *(writers[number % 2].call("create", claim(scopes[number % 6])) for number in range(60)),
    )
    assert {answer.status for answer in answers} <= {200, 201}
    assert not any("deadlock" in record.getMessage() for record in caplog.records)
    for scope_id in scopes:
        await writers[0].check_scope(scope_id)


async def test_an_exhausted_pool_is_answered_soon(database: Database, write_bus: NatsAddress, hold: Hold) -> None:
    settings = write_settings(database, write_bus, pool_size=1, pool_wait_ms=200, lock_timeout_ms=30_000)
    writer = await started(database, settings)
    free = await writer.new_scope()
    await writer.ok("create", claim(free))
    async with hold(await writer.scope_key()):
        stuck = asyncio.create_task(writer.call("create", claim(writer.scope)))
        await waiting_backends(writer, 1)
        began = time.monotonic()
        answers = await asyncio.gather(*(writer.call("create", claim(free)) for _ in range(20)))
        assert time.monotonic() - began < 15
        assert {(answer.status, answer.headers["Retry-After"]) for answer in answers} == {(503, "1")}
    assert (await stuck).status == 201
    await writer.ok("create", claim(free))
    await stopped(writer)


async def test_a_server_without_free_connections_is_no_internal_error(
    database: Database, write_bus: NatsAddress
) -> None:
    writer = await started(database, write_settings(database, write_bus, commit_attempts=2))
    await writer.admin.execute(f'ALTER DATABASE "{database.name}" CONNECTION LIMIT 0')
    await end_backends(writer)
    error = await writer.refused("create", claim(writer.scope), key="k")
    assert error["code"] == "service_unavailable"
    await writer.admin.execute(f'ALTER DATABASE "{database.name}" CONNECTION LIMIT -1')
    await writer.ok("create", claim(writer.scope), key="k")
    await stopped(writer)


async def end_backends(writer: Writer) -> None:
    """End every connection of the service."""
    await writer.admin.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'pamspec-write'"
    )


async def test_connections_ended_under_load_lose_and_double_nothing(writers: tuple[Writer, Writer]) -> None:
    scopes = [writers[0].scope, await writers[0].new_scope()]
    tasks: list[asyncio.Task[Any]] = []
    for round_ in range(6):
        tasks += [
            asyncio.create_task(
                writers[number % 2].call("create", claim(scopes[number % 2], number), key=f"{round_}/{number}")
            )
            for number in range(40)
        ]
        await asyncio.sleep(0)
        await end_backends(writers[0])
    answers = await asyncio.gather(*tasks)
    assert {answer.status for answer in answers} <= {201, 503}
    made = {orjson.loads(answer.body)["object_id"] for answer in answers if answer.status == 201}
    assert len(made) == sum(answer.status == 201 for answer in answers)
    stored = {row["object_id"] for row in await writers[0].admin.fetch("SELECT object_id FROM core.version")}
    assert made <= stored
    again = await asyncio.gather(
        *(
            writers[0].ok("create", claim(scopes[number % 2], number), key=f"{round_}/{number}")
            for round_ in range(6)
            for number in range(40)
        )
    )
    assert made <= {answer["object_id"] for answer in again}
    assert await writers[0].count("core.version") == 240
    for scope_id in scopes:
        await writers[0].check_scope(scope_id)


@pytest_asyncio.fixture(loop_scope="session")
async def commit_gate(database: Database) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """While this connection holds the advisory lock 7, a COMMIT that wrote to the ledger waits."""
    gate = await asyncpg.connect(database.dsn)
    await gate.execute(
        """
        CREATE FUNCTION public.wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER wait_at_commit AFTER INSERT ON core.ledger DEFERRABLE INITIALLY DEFERRED
          FOR EACH ROW EXECUTE FUNCTION public.wait_at_commit();
        SELECT pg_advisory_lock(7)
        """
    )
    yield gate
    await gate.close()


async def test_a_connection_killed_during_commit_has_one_effect(
    writer: Writer, commit_gate: asyncpg.Connection[asyncpg.Record]
) -> None:
    task = asyncio.create_task(writer.create("once"))
    await waiting_backends(writer, 1)
    assert await writer.count("core.ledger") == 0
    await end_backends(writer)
    await commit_gate.execute("SELECT pg_advisory_unlock(7)")
    made = await task
    assert made["ledger_sequence"] == 1
    assert await writer.count("core.version") == 1
    await writer.check_scope()


async def test_a_commit_takes_no_lock_of_the_whole_cluster(
    writer: Writer, commit_gate: asyncpg.Connection[asyncpg.Record]
) -> None:
    """A NOTIFY would lock database 0 at commit (B28)."""
    scopes = [writer.scope, await writer.new_scope()]
    tasks = [asyncio.create_task(writer.ok("create", claim(scope_id))) for scope_id in scopes]
    await waiting_backends(writer, 1)
    locks = await writer.admin.fetch(
        "SELECT l.locktype FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
        "WHERE a.application_name = 'pamspec-write'"
    )
    assert locks
    assert "object" not in {row["locktype"] for row in locks}
    await commit_gate.execute("SELECT pg_advisory_unlock(7)")
    await asyncio.gather(*tasks)


async def test_times_increase_when_the_clock_jumps_back(writer: Writer) -> None:
    await writer.create()
    await writer.admin.execute(
        "UPDATE core.scope_head SET last_at = last_at + interval '1 hour', revision = revision + 1"
    )
    made = [await writer.create() for _ in range(3)]
    batch = {"scope_id": writer.scope, "items": [{"operation": "create", **claim(writer.scope)}] * 3}
    made += (await writer.ok("batch", batch))["results"]
    times = [answer["envelope"]["committed_at"] for answer in made]
    assert times == sorted(set(times))
    assert [answer["envelope"]["recorded_at"] for answer in made] == times
    await writer.check_scope()


async def test_conflicts_are_counted_and_logged_without_a_traceback(
    writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    """M024."""
    caplog.set_level(logging.DEBUG)
    made = await writer.create()
    stale = writer.change(made, canonical_content=1, provenance=PROVENANCE, expected_version_id="ver:stale")
    before = conflicts()
    answers = await asyncio.gather(*(writer.call("update", stale) for _ in range(100)))
    assert {answer.status for answer in answers} == {409}
    assert conflicts() - before == 100
    own = [record for record in caplog.records if record.name.startswith("pamspec_")]
    assert own
    assert [record.getMessage() for record in own if record.exc_info or record.levelno >= logging.ERROR] == []


def conflicts() -> float:
    """The counter of conflicts, as /metrics shows it."""
    setup_metrics()
    lines = render_metrics()[0].decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("memory_version_conflicts_total"))


async def test_waiting_writes_hold_their_bytes_and_not_the_parsed_documents(writer: Writer, hold: Hold) -> None:
    """What is parsed takes many times the memory of its text, and a scope's lock can be away for seconds."""
    content: list[list[Any]] = [[] for _ in range(40_000)]
    bodies = [orjson.dumps(claim(writer.scope, content, idempotency_key=f"key-{n}")) for n in range(10)]
    del content
    before = _live_lists()
    async with hold(await writer.scope_key()):
        writes = [asyncio.create_task(writer.call("create", body)) for body in bodies]
        await waiting_backends(writer, 1)
        assert _live_lists() - before < 80_000
    assert [answer.status for answer in await asyncio.gather(*writes)] == [201] * len(bodies)


def _live_lists() -> int:
    return sum(type(found) is list for found in gc.get_objects())
