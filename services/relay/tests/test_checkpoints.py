"""Checkpoints of ledgers: signed, anchored in the bucket and in files, never against what is anchored already."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client

from pamspec_cli.servers.nats import EmbeddedNats
from pamspec_common import contracts
from pamspec_common.checkpoint_bucket import CheckpointBucket
from pamspec_common.checkpoint_files import CheckpointFiles
from pamspec_common.checkpoints import STREAM, Checkpoint, Signer, hash_bytes, is_signed, read
from pamspec_common.merkle import Frontier, Node, includes, inclusion_path, leaf_hash, leaf_hashes, span_root
from pamspec_common.service import Service
from pamspec_common.streams import StreamRefused
from services.relay.tests.conftest import StartRelay
from services.relay.tests.ledger_rows import Ledger, Scope, until

SEED = base64.b64encode(bytes(range(32))).decode()
SIGNER = Signer.of_seed(SEED)
KEYS = {SIGNER.key_id: SIGNER.public_key}


def signing(directory: Path) -> dict[str, Any]:
    """Settings of a relay that signs."""
    return {
        "checkpoint_key": SEED,
        "checkpoint_dir": directory,
        "checkpoint_ms": 50,
        "checkpoint_scan_ms": 200,
    }


async def anchored(client: Client, scope: Scope) -> Checkpoint | None:
    """The checkpoint that the bucket holds."""
    held = await CheckpointBucket(client).get(scope.tenant_token, scope.scope_token)
    return None if held is None else read(held.document)


async def until_anchored(client: Client, scopes: Sequence[Scope], timeout_s: float = 20.0) -> list[Checkpoint]:
    """Wait until the bucket holds the head of each scope."""

    async def there() -> bool:
        try:
            found = [await anchored(client, scope) for scope in scopes]
        except (nats.errors.Error, StreamRefused):
            return False
        return [item and item.size for item in found] == [scope.last_seq for scope in scopes]

    await until(there, timeout_s, 0.02)
    return [item for scope in scopes if (item := await anchored(client, scope)) is not None]


async def entry_hashes(ledger: Ledger, scope: Scope) -> list[bytes]:
    rows = await ledger.conn.fetch(
        "SELECT entry_hash FROM core.ledger WHERE scope_key = $1 ORDER BY sequence", scope.scope_key
    )
    return [row[0] for row in rows]


async def detail(service: Service) -> Mapping[str, Any]:
    (part,) = [part for part in await service.readiness() if part.name == "checkpoints"]
    assert not part.essential
    return {**part.detail, "ok": part.ok}


async def test_every_scope_has_a_signed_checkpoint_in_bucket_files_and_store(
    ledger: Ledger, client: Client, start_relay: StartRelay, tmp_path: Path
) -> None:
    scopes = await ledger.add_scopes(30)
    await ledger.commit(scopes * 3)
    service = await start_relay(**signing(tmp_path))
    await until_anchored(client, scopes)
    await ledger.commit(scopes[:9] * 2, client)
    found = await until_anchored(client, scopes)
    in_files = CheckpointFiles(tmp_path).latest()
    for scope, checkpoint in zip(scopes, found, strict=True):
        hashes = await entry_hashes(ledger, scope)
        frontier = Frontier()
        frontier.extend(leaf_hashes(hashes))
        assert (checkpoint.scope_id, checkpoint.size) == (scope.scope_id, scope.last_seq)
        assert (checkpoint.ledger_epoch, checkpoint.key_id) == (1, SIGNER.key_id)
        assert hash_bytes(checkpoint.root) == frontier.root()
        assert hash_bytes(checkpoint.head_hash) == hashes[-1]
        assert is_signed(checkpoint, KEYS)
        contracts.check("checkpoint", json.loads(checkpoint.document()))
        assert in_files[checkpoint.ledger_id] == checkpoint

    async def stored() -> bool:
        rows = await ledger.conn.fetch("SELECT document, anchored_at FROM relay.checkpoint ORDER BY scope_key")
        return [bytes(row[0]) for row in rows] == [item.document() for item in found] and all(
            row[1] > 0 for row in rows
        )

    await until(stored)
    assert (await detail(service))["ok"]


async def test_a_new_entry_is_anchored_within_a_second(
    ledger: Ledger, client: Client, start_relay: StartRelay, tmp_path: Path
) -> None:
    """With the product's own interval."""
    (scope,) = await ledger.add_scopes(1)
    await ledger.commit([scope])
    await start_relay(**{**signing(tmp_path), "checkpoint_ms": 500})
    await until_anchored(client, [scope])
    took = []
    for _ in range(4):
        await ledger.commit([scope], client)
        started = time.monotonic()
        await until_anchored(client, [scope])
        took.append(time.monotonic() - started)
    assert min(took) < 1.0, took


