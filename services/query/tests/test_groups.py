"""Reads by id in groups: company without waiting, each its own answer, bounded, and quick to refuse."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import orjson
import pytest

from pamspec_cli.servers.databases import Database
from pamspec_common.calls import Answer
from pamspec_common.errors import ServiceUnavailable
from pamspec_common.instants import wire
from pamspec_common.postgres import close_pool, create_pool
from pamspec_query.groups import GroupReader
from pamspec_query.queries import heads
from pamspec_query.store import Store
from services.query.tests.door import Conn, Door, limited, settings
from services.query.tests.seeds import Scope


async def test_reads_of_many_scopes_and_tenants_travel_together(seeding: Conn, door: Door) -> None:
    others = door.as_("agent:other", tenant_id="tenant:other")
    for index in range(20):
        for tenant, mark in (("tenant:test", "a"), ("tenant:other", "b")):
            scope = Scope(f"workspace:{index}", tenant_id=tenant)
            scope.put("obj:x", f"{mark}{index}")
            await scope.flush(seeding)
    calls = [
        (by, index, "obj:x" if turn else "obj:none")
        for index in range(20)
        for by in (door, others)
        for turn in range(3)
    ]
    answers = await asyncio.gather(
        *(by("read", scope_id=f"workspace:{index}", object_id=name) for by, index, name in calls)
    )
    for (by, index, name), found in zip(calls, answers, strict=True):
        if name == "obj:none":
            assert found.status == 404
        else:
            expected = f"{'a' if by is door else 'b'}{index}"
            assert orjson.loads(found.body)["envelope"]["canonical_content"] == expected


async def test_groups_form_without_waiting(seeding: Conn, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = Scope("workspace:a")
    for index in range(1000):
        scope.put(f"obj:{index}", index)
    await scope.flush(seeding)
    sizes: list[int] = []
    whole = heads.read_heads

    async def counted(conn: Any, keys: Any, ids: Any, max_bytes: int) -> Any:
        sizes.append(len(ids))
        return await whole(conn, keys, ids, max_bytes)

    monkeypatch.setattr("pamspec_query.groups.read_heads", counted)
    pool = await create_pool(settings(database), "test")
    reader = GroupReader(pool, connections=2, wait_ms=1000, max_bytes=1 << 23)
    rows = await asyncio.gather(*(reader.read(scope.key, f"obj:{index}") for index in range(1000)))
    assert [orjson.loads(row.stored.content or b"") for row in rows if row.stored] == list(range(1000))
    assert sum(sizes) == 1000
    assert max(sizes) == 256
    assert len(sizes) == 4
    sizes.clear()
    await reader.read(scope.key, "obj:1")
    assert sizes == [1]
    await reader.close()
    await pool.close()


async def test_a_group_is_bounded_in_bytes(seeding: Conn, database: Database) -> None:
    scope = Scope("workspace:a")
    for index in range(40):
        scope.put(f"obj:{index}", "x" * 100_000)
    await scope.flush(seeding)
    pool = await create_pool(settings(database), "test")
    async with pool.acquire() as conn:
        rows = await heads.read_heads(conn, [scope.key] * 40, [f"obj:{n}" for n in range(40)], 1_000_000)
    whole = [row for row in rows if row.stored is not None]
    assert len(whole) == 10
    assert all(row.held_back for row in rows if row.stored is None)
    reader = GroupReader(pool, connections=1, wait_ms=1000, max_bytes=1_000_000)
    found = await asyncio.gather(*(reader.read(scope.key, f"obj:{index}") for index in range(40)))
    assert all(row.stored is not None for row in found)
    await pool.close()


async def test_a_lost_connection_fails_its_group_only(seeding: Conn, door: Door, database: Database) -> None:
    """PostgreSQL ends the sessions in mid-flight: a retryable answer, and the next read works without help."""
    scope = Scope("workspace:a")
    scope.put("obj:x", 1)
    await scope.flush(seeding)
    read = {"scope_id": "workspace:a", "object_id": "obj:x"}
    await asyncio.gather(*(door.ok("read", **read) for _ in range(10)))
    async with locked(database, "version"):
        blocked = [asyncio.create_task(door("read", **read)) for _ in range(10)]
        await until_blocked(seeding)
        await seeding.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE usename = 'pamspec_query' AND datname = current_database()"
        )
        answers = await asyncio.gather(*blocked)
    assert {found.status for found in answers} == {503}
    assert await door.ok("read", **read)
    assert await door.ok("query", scope_id="workspace:a", query={"kind": "structured"})


@asynccontextmanager
async def locked(database: Database, table: str) -> AsyncIterator[None]:
    """Nobody else can read a table meanwhile."""
    conn = await asyncpg.connect(database.dsn)
    try:
        await conn.execute(f"BEGIN; LOCK TABLE core.{table} IN ACCESS EXCLUSIVE MODE")
        yield
    finally:
        await conn.close()


async def until_blocked(conn: Conn, count: int = 1) -> None:
    """Returns once so many sessions of the query service wait for a lock."""
    async with asyncio.timeout(30):
        while (
            await conn.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE usename = 'pamspec_query' AND wait_event_type = 'Lock'"
                " AND datname = current_database()"
            )
            < count
        ):
            await asyncio.sleep(0.01)


async def test_slow_queries_leave_room_for_reads(seeding: Conn, database: Database, door: Door) -> None:
    """M090: with every place for queries taken, reads go on, and more queries are refused soon, with Retry-After."""
    scope = Scope("workspace:a")
    scope.put("obj:x", 1)
    await scope.flush(seeding)
    past = {"kind": "structured", "as_of": {"recorded_at": wire(scope.now)}}
    query: dict[str, Any] = {"scope_id": "workspace:a", "query": past}
    async with limited(
        database, door.principal, pool_size=5, pool_wait_ms=200, query_timeout_ms=60_000, lock_timeout_ms=50_000
    ) as small:
        assert await small.ok("read", scope_id="workspace:a", object_id="obj:x")
        async with locked(database, "ledger"):
            slow = [asyncio.create_task(small("query", **query)) for _ in range(50)]
            await until_blocked(seeding, 2)
            started = time.monotonic()
            for _ in range(20):
                assert await small.ok("read", scope_id="workspace:a", object_id="obj:x")
            assert time.monotonic() - started < 40
            done: set[asyncio.Task[Answer]] = set()
            async with asyncio.timeout(45):
                while len(done) < 48:
                    done, waiting = await asyncio.wait(slow, return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
            refused = {(one.result().status, one.result().headers.get("Retry-After")) for one in done}
            assert refused == {(503, "1")}
        assert {found.status for found in await asyncio.gather(*waiting)} == {200}
        assert await small.ok("query", **query)


async def test_who_stops_waiting_leaves_nothing_behind(seeding: Conn, database: Database, door: Door) -> None:
    """Calls that are cancelled in mid-flight give their places and connections back."""
    scope = Scope("workspace:a")
    scope.put("obj:x", 1)
    await scope.flush(seeding)
    read: dict[str, Any] = {"scope_id": "workspace:a", "object_id": "obj:x"}
    query: dict[str, Any] = {"scope_id": "workspace:a", "query": {"kind": "structured"}}
    async with limited(database, door.principal, pool_size=4, read_connections=1, pool_wait_ms=500) as small:
        assert await small.ok("read", **read)
        for _ in range(3):
            async with locked(database, "version_span"), locked(database, "version"):
                calls = [asyncio.create_task(small("query", **query)) for _ in range(4)]
                calls += [asyncio.create_task(small("read", **read)) for _ in range(4)]
                calls += [asyncio.create_task(small("read", **read, min_sequence=9, wait_ms=9000)) for _ in range(2)]
                await until_blocked(seeding, 3)
                for call in calls:
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
        answers = await asyncio.gather(*(small.ok("query", **query) for _ in range(8)))
        assert len(answers) == 8
        assert await small.ok("read", **read)


async def test_a_read_that_takes_too_long_may_be_tried_again(seeding: Conn, database: Database, door: Door) -> None:
    scope = Scope("workspace:a")
    scope.put("obj:x", 1)
    await scope.flush(seeding)
    async with limited(database, door.principal, statement_timeout_ms=2000) as strict:
        assert await strict.ok("read", scope_id="workspace:a", object_id="obj:x")
        async with locked(database, "version"):
            error = await strict.refused("read", scope_id="workspace:a", object_id="obj:x")
        assert error["code"] == "service_unavailable"
        assert await strict.ok("read", scope_id="workspace:a", object_id="obj:x")


async def test_without_a_store_every_operation_refuses(database: Database, door: Door) -> None:
    unreachable = Database(database.name, database.dsn, {"pamspec_query": "postgresql://pamspec_query@127.0.0.1:1/x"})
    async with limited(unreachable, door.principal, pool_wait_ms=300) as lost:
        for operation, rest in (
            ("read", {"object_id": "obj:x"}),
            ("query", {"query": {"kind": "structured"}}),
            ("inspect_history", {"object_id": "obj:x"}),
            ("get_scope", {}),
            ("list_scopes", {}),
            ("verify_ledger", {}),
        ):
            error = await lost.refused(operation, scope_id="workspace:a", **rest)
            assert (error["code"], error["retryable"]) == ("service_unavailable", True)
        ready, parts = await lost.service.ready()
        assert not ready
        assert parts[0].name == "store"
    pool = await asyncpg.create_pool("postgresql://x@127.0.0.1:1/x", min_size=0, max_size=2, timeout=1)
    reader = GroupReader(pool, connections=2, wait_ms=300, max_bytes=1000)
    for _ in range(2):
        failures = await asyncio.gather(*(reader.read(1, f"obj:{n}") for n in range(600)), return_exceptions=True)
        assert {type(failure) for failure in failures} == {ServiceUnavailable}
    await reader.close()
    pool.terminate()


async def test_queries_of_one_tenant_leave_connections_to_another(database: Database) -> None:
    given = settings(database, pool_size=7, read_connections=2, pool_wait_ms=30_000)
    pool = await create_pool(given, "test")
    store = Store(pool, given)
    order: list[str] = []
    go_on = asyncio.Event()

    async def one(tenant_id: str) -> None:
        async with store.snapshot(1, tenant_id=tenant_id):
            order.append(tenant_id)
            await go_on.wait()

    async def held(count: int) -> None:
        while len(order) < count:
            await asyncio.sleep(0.01)

    try:
        async with asyncio.timeout(60):
            noisy = [asyncio.ensure_future(one("tenant:noisy")) for _ in range(20)]
            await held(3)
            quiet = asyncio.ensure_future(one("tenant:quiet"))
            await held(4)
            assert order == ["tenant:noisy"] * 3 + ["tenant:quiet"]
            go_on.set()
            await asyncio.gather(*noisy, quiet)
    finally:
        await store.close()
        await close_pool(pool)
