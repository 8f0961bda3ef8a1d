"""Nine edits that the owner of the tables makes directly, with triggers disabled and all that can be computed anew.

Each is found by `pamspec verify` and by the service, which name the scope, the sequence and what is wrong. Where the
owner has made the chain anew, nothing in PostgreSQL contradicts itself, and only what was signed outside tells.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import asyncpg
import nats as nats_client
import pytest
import pytest_asyncio

from conftest import TemplateDatabase
from libs.pamspec_cli.tests.tampered import MOVE_DOWN, PROVENANCE, World, command, removed, verified
from pamspec_cli.data import DataDirectory
from pamspec_cli.servers import databases
from pamspec_client.documents import Expression
from pamspec_common.instants import wire
from pamspec_common.ledger import Keyed
from pamspec_common.strict_json import dumps, loads


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(
    template_database: TemplateDatabase, valkey_server: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    name = databases.new_name("pamspec_tampering")
    await databases.create_database(template_database.server_dsn, name, template_database.name)
    directory: Path = tmp_path_factory.mktemp("tampering")
    with DataDirectory(directory / "data") as data:
        for role, password in template_database.passwords.items():
            data.secret(role, partial(str, password))
        made = World(data, template_database.server_dsn, name, valkey_server)
        await made.start()
        yield made
        await made.stop()
    await databases.drop_database(template_database.server_dsn, name)


async def test_a_whole_ledger_is_anchored_in_both_places(world: World) -> None:
    ledger = await world.scope()
    (scope,) = (await verified(world, "--scope", ledger.scope_id))["scopes"]
    assert [(anchor["place"], anchor["status"], anchor["size"]) for anchor in scope["anchors"]] == [
        ("bucket", "ok", 7),
        ("files", "ok", 7),
    ]
    assert await ledger.found() == []


async def test_1_edited_content(world: World) -> None:
    ledger = await world.scope()
    await ledger.edit("UPDATE core.version_private SET content = '{\"n\":9}' WHERE scope_key = $1 AND ledger_seq = 2")
    assert await ledger.found() == [(2, "content_differs")]


async def test_1_edited_content_with_its_digests(world: World) -> None:
    """The salt is in the table, so the owner can key a digest of his own, and chain it."""
    ledger = await world.scope()
    conn = world.conn
    row = await conn.fetchrow(
        "SELECT p.salt, v.metadata FROM core.version_private p JOIN core.version v USING (scope_key, ledger_seq)"
        " WHERE scope_key = $1 AND ledger_seq = 2",
        ledger.key,
    )
    assert row is not None
    salt, metadata = row
    changed = dumps({**loads(metadata), "content_digest": Keyed(salt).digest("content", b'{"n":9}')})
    await ledger.edit(
        "UPDATE core.version_private SET content = '{\"n\":9}' WHERE scope_key = $1 AND ledger_seq = 2",
        f"UPDATE core.version SET metadata = '\\x{changed.hex()}' WHERE scope_key = $1 AND ledger_seq = 2",
    )
    await ledger.rechain()
    assert await ledger.found() == [(7, "anchor_differs")]


async def test_2_edited_metadata(world: World) -> None:
    ledger = await world.scope()
    edit = (
        "UPDATE core.version SET metadata = convert_to(replace(convert_from(metadata, 'UTF8'), 'unverified',"
        " 'corroborated'), 'UTF8') WHERE scope_key = $1 AND ledger_seq = 2"
    )
    state = "UPDATE core.version_span SET validation_state = 'corroborated' WHERE scope_key = $1 AND from_seq = 2"
    await ledger.edit(edit, state)
    assert await ledger.found() == [(2, "metadata_differs")]
    await ledger.rechain()
    assert await ledger.found() == [(7, "anchor_differs")]


async def test_3_deleted_middle(world: World) -> None:
    ledger = await world.scope()
    await ledger.edit(*removed(1))
    assert await ledger.found() == [(1, "entry_missing"), (2, "chain_broken"), (7, "anchor_differs")]
    await ledger.edit(*MOVE_DOWN)
    await ledger.rechain()
    assert await ledger.found() == [(7, "anchor_beyond")]


async def test_4_truncated_tail(world: World) -> None:
    """The head is moved along, so that PostgreSQL itself knows of no more entries."""
    ledger = await world.scope()
    await ledger.edit(
        *removed(7),
        *removed(6),
        "UPDATE core.version_span SET to_seq = 9223372036854775807 WHERE scope_key = $1 AND to_seq IN (6, 7)",
        "UPDATE core.scope_head h SET last_seq = 5, last_hash = l.entry_hash FROM core.ledger l"
        " WHERE h.scope_key = $1 AND l.scope_key = $1 AND l.sequence = 5",
    )
    found = await ledger.found()
    assert (7, "anchor_beyond") in found
    # What a deletion erased does not come back: nothing tells of it any more.
    assert found == [(4, "content_missing"), (7, "anchor_beyond")]


async def test_5_reordering(world: World) -> None:
    ledger = await world.scope()
    swap = (
        "UPDATE core.{0} SET {1} = -1 WHERE scope_key = $1 AND {1} = 1",
        "UPDATE core.{0} SET {1} = 1 WHERE scope_key = $1 AND {1} = 2",
        "UPDATE core.{0} SET {1} = 2 WHERE scope_key = $1 AND {1} = -1",
    )
    tables = (("ledger", "sequence"), ("version", "ledger_seq"), ("version_private", "ledger_seq"),
              ("version_span", "from_seq"))  # fmt: skip
    await ledger.edit(*(step.format(table, column) for table, column in tables for step in swap))
    found = await ledger.found()
    assert found[0] == (1, "chain_broken")
    assert (1, "entry_differs") in found
    await ledger.edit(
        "UPDATE core.ledger l SET recorded_at = o.recorded_at FROM core.ledger o"
        " WHERE l.scope_key = $1 AND o.scope_key = $1 AND l.sequence + o.sequence = 3"
    )
    times = await world.conn.fetch(
        "SELECT sequence, event, recorded_at FROM core.ledger WHERE scope_key = $1 AND sequence <= 2", ledger.key
    )
    for sequence, event, at in times:
        changed = dumps({**loads(event), "recorded_at": wire(at)})
        await ledger.edit(
            f"UPDATE core.ledger SET event = '\\x{changed.hex()}' WHERE scope_key = $1 AND sequence = {sequence}"
        )
    await ledger.rechain()
    assert await ledger.found() == [(7, "anchor_differs")]


async def test_6_forged_insert(world: World) -> None:
    """An entry of the owner's own at the end, chained, with the head moved; then one in the middle."""
    ledger = await world.scope()
    forged = (
        "INSERT INTO core.ledger SELECT scope_key, 8, 'evt:forged', 'index_rebuilt', NULL, recorded_at,"
        " convert_to(jsonb_build_object('event_id', 'evt:forged', 'event_type', 'index_rebuilt', 'scope_id',"
        " convert_from(event, 'UTF8')::jsonb -> 'scope_id', 'recorded_at', convert_from(event, 'UTF8')::jsonb ->"
        " 'recorded_at', 'sequence', 8, 'payload', '{}'::jsonb)::text, 'UTF8'), entry_hash FROM core.ledger"
        " WHERE scope_key = $1 AND sequence = 7"
    )
    await ledger.edit(forged)
    assert await ledger.found() == [(8, "entry_foreign")]
    await ledger.edit(
        "UPDATE core.ledger SET sequence = -sequence WHERE scope_key = $1 AND sequence IN (7, 8)",
        "UPDATE core.ledger SET sequence = 7 WHERE scope_key = $1 AND sequence = -8",
        "UPDATE core.ledger SET sequence = 8 WHERE scope_key = $1 AND sequence = -7",
        "UPDATE core.version SET ledger_seq = 8 WHERE scope_key = $1 AND ledger_seq = 7",
        "UPDATE core.version_private SET ledger_seq = 8 WHERE scope_key = $1 AND ledger_seq = 7",
        "UPDATE core.version_span SET from_seq = 8 WHERE scope_key = $1 AND from_seq = 7",
        "UPDATE core.version_span SET to_seq = 8 WHERE scope_key = $1 AND to_seq = 7",
    )
    await ledger.rechain()
    assert (7, "anchor_differs") in await ledger.found()