async def test_many_entries_do_not_wait_for_the_interval(
    ledger: Ledger, client: Client, start_relay: StartRelay, tmp_path: Path
) -> None:
    (scope,) = await ledger.add_scopes(1)
    await start_relay(**{**signing(tmp_path), "checkpoint_ms": 60_000, "checkpoint_events": 100})
    await ledger.commit([scope] * 100, client)
    await until_anchored(client, [scope], 10)


async def test_proofs_come_from_the_nodes_that_were_kept(
    ledger: Ledger, client: Client, start_relay: StartRelay, tmp_path: Path
) -> None:
    (scope,) = await ledger.add_scopes(1)
    await start_relay(**signing(tmp_path))
    for count in (1, 255, 300, 2, 4000):
        await ledger.commit([scope] * count, client)
        (checkpoint,) = await until_anchored(client, [scope])
    hashes = await entry_hashes(ledger, scope)
    nodes = {Node(0, at): leaf_hash(found) for at, found in enumerate(hashes)}

    async def kept() -> bool:
        rows = await ledger.conn.fetch("SELECT height, position, hash FROM relay.tree_node")
        nodes.update({Node(row[0], row[1]): row[2] for row in rows})
        return len(rows) == len(hashes) // 256

    await until(kept)
    for index in (0, 255, 256, 4557):
        path = [span_root(span, nodes) for span in inclusion_path(index, checkpoint.size)]
        assert includes(leaf_hash(hashes[index]), index, checkpoint.size, path, hash_bytes(checkpoint.root))


async def test_without_the_bus_files_go_on_and_the_bucket_catches_up(
    ledger: Ledger, start_relay: StartRelay, nats_process: EmbeddedNats, client: Client, tmp_path: Path
) -> None:
    (scope,) = await ledger.add_scopes(1)
    await ledger.commit([scope])
    service = await start_relay(**signing(tmp_path))
    await until_anchored(client, [scope])
    await nats_process.stop()
    await ledger.commit([scope] * 3)

    async def in_files() -> bool:
        return [item.size for item in CheckpointFiles(tmp_path).latest().values()] == [4]

    await until(in_files)
    assert not (await detail(service))["ok"]
    await nats_process.start()
    await until_anchored(client, [scope], 30)

    async def well() -> bool:
        return bool((await detail(service))["ok"])

    await until(well)


async def test_a_bucket_that_is_gone_is_made_and_filled_again(
    ledger: Ledger, client: Client, start_relay: StartRelay, tmp_path: Path
) -> None:
    scopes = await ledger.add_scopes(8)
    await ledger.commit(scopes)
    await start_relay(**signing(tmp_path))
    await until_anchored(client, scopes)
    await client.request(f"$JS.API.STREAM.DELETE.{STREAM}", b"")
    await ledger.commit(scopes[:1], client)
    await until_anchored(client, scopes)


async def rolled_back(ledger: Ledger, scope: Scope, size: int) -> None:
    """The scope as it was, as a restore of the database leaves it."""
    await ledger.conn.execute("ALTER TABLE core.ledger DISABLE TRIGGER insert_only")
    await ledger.conn.execute("DELETE FROM core.ledger WHERE scope_key = $1 AND sequence > $2", scope.scope_key, size)
    await ledger.conn.execute("UPDATE core.scope_head SET last_seq = $2 WHERE scope_key = $1", scope.scope_key, size)
    await ledger.conn.execute("DELETE FROM relay.checkpoint WHERE scope_key = $1", scope.scope_key)
    scope.last_seq = size
    del scope.events[size:]


