"""What an erasure leaves in the files of the store, and that the rewrite of its relations takes it out of them.

The files are the database's own directory, read as its owner may: heap, TOAST, indexes and system tables. Every search
that finds nothing stands beside one for a value that was kept, and one that found the same value before the rewrite.
"""

from __future__ import annotations

import secrets

import asyncpg
import pytest

from pamspec_cli.servers.databases import Database
from services.write.tests.writer import Document, Writer, claim

PER_KIND = 20


def values(label: str) -> list[bytes]:
    """Values that occur once in the world, as bytes that no compression changes."""
    return [f"{label}-{secrets.token_hex(12)}".encode() for _ in range(PER_KIND)]


READ_SQL = """
SELECT pg_read_binary_file(path, 0, (pg_stat_file(path, true)).size, true) FROM (
  SELECT 'base/' || d.oid || '/' || file AS path FROM pg_database d, pg_ls_dir('base/' || d.oid) AS file
  WHERE d.datname = current_database()) f
"""


async def on_disk(conn: asyncpg.Connection[asyncpg.Record], wanted: list[bytes]) -> set[bytes]:
    """Those of some values whose bytes stand in any file of the database."""
    await conn.execute("CHECKPOINT")
    left, found = set(wanted), set[bytes]()
    async with conn.transaction():
        async for row in conn.cursor(READ_SQL, prefetch=10):
            found |= {value for value in left - found if row[0] is not None and value in row[0]}
    return found


async def rewrite(conn: asyncpg.Connection[asyncpg.Record]) -> list[str]:
    """Rewrite what is due, and answer the names of what was rewritten."""
    due = [row["relation"] for row in await conn.fetch("SELECT relation FROM core.pages_due()")]
    return [name for name in due if await conn.fetchval("SELECT core.rewrite_pages($1)", name) is not None]


async def made(writer: Writer, contents: list[bytes], width: int = 0, **more: object) -> list[Document]:
    """Objects with these values, in as much text around them as is said."""
    around = secrets.token_hex(width // 2) if width else ""
    return [
        await writer.ok("create", claim(writer.scope, {"text": value.decode(), "around": around}, **more))
        for value in contents
    ]


async def deleted(writer: Writer, objects: list[Document]) -> None:
    """Delete them."""
    for one in objects:
        about = {name: one[name] for name in ("scope_id", "object_id")}
        await writer.ok("delete", {**about, "expected_version_id": one["version_id"], "policy_basis": "asked"})


@pytest.mark.parametrize("width", [0, 20_000], ids=["in the row", "in TOAST"])
async def test_a_deleted_value_is_gone_from_the_files_once_they_are_rewritten(writer: Writer, width: int) -> None:
    kept, gone = values("KEPT"), values("GONE")
    await made(writer, kept, width)
    await deleted(writer, await made(writer, gone, width))
    before = await on_disk(writer.admin, kept + gone)
    assert before >= set(kept), "a search that finds what is there"
    assert before & set(gone), "old bytes outlive an erasure: without any the rest would show nothing"
    assert set(await rewrite(writer.admin)) == {
        "core.data_key",
        "core.operation_record",
        "core.source_event",
        "core.version_private",
        "core.version_span",
    }
    assert await on_disk(writer.admin, kept + gone) == set(kept)
    assert await rewrite(writer.admin) == [], "nothing is due twice"


async def test_somebody_who_still_sees_the_value_keeps_the_rewrite_waiting(writer: Writer, database: Database) -> None:
    """A rewrite keeps what an old snapshot may see: it is not done, and not called done, before that has ended."""
    gone = values("GONE")
    objects = await made(writer, gone)
    reader = await asyncpg.connect(database.dsn)
    old = reader.transaction(isolation="repeatable_read", readonly=True)
    await old.start()
    await reader.fetchval("SELECT count(*) FROM core.tenant")
    await deleted(writer, objects)
    assert await rewrite(writer.admin) == []
    await old.rollback()
    await reader.close()
    await rewrite(writer.admin)
    assert not await on_disk(writer.admin, gone)


async def test_the_rewrite_of_one_erasure_says_nothing_of_a_later_one(writer: Writer) -> None:
    first, second = [await made(writer, values("GONE")) for _ in range(2)]
    await deleted(writer, first)
    key, after_first = await writer.scope_key(), await _head(writer)
    assert await _rewritten(writer, key, after_first) == {False}
    await rewrite(writer.admin)
    await deleted(writer, second)
    assert await _rewritten(writer, key, after_first) == {True}
    assert await _rewritten(writer, key, await _head(writer)) == {False}
    await rewrite(writer.admin)
    assert await _rewritten(writer, key, await _head(writer)) == {True}
    assert await _rewritten(writer, key, None) == {True}


async def test_what_was_never_erased_owes_nothing(writer: Writer) -> None:
    await made(writer, values("KEPT"))
    assert await _rewritten(writer, await writer.scope_key(), await _head(writer)) == set()
    assert await rewrite(writer.admin) == []


async def test_a_table_of_another_name_is_not_written_anew(writer: Writer) -> None:
    with pytest.raises(asyncpg.UndefinedTableError):
        await writer.admin.fetchval("SELECT core.rewrite_pages('core.ledger')")


async def _head(writer: Writer) -> int:
    head: int = await writer.admin.fetchval(
        "SELECT last_seq FROM core.scope_head WHERE scope_key = $1", await writer.scope_key()
    )
    return head


async def _rewritten(writer: Writer, key: int, sequence: int | None) -> set[bool]:
    rows = await writer.admin.fetch(
        "SELECT rewritten_at FROM core.page_bytes($1, $2) WHERE relation LIKE 'core.%'", key, sequence
    )
    return {row["rewritten_at"] is not None for row in rows}