async def test_7_cross_scope_replay(world: World) -> None:
    """The whole ledger of one scope, root and all, in the place of another's; then with the names changed too."""
    source, target = await world.scope(), await world.scope()
    copies = []
    for table in ("ledger", "version", "version_private", "version_span"):
        columns = await world.conn.fetchval(
            "SELECT string_agg(column_name, ', ' ORDER BY ordinal_position) FROM information_schema.columns"
            " WHERE table_schema = 'core' AND table_name = $1 AND column_name <> 'scope_key'",
            table,
        )
        copies += [
            f"DELETE FROM core.{table} WHERE scope_key = $1",
            f"INSERT INTO core.{table} (scope_key, {columns}) SELECT {target.key}, {columns} FROM core.{table}"
            f" WHERE scope_key = {source.key}",
        ]
    await target.edit(
        *copies,
        f"UPDATE core.scope t SET ledger_id = s.ledger_id FROM core.scope s"
        f" WHERE t.scope_key = $1 AND s.scope_key = {source.key}",
        f"UPDATE core.scope_head t SET last_hash = s.last_hash FROM core.scope_head s"
        f" WHERE t.scope_key = $1 AND s.scope_key = {source.key}",
    )
    found = await target.found()
    assert (1, "entry_differs") in found
    assert (7, "anchor_foreign") in found
    rows = await world.conn.fetch("SELECT sequence, event FROM core.ledger WHERE scope_key = $1", target.key)
    for sequence, event in rows:
        changed = dumps({**loads(event), "scope_id": target.scope_id})
        await target.edit(
            f"UPDATE core.ledger SET event = '\\x{changed.hex()}' WHERE scope_key = $1 AND sequence = {sequence}"
        )
    await target.rechain()
    assert (7, "anchor_foreign") in await target.found()
    assert await source.found() == []


