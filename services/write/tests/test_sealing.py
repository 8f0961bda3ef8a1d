"""Encryption at rest: nothing of a value in clear but the projections, a key for each version, and no swapped rows."""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from pamspec_cli import sealed
from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common.errors import InternalError, ServiceUnavailable
from pamspec_common.postgres import create_pool
from pamspec_common.sealing import CARRIED, KEY_BYTES, KeyRing, WrongKey, decoded
from services.write.tests.test_page_bytes import deleted, made, on_disk, rewrite, values
from services.write.tests.writer import Writer, claim, started, stopped, write_settings


def key() -> str:
    """A key-encryption key as it is set."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


FIRST, SECOND = key(), key()


@pytest_asyncio.fixture(loop_scope="session")
async def sealer(database: Database, write_bus: NatsAddress) -> AsyncIterator[Writer]:
    """A write service that seals."""
    writer = await started(database, write_settings(database, write_bus, encryption_keys={"first": FIRST}))
    yield writer
    await stopped(writer)


async def _values(writer: Writer, sql: str, *arguments: Any) -> list[bytes]:
    """What the service itself reads, opened."""
    pool = await create_pool(writer.settings, "test", content=True)
    async with pool.acquire() as conn, conn.transaction():
        await conn.execute(f"SET LOCAL pamspec.scope_keys = '{{{await writer.scope_key()}}}'")
        found = [row[0] for row in await conn.fetch(sql, *arguments)]
    await pool.close()
    return found


CONTENT = "SELECT content FROM core.version_value ORDER BY ledger_seq"


async def _sealer(database: Database, bus: NatsAddress, **keys: str) -> Writer:
    return await started(database, write_settings(database, bus, encryption_keys=keys))


async def test_stored_halves_are_sealed_and_come_back(sealer: Writer) -> None:
    request = claim(sealer.scope, {"text": "one"})
    first = await sealer.ok("create", request, key="k")
    assert (await sealer.ok("create", request, key="k"))["envelope"] == first["envelope"], "made of the sealed version"
    await sealer.update(first, {"text": "two"})
    stored = await sealer.admin.fetch("SELECT salt, content, private FROM core.version_private")
    assert {bytes(row["content"])[:1] for row in stored} == {b"\x01"}
    assert not any(b"text" in row["content"] or b"activity" in row["private"] for row in stored)
    assert await sealer.admin.fetchval("SELECT count(DISTINCT wrapped) FROM core.data_key") == 2, "a key for each"
    assert await _values(sealer, CONTENT) == [b'{"text":"one"}', b'{"text":"two"}']
    usage = await sealer.admin.fetchval("SELECT content_bytes FROM core.scope_head WHERE content_bytes > 0")
    assert usage == 2 * len('{"text":"one"}'), "a seal counts for nobody"


async def test_an_erasure_destroys_the_keys_of_its_versions_and_no_others(sealer: Writer) -> None:
    first = await sealer.create({"text": "one"})
    second = await sealer.update(first, {"text": "two"})
    change = sealer.change(
        second, policy_basis="asked", redaction_target={"whole": True}, version_ids=[first["version_id"]]
    )
    await sealer.ok("redact", change)
    assert await _values(sealer, CONTENT) == [None, b'{"text":"two"}', b'{"text":"two"}']
    keyed = await sealer.admin.fetch("SELECT ledger_seq FROM core.data_key ORDER BY 1")
    assert [row[0] for row in keyed] == [second["ledger_sequence"], second["ledger_sequence"] + 1]
    compared = "SELECT from_seq FROM core.version_span WHERE private IS NULL"
    assert [row[0] for row in await sealer.admin.fetch(compared)] == [first["ledger_sequence"]]


async def test_rows_that_were_swapped_or_changed_do_not_open(sealer: Writer) -> None:
    await made(sealer, values("V")[:2])
    await sealer.admin.execute(
        "UPDATE core.version_private p SET content = o.content FROM core.version_private o "
        "WHERE o.scope_key = p.scope_key AND o.ledger_seq <> p.ledger_seq"
    )
    with pytest.raises(InternalError, match="was changed"):
        await _values(sealer, CONTENT)


async def test_a_value_whose_key_is_gone_is_an_error_and_never_bytes(sealer: Writer) -> None:
    await made(sealer, values("V")[:1])
    await sealer.admin.execute("DELETE FROM core.data_key")
    with pytest.raises(ServiceUnavailable):
        await _values(sealer, CONTENT)


async def test_a_missing_or_another_key_is_told_at_the_start(
    sealer: Writer, database: Database, write_bus: NatsAddress
) -> None:
    with pytest.raises(ServiceUnavailable, match="'first', which PAMSPEC_ENCRYPTION_KEYS does not name"):
        await _sealer(database, write_bus)
    with pytest.raises(ServiceUnavailable, match="'first' of PAMSPEC_ENCRYPTION_KEYS is not the one"):
        await _sealer(database, write_bus, first=SECOND)
    with pytest.raises(ValueError, match="not 32 bytes") as error:
        await _sealer(database, write_bus, first="c2hvcnQ=")
    assert "c2hvcnQ" not in str(error.value)
    assert await sealer.admin.fetchval("SELECT array_agg(kid) FROM core.key_encryption_key") == ["first"]


async def test_a_new_key_seals_what_is_new_and_takes_over_what_is_old(
    sealer: Writer, database: Database, write_bus: NatsAddress
) -> None:
    await sealer.create({"text": "one"})
    later = await _sealer(database, write_bus, second=SECOND, first=FIRST)
    later.scope, later.scopes = sealer.scope, sealer.scopes
    await later.create({"text": "two"})
    both = [b'{"text":"one"}', b'{"text":"two"}']
    assert await _values(later, CONTENT) == both
    kids = "SELECT array_agg(kid ORDER BY ledger_seq) FROM core.data_key"
    assert await later.admin.fetchval(kids) == ["first", "second"]
    ring, scopes = later.settings.key_ring(), [await later.scope_key()]
    assert not await sealed.retire(later.admin, "first"), "it still wraps"
    done = [some async for some in sealed.each_scope(later.admin, ring, scopes, sealed.rewrap_step)]
    assert (sum(done), await later.admin.fetchval(kids)) == (1, ["second", "second"])
    assert await sealed.retire(later.admin, "first")
    await stopped(later)
    last = await _sealer(database, write_bus, second=SECOND)
    last.scope, last.scopes = sealer.scope, sealer.scopes
    assert await _values(last, CONTENT) == both
    await stopped(last)


async def test_what_was_in_clear_is_sealed_step_by_step(
    writer: Writer, database: Database, write_bus: NatsAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed, "STEP", 3)
    kept = values("KEPT")
    objects = await made(writer, kept)
    await writer.delete(objects[0])
    later = await _sealer(database, write_bus, first=FIRST)
    later.scope, later.scopes = writer.scope, writer.scopes
    before, key = await _values(later, CONTENT), await later.scope_key()
    ring = later.settings.key_ring()
    walk = sealed.each_scope(later.admin, ring, [key], sealed.seal_step)
    assert await anext(walk) == 3
    await walk.aclose()
    assert await _values(later, CONTENT) == before, "half done, all of it can be read"
    done = [some async for some in sealed.each_scope(later.admin, ring, [key], sealed.seal_step)]
    assert sum(done) == len(objects) - 3, "not again what is sealed, and nothing of what is erased but its tombstone"
    assert await _values(later, CONTENT) == before
    assert await sealed.counts(later.admin, ring, key) == (len(objects), len(objects), 0)
    await stopped(later)


async def test_the_files_never_have_a_sealed_value_and_lose_its_projection_with_the_rewrite(sealer: Writer) -> None:
    kept, gone = values("KEPT"), values("GONE")
    await made(sealer, kept)
    objects = await made(sealer, gone)
    assert await on_disk(sealer.admin, kept + gone) >= set(kept), "the projection for queries is in clear"
    await sealer.admin.execute("CHECKPOINT")
    canonical = await sealer.admin.fetchval("SELECT pg_read_binary_file(pg_relation_filepath('core.version_private'))")
    assert len(canonical) > 0
    assert not any(value in canonical for value in kept + gone)
    await deleted(sealer, objects)
    assert "core.data_key" in await rewrite(sealer.admin), "old keys are bytes too"
    assert await on_disk(sealer.admin, kept + gone) == set(kept)


def test_a_ring_binds_a_seal_to_its_place() -> None:
    ring = KeyRing({"a": decoded("a", FIRST.encode())})
    one, two = (ring.seal(1, sequence, b"salt", b"content", b"private") for sequence in (7, 8))
    assert one.content != two.content

    def carried(part: bytes, sequence: int, value: bytes | None, wrapped: bytes) -> bytes:
        assert value is not None
        place = (1).to_bytes(8) + sequence.to_bytes(8)
        return CARRIED + part + place + (1).to_bytes(4) + b"a" + wrapped + value

    assert ring.open(carried(b"c", 7, one.content, one.wrapped)) == b"content"
    for part, sequence, value, wrapped in (
        (b"p", 7, one.content, one.wrapped),
        (b"c", 8, one.content, one.wrapped),
        (b"c", 7, two.content, one.wrapped),
        (b"c", 7, two.content, two.wrapped),
    ):
        with pytest.raises(InternalError):
            ring.open(carried(part, sequence, value, wrapped))
    with pytest.raises(WrongKey):
        KeyRing({"a": decoded("a", SECOND.encode())}).check({"a": ring.proof("a")})