@pytest.mark.parametrize(("more", "said"), [(1, "5 entries are anchored"), (9, "are not those that are anchored")])
async def test_a_ledger_that_was_rolled_back_is_not_signed(
    ledger: Ledger, client: Client, start_relay: StartRelay, tmp_path: Path, more: int, said: str
) -> None:
    one, other = await ledger.add_scopes(2)
    await ledger.commit([one] * 5 + [other])
    service = await start_relay(**signing(tmp_path))
    await until_anchored(client, [one, other])
    await service.stop()
    before = await anchored(client, one)
    await rolled_back(ledger, one, 2)
    await ledger.commit([one] * more + [other])
    service = await start_relay(**signing(tmp_path))

    async def refused() -> bool:
        return (await detail(service)).get("refused") == 1

    await until(refused)
    found = await detail(service)
    assert not found["ok"]
    assert said in found["reasons"][0]
    await until_anchored(client, [other])
    assert await anchored(client, one) == before
    assert CheckpointFiles(tmp_path).latest()[before.ledger_id if before else ""] == before


async def test_a_ledger_that_lost_only_its_checkpoint_goes_on(
    ledger: Ledger, client: Client, start_relay: StartRelay, tmp_path: Path
) -> None:
    """Also in another epoch, and where the tree has to be built anew."""
    (scope,) = await ledger.add_scopes(1)
    await ledger.commit([scope] * 700)
    service = await start_relay(**signing(tmp_path))
    await until_anchored(client, [scope])
    await service.stop()
    await ledger.conn.execute("DELETE FROM relay.checkpoint; DELETE FROM relay.tree_node")
    await ledger.conn.execute("UPDATE core.scope_head SET ledger_epoch = 2")
    await ledger.commit([scope])
    service = await start_relay(**signing(tmp_path))
    (found,) = await until_anchored(client, [scope])
    assert (found.ledger_epoch, found.size) == (2, 701)
    assert "refused" not in await detail(service)


async def test_what_another_has_signed_is_not_followed(
    ledger: Ledger, client: Client, start_relay: StartRelay, tmp_path: Path
) -> None:
    (scope,) = await ledger.add_scopes(1)
    await ledger.commit([scope])
    service = await start_relay(**signing(tmp_path))
    (mine,) = await until_anchored(client, [scope])
    forged = Signer.of_seed(base64.b64encode(os.urandom(32)).decode()).sign(mine)
    subject = f"$KV.PAMSPEC_CHECKPOINTS.{scope.tenant_token}.{scope.scope_token}"
    await client.request(subject, forged.document())
    await ledger.commit([scope], client)

    async def refused() -> bool:
        return (await detail(service)).get("refused") == 1

    await until(refused)
    assert await anchored(client, scope) == forged


async def test_a_new_key_follows_an_old_one_whose_public_half_is_known(
    ledger: Ledger, client: Client, start_relay: StartRelay, tmp_path: Path
) -> None:
    (scope,) = await ledger.add_scopes(1)
    await ledger.commit([scope])
    service = await start_relay(**signing(tmp_path))
    await until_anchored(client, [scope])
    await service.stop()
    await ledger.conn.execute("UPDATE relay.checkpoint SET anchored_at = 0")
    seed = base64.b64encode(os.urandom(32)).decode()
    known = {SIGNER.key_id: base64.b64encode(SIGNER.public_key).decode()}
    await ledger.commit([scope])
    await start_relay(**{**signing(tmp_path), "checkpoint_key": seed, "checkpoint_public_keys": known})
    (found,) = await until_anchored(client, [scope])
    assert found.key_id == Signer.of_seed(seed).key_id


async def test_two_relays_do_not_collide(
    ledger: Ledger, client: Client, start_relay: StartRelay, tmp_path: Path
) -> None:
    """Partitions move between them while both sign; nothing is refused and every head is anchored."""
    scopes = [scope for partition in range(4) for scope in await ledger.add_scopes(3, partition)]
    await ledger.commit(scopes)
    options = {"partitions": 4}
    first = await start_relay(**signing(tmp_path / "a"), **options)
    await until_anchored(client, scopes)
    second = await start_relay(**signing(tmp_path / "b"), **options)
    for _ in range(20):
        await ledger.commit(scopes, client)
        await asyncio.sleep(0.02)
    await until_anchored(client, scopes)
    await first.stop()
    await ledger.commit(scopes, client)
    await until_anchored(client, scopes)
    assert "refused" not in await detail(second)


async def test_without_a_key_nothing_is_signed(ledger: Ledger, client: Client, start_relay: StartRelay) -> None:
    (scope,) = await ledger.add_scopes(1)
    await ledger.commit([scope])
    service = await start_relay()
    await ledger.drained()
    assert "checkpoints" not in [part.name for part in await service.readiness()]
    assert await ledger.conn.fetchval("SELECT count(*) FROM relay.checkpoint") == 0
