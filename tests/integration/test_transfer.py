"""Exports and imports while processes die, writers write and clients take their time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from pamspec_client import AsyncClient, ClientError, RetryPolicy, ScopeNotFound
from tests.integration.checks import drained, whole
from tests.integration.harness import Fleet, until
from tests.integration.load import items, make_scopes, notes

ONCE = RetryPolicy(attempts=1)
COUNT = 4_000
_ROWS = """
SELECT (SELECT count(*) FROM core.ledger) + (SELECT count(*) FROM core.version) + (SELECT count(*) FROM core.scope)
"""
_STORING = """
SELECT EXISTS (
  SELECT FROM pg_stat_activity WHERE application_name = 'pamspec-write' AND backend_xid IS NOT NULL
    AND xact_start < clock_timestamp() - interval '0.2 s')
"""


async def filled(client: AsyncClient, prefix: str, count: int = COUNT) -> str:
    (scope_id,) = await make_scopes(client, prefix, 1)
    writes = notes([scope_id], prefix)
    for _ in range(count // 500):
        await client.batch(scope_id=scope_id, items=items(writes, 500))
    return scope_id


async def export(client: AsyncClient, scope_id: str) -> bytes:
    return b"".join([piece async for piece in client.export(scope_id=scope_id)])


async def test_a_writer_that_is_killed_in_an_import_leaves_nothing_of_it(fleet: Fleet, tmp_path: Path) -> None:
    """Killed while the file comes, and while it is stored; the same file again is taken whole."""
    client = fleet.client()
    scope_id = await filled(client, "killed")
    await drained(fleet)
    path = tmp_path / "scope.ndjson"
    path.write_bytes(await export(client, scope_id))
    half = path.read_bytes()[: path.stat().st_size // 2]
    once = fleet.client(retry=ONCE)
    async with fleet.database() as database:
        before = await database.fetchval(_ROWS)

        async def first_half() -> Any:
            yield half
            fleet.kill("write")
            await asyncio.sleep(1)
            yield half

        with pytest.raises(ClientError):
            await once.import_(first_half(), remap={"scope_id": "copy:one"})
        await fleet["write"].start()
        assert await database.fetchval(_ROWS) == before
        storing = asyncio.create_task(once.import_(path, remap={"scope_id": "copy:one"}))

        async def in_the_transaction() -> bool:
            return bool(await database.fetchval(_STORING))

        await until(in_the_transaction, 30, "the import is stored", every_s=0.01)
        fleet.kill("write")
        with pytest.raises(ClientError):
            await storing
        await fleet["write"].start()
        assert await database.fetchval(_ROWS) == before
    with pytest.raises(ScopeNotFound):
        await client.get_scope(scope_id="copy:one")
    taken = await client.import_(path, remap={"scope_id": "copy:one"})
    assert (taken.entries, taken.replayed) == (COUNT, False)
    assert (await client.import_(path, remap={"scope_id": "copy:one"})).replayed
    found = await whole(fleet, [scope_id, "copy:one"])
    assert len(found.created["copy:one"]) == COUNT


async def test_an_export_while_writers_write_is_of_one_position(fleet: Fleet) -> None:
    client = fleet.client()
    scope_id = await filled(client, "busy", 1_000)
    stop = asyncio.Event()

    async def write() -> None:
        writes = notes([scope_id], "later")
        while not stop.is_set():
            await client.batch(scope_id=scope_id, items=items(writes, 20))

    writer = asyncio.create_task(write())
    for number in range(5):
        body = await export(client, scope_id)
        lines = body.splitlines()
        manifest, end = orjson.loads(lines[0]), orjson.loads(lines[-1])
        assert manifest["watermark"]["sequence"] == end["sequence"] == len(lines) - 3
        copy = f"copy:busy-{number}"
        assert (await client.import_(body, remap={"scope_id": copy})).entries == end["entries"]
    stop.set()
    await writer
    await whole(fleet, [scope_id, *(f"copy:busy-{number}" for number in range(5))])


async def test_subscriptions_of_an_imported_scope_have_its_events_in_order(fleet: Fleet) -> None:
    client = fleet.client()
    scope_id = await filled(client, "followed", 500)
    await client.import_(await export(client, scope_id), remap={"scope_id": "copy:followed"})
    opened = await client.subscribe(scope_id="copy:followed", after_sequence=0, channel="sse")
    seen: list[int] = []
    async with client.follow(opened.subscription_id, channel="sse") as events:
        later = await client.create(
            scope_id="copy:followed", object_type="claim", canonical_content=1, provenance={"activity": "test"}
        )
        async for event in events:
            seen.append(event.sequence)
            if event.object_id == later.object_id:
                break
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 501
