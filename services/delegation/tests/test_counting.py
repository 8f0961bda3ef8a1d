"""What was done under a grant is counted from the ledger, each exercise once."""

from __future__ import annotations

import asyncpg
import orjson
import pytest

from pamspec_cli.servers.databases import Database
from pamspec_common.consuming.model import Entry, Poison
from pamspec_delegation.handlers.entries import Counting
from pamspec_delegation.queries import exercises


def exercised(sequence: int, payload: object, scope_key: int = 1) -> Entry:
    event = orjson.dumps({"sequence": sequence, "payload": payload})
    return Entry(scope_key, sequence, f"evt:{sequence}", "delegation_exercised", event)


async def counted(database: Database, *batches: list[Entry]) -> list[tuple[object, ...]]:
    conn = await asyncpg.connect(database.role("delegation"))
    try:
        for batch in batches:
            await Counting(lambda: None).apply(conn, batch)
        rows = await conn.fetch("SELECT scope_key, delegation_id, operation, times, last_seq FROM delegation.exercise")
        return sorted(tuple(row) for row in rows)
    finally:
        await conn.close()


async def test_exercises_are_counted_by_grant_scope_and_operation(database: Database) -> None:
    read = {"delegation_id": "del:1", "operation": "read"}
    batch = [
        exercised(1, read),
        exercised(2, {**read, "count": 5}),
        exercised(3, {**read, "operation": "update"}),
        Entry(1, 4, "evt:4", "object_created", b"{}"),
        exercised(1, {**read, "delegation_id": "del:2"}, scope_key=2),
    ]
    assert await counted(database, batch, [exercised(5, read)]) == [
        (1, "del:1", "read", 7, 5),
        (1, "del:1", "update", 1, 3),
        (2, "del:2", "read", 1, 1),
    ]


@pytest.mark.parametrize("payload", [None, {}, {"delegation_id": "del:1"}, {"delegation_id": 1, "operation": "read"}])
async def test_an_exercise_that_does_not_say_of_what_is_poison(database: Database, payload: object) -> None:
    with pytest.raises(Poison):
        await counted(database, [exercised(1, payload)])


@pytest.mark.parametrize("name", [name for name in vars(exercises) if name.endswith("_SQL")])
async def test_every_statement_prepares_as_the_service_role(database: Database, name: str) -> None:
    conn = await asyncpg.connect(database.role("delegation"))
    await conn.prepare(getattr(exercises, name))
    await conn.close()
