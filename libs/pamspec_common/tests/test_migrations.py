"""Migrations: each once, in order, by one migrator at a time, and never edited after they landed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import chain
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from pamspec_cli.servers import databases
from pamspec_common.migrations import MigrationChanged, files, migrate, pending


@pytest_asyncio.fixture(loop_scope="session")
async def empty(postgres_server: str) -> AsyncIterator[str]:
    """The DSN of an empty database."""
    name = databases.new_name("pamspec_empty")
    yield await databases.create_database(postgres_server, name)
    await databases.drop_database(postgres_server, name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two migrations."""
    (tmp_path / "0001_first.sql").write_text("CREATE TABLE first (x int)")
    (tmp_path / "0002_second.sql").write_text("INSERT INTO first VALUES (1)")
    return tmp_path


async def test_each_is_applied_once_in_order(empty: str, folder: Path) -> None:
    sources = [("a", folder)]
    conn = await asyncpg.connect(empty)
    assert await migrate(empty, sources) == ["a/0001_first.sql", "a/0002_second.sql"]
    assert await migrate(empty, sources) == []
    (folder / "0003_third.sql").write_text("INSERT INTO first VALUES (3)")
    assert await pending(conn, sources) == ["a/0003_third.sql"]
    assert await migrate(empty, sources) == ["a/0003_third.sql"]
    assert await pending(conn, sources) == []
    assert [row["x"] for row in await conn.fetch("SELECT x FROM first ORDER BY x")] == [1, 3]
    await conn.close()


async def test_several_at_once_apply_it_once(empty: str, folder: Path) -> None:
    applied = await asyncio.gather(*(migrate(empty, [("a", folder)]) for _ in range(6)))
    assert sorted(chain(*applied)) == ["a/0001_first.sql", "a/0002_second.sql"]


async def test_one_that_fails_leaves_nothing_of_itself(empty: str, folder: Path) -> None:
    broken = folder / "0003_broken.sql"
    broken.write_text("INSERT INTO first VALUES (3); SELECT FROM nothing")
    with pytest.raises(asyncpg.UndefinedTableError):
        await migrate(empty, [("a", folder)])
    conn = await asyncpg.connect(empty)
    assert await conn.fetchval("SELECT count(*) FROM first") == 1
    broken.write_text("INSERT INTO first VALUES (3)")
    assert await migrate(empty, [("a", folder)]) == ["a/0003_broken.sql"]
    await conn.close()


async def test_what_has_landed_is_not_edited(empty: str, folder: Path) -> None:
    await migrate(empty, [("a", folder)])
    (folder / "0001_first.sql").write_text("CREATE TABLE first (x bigint)")
    with pytest.raises(MigrationChanged, match=r"0001_first\.sql"):
        await migrate(empty, [("a", folder)])


async def test_sources_do_not_know_each_other(empty: str, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "0001_first.sql").write_text("CREATE TABLE other (x int)")
    assert await migrate(empty, [("a", folder), ("b", other)]) == [
        "a/0001_first.sql",
        "a/0002_second.sql",
        "b/0001_first.sql",
    ]


@pytest.mark.parametrize("name", ["0004_gap.sql", "3_short.sql", "0003-dash.sql", "0003_Case.sql", "0002_twice.sql"])
def test_names_are_numbered_without_a_gap(folder: Path, name: str) -> None:
    (folder / name).write_text("")
    with pytest.raises(ValueError, match="migration"):
        files(folder)


async def test_the_product_migrates_an_empty_database_twice_at_once(empty: str) -> None:
    """Roles belong to the whole server and exist already; the second migrator finds everything done."""
    sources = databases.migration_sources()
    applied = await asyncio.gather(*(migrate(empty, sources) for _ in range(3)))
    expected = [f"{source}/{path.name}" for source, folder in sources for path in files(folder)]
    assert sorted(chain(*applied)) == sorted(expected)