async def test_8_rollback_of_one_record(world: World) -> None:
    """The update of one object is undone: in what readers see; then with its version and its entry."""
    ledger = await world.scope()
    await ledger.edit(
        "DELETE FROM core.version_span WHERE scope_key = $1 AND from_seq = 5",
        "UPDATE core.version_span SET to_seq = 9223372036854775807 WHERE scope_key = $1 AND to_seq = 5",
    )
    expression: Expression = {"kind": "structured", "trust": "all"}
    page = await world.client.query(scope_id=ledger.scope_id, query=expression)
    shown = {item.envelope.object_id: item.envelope.content for item in page.items}
    assert shown["obj:2"] == {"n": 2}, "a query shows the older version"
    assert await ledger.found() == [(5, "state_differs")]
    await ledger.edit(
        "DELETE FROM core.version WHERE scope_key = $1 AND ledger_seq = 5",
        "DELETE FROM core.version_private WHERE scope_key = $1 AND ledger_seq = 5",
    )
    assert await ledger.found() == [(5, "version_missing")]
    told = await world.conn.fetchval("SELECT event FROM core.ledger WHERE scope_key = $1 AND sequence = 5", ledger.key)
    event = {**loads(told), "event_type": "index_rebuilt", "payload": {}}
    del event["version_id"]
    await ledger.edit(f"UPDATE core.ledger SET event = '\\x{dumps(event).hex()}' WHERE scope_key = $1 AND sequence = 5")
    await ledger.rechain()
    assert await ledger.found() == [(7, "anchor_differs")]


async def test_9_rollback_of_the_whole_database(world: World) -> None:
    """An older copy of the database in its place: one scope goes back, one is gone; and history goes on from there."""
    first = await world.scope()
    copy = databases.new_name("pamspec_copy")

    async def save(admin: asyncpg.Connection[asyncpg.Record]) -> None:
        await admin.execute(f'CREATE DATABASE "{copy}" TEMPLATE "{world.name}"')

    async def put_back(admin: asyncpg.Connection[asyncpg.Record]) -> None:
        await admin.execute(f'DROP DATABASE "{world.name}" WITH (FORCE)')
        await admin.execute(f'ALTER DATABASE "{copy}" RENAME TO "{world.name}"')

    await world.restart_on(save)
    await world.client.create(
        scope_id=first.scope_id, object_type="claim", canonical_content="later", provenance=PROVENANCE
    )
    await first.anchored(8)
    second = await world.scope()
    await world.restart_on(put_back)
    assert await first.found() == [(8, "anchor_beyond")]
    everything = await verified(world)
    lost = {item["scope_id"]: (item["size"], item["kind"]) for item in everything["missing_ledgers"]}
    assert lost[second.scope_id] == (7, "ledger_missing")
    assert first.scope_id not in lost
    for text in ("another", "history"):
        await world.client.create(
            scope_id=first.scope_id, object_type="claim", canonical_content=text, provenance=PROVENANCE
        )
    assert await first.found() == [(8, "anchor_differs")], "the relay has not signed over it"


