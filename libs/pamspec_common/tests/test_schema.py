"""A version and a database fit or the service says why not: not migrated, too new; the version before goes on."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_common import schema
from pamspec_common.errors import ServiceUnavailable
from pamspec_common.migrations import migrate
from pamspec_common.postgres import close_pool, connection, create_pool
from pamspec_common.schema import State, floor_of, in_checkout, known, misfit
from pamspec_common.settings import CommonSettings

ROOT = Path(__file__).resolve().parents[3]
KNOWS = {"write": 25, "query": 5}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"write": State(25, 0), "query": State(5, 0)}, None),
        ({"write": State(27, 0), "query": State(5, 0), "later": State(3, 0)}, None),
        ({"write": State(27, 25), "query": State(6, 5)}, None),
        ({}, "not migrated: of write it has 0000, this version needs 0025"),
        ({"write": State(24, 0), "query": State(5, 0)}, "not migrated: of write it has 0024, this version needs 0025"),
        ({"write": State(27, 26), "query": State(5, 0)}, "too new: of write it needs .* 0026, this one knows 0025"),
        ({"write": State(25, 0), "query": State(5, 0), "later": State(1, 1)}, "too new: of later .* knows 0000"),
    ],
)
def test_what_fits(found: dict[str, State], words: str | None) -> None:
    reason = misfit(KNOWS, found)
    if words is None:
        assert reason is None
    else:
        with pytest.raises(AssertionError, match=words):
            raise AssertionError(reason)


def test_a_floor_is_a_line_of_its_own() -> None:
    assert floor_of("-- Away with it.\n-- floor: 0026\nDROP TABLE x;") == 26
    assert floor_of("-- a -- floor: 0026\nSELECT 1;") is None


def test_the_package_carries_what_the_checkout_knows() -> None:
    carried = json.loads(resources.files("pamspec_common").joinpath(schema.FILE).read_bytes())
    assert set(carried) == set(in_checkout(ROOT)) == set(known())
    assert {source for source, _ in databases.migration_sources()} == set(known())


@pytest_asyncio.fixture(loop_scope="session")
async def empty(postgres_server: str) -> AsyncIterator[str]:
    """The DSN of an empty database."""
    name = databases.new_name("pamspec_schema")
    yield await databases.create_database(postgres_server, name)
    await databases.drop_database(postgres_server, name)


async def refused(dsn: str) -> str:
    """What a pool says instead of lending a connection; empty where it lends one."""
    pool = await create_pool(CommonSettings(database_url=dsn), "test")
    try:
        async with connection(pool, 30_000) as conn:
            assert await conn.fetchval("SELECT 1") == 1
    except ServiceUnavailable as error:
        return error.message
    finally:
        await close_pool(pool)
    return ""


async def test_a_database_that_nobody_migrated_is_refused_until_somebody_has(empty: str) -> None:
    assert "is not migrated" in await refused(empty)
    assert "pamspec migrate" in await refused(empty)
    await migrate(empty, databases.migration_sources())
    assert await refused(empty) == ""


@pytest.mark.parametrize("service", databases.SERVICES)
async def test_every_role_may_look(database: Database, service: str) -> None:
    assert await refused(database.role(service)) == ""


async def test_the_version_before_goes_on_until_what_it_needs_is_taken_away(database: Database, tmp_path: Path) -> None:
    """The next version expands (this one goes on), then contracts (this one is told to make way)."""
    number = known()["relay"]
    for before in range(1, number + 1):
        (tmp_path / f"{before:04}_known.sql").write_text("SELECT 1")
    conn = await asyncpg.connect(database.dsn)
    await conn.execute("DELETE FROM public.pamspec_migration WHERE source = 'relay'")
    await conn.close()
    (tmp_path / f"{number + 1:04}_expand.sql").write_text("CREATE TABLE relay.next (x int)")
    await migrate(database.dsn, [("relay", tmp_path)])
    assert await refused(database.role("relay")) == ""
    text = f"-- floor: {number + 1:04}\nDROP TABLE relay.next"
    (tmp_path / f"{number + 2:04}_contract.sql").write_text(text)
    await migrate(database.dsn, [("relay", tmp_path)])
    for service in ("relay", "query"):
        assert f"knows {number + 1:04}, this one knows {number:04}" in await refused(database.role(service))


async def test_a_list_of_an_older_version_is_brought_along(database: Database) -> None:
    conn = await asyncpg.connect(database.dsn)
    await conn.execute(
        "ALTER TABLE public.pamspec_migration DROP COLUMN floor; REVOKE ALL ON public.pamspec_migration FROM PUBLIC"
    )
    await conn.close()
    assert "is not migrated" in await refused(database.role("write"))
    assert await migrate(database.dsn, databases.migration_sources()) == []
    assert await refused(database.role("write")) == ""


async def test_a_service_that_needs_the_store_ends_with_the_reason_as_its_last_word(empty: str) -> None:
    """As a process, on a database that nobody migrated: exit code 1, and no stack of calls around the sentence."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pamspec_write"),
        env=os.environ | {"PAMSPEC_DATABASE_URL": empty, "PAMSPEC_TOKEN_KEYS": '{"k1": "a key"}', "PAMSPEC_PORT": "0"},
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        _, said = await process.communicate()
    assert process.returncode == 1
    last = [line for line in map(json.loads, said.splitlines()) if line.get("action") == "service_failed"]
    assert len(last) == 1
    assert "is not migrated" in last[0]["message"]
    assert "traceback" not in last[0]