async def test_an_operator_accepts_a_restore(world: World) -> None:
    """What was refused is then signed in a new epoch, proved from there on, and nothing else is."""
    ledger = await world.scope()
    await ledger.edit(
        *removed(7),
        *removed(6),
        "UPDATE core.version_span SET to_seq = 9223372036854775807 WHERE scope_key = $1 AND to_seq IN (6, 7)",
        "UPDATE core.scope_head h SET last_seq = 5, last_hash = l.entry_hash FROM core.ledger l"
        " WHERE h.scope_key = $1 AND l.scope_key = $1 AND l.sequence = 5",
    )
    arguments = ["checkpoints", "accept", "--scope", ledger.scope_id]
    assert await command(world, *arguments) == 2, "a ledger that is not whole is not accepted"
    # A real restore brings the content back with the entries.
    await ledger.edit(*removed(4), "UPDATE core.version_span SET from_seq = 4 WHERE scope_key = $1 AND from_seq = 5")
    await ledger.edit(
        "UPDATE core.ledger SET sequence = 4 WHERE scope_key = $1 AND sequence = 5",
        "UPDATE core.version SET ledger_seq = 4 WHERE scope_key = $1 AND ledger_seq = 5",
        "UPDATE core.version_private SET ledger_seq = 4 WHERE scope_key = $1 AND ledger_seq = 5",
        "UPDATE core.version_span SET to_seq = 4 WHERE scope_key = $1 AND to_seq = 5",
    )
    await ledger.rechain()
    assert await ledger.found() == [(7, "anchor_beyond")]
    assert await command(world, *arguments) == 0
    assert await ledger.found() == []
    head = "SELECT ledger_epoch FROM core.scope_head WHERE scope_key = $1"
    assert await world.conn.fetchval(head, ledger.key) == 2
    await world.client.create(
        scope_id=ledger.scope_id, object_type="claim", canonical_content="after", provenance=PROVENANCE
    )
    await ledger.anchored(5)
    assert await ledger.found() == []


async def test_a_rotated_key_signs_and_old_checkpoints_stay_good(world: World) -> None:
    ledger = await world.scope()
    before = (await world.client.get_checkpoint(scope_id=ledger.scope_id)).checkpoint
    assert await command(world, "checkpoints", "rotate") == 0

    async def nothing(admin: asyncpg.Connection[asyncpg.Record]) -> None:
        return None

    await world.restart_on(nothing)
    assert await ledger.found() == []
    await world.client.create(
        scope_id=ledger.scope_id, object_type="claim", canonical_content="after", provenance=PROVENANCE
    )
    await ledger.anchored(8)
    answer = await world.client.get_checkpoint(scope_id=ledger.scope_id)
    assert before is not None
    assert answer.checkpoint is not None
    assert answer.checkpoint.key_id != before.key_id
    assert {before.key_id, answer.checkpoint.key_id} <= answer.public_keys.keys()
    assert await ledger.found() == []


async def test_a_missing_anchor_is_no_tampering(world: World) -> None:
    """Neither in the bucket nor in files; the same truncation is then seen as far as PostgreSQL tells."""
    ledger = await world.scope()
    url, seed = world.nats
    client = await nats_client.connect(url, nkeys_seed_str=seed)
    await client.request("$JS.API.STREAM.DELETE.KV_PAMSPEC_CHECKPOINTS", b"")
    await client.close()
    for file in (world.data.path / "checkpoints").glob("*.ndjson"):
        file.unlink()
    (scope,) = (await verified(world, "--scope", ledger.scope_id))["scopes"]
    assert scope["ok"]
    assert {(anchor["place"], anchor["status"]) for anchor in scope["anchors"]} <= {
        ("bucket", "missing"),
        ("bucket", "ok"),
        ("files", "missing"),
        ("files", "ok"),
    }
    told = json.loads((await world.client.call("verify_ledger", {"scope_id": ledger.scope_id})).body)
    assert told["ok"]
    assert told["anchors"][0]["status"] in ("missing", "ok")
