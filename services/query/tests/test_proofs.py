"""get_checkpoint and prove_ledger: what was signed, what is proved from it, and what can't be."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator

import nats as nats_client
import pytest
import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import EmbeddedNats, NatsAddress
from pamspec_common.checkpoint_bucket import CheckpointBucket, Entry
from pamspec_common.checkpoints import Checkpoint, Signer, hash_bytes, hash_text
from pamspec_common.ids import subject_token
from pamspec_common.instants import wire
from pamspec_common.ledger import entry_hash, genesis
from pamspec_common.merkle import Frontier, extends, includes, leaf_hash, leaf_hashes
from services.query.tests.door import Conn, Door, limited
from services.query.tests.seeds import TENANT, Scope

SCOPE = "workspace:a"
SIGNER = Signer.of_seed(base64.b64encode(bytes(range(32))).decode())
KEYS = {SIGNER.key_id: base64.b64encode(SIGNER.public_key).decode()}


def tree(scope: Scope, size: int) -> Frontier:
    found = Frontier()
    found.extend(leaf_hashes(row[7] for row in scope.ledger[:size]))
    return found


def signed(scope: Scope, size: int) -> Checkpoint:
    return SIGNER.sign(
        Checkpoint(
            scope_id=scope.scope_id,
            ledger_id=scope.ledger_id.hex(),
            ledger_epoch=scope.epoch,
            size=size,
            head_hash=hash_text(scope.ledger[size - 1][7]),
            root=hash_text(tree(scope, size).root()),
            made_at=wire(scope.now),
            key_id="",
        )
    )


async def keep(seeding: Conn, scope: Scope, size: int) -> Checkpoint:
    """As the relay stores a checkpoint."""
    checkpoint, frontier = signed(scope, size), Frontier()
    nodes = frontier.extend(leaf_hashes(row[7] for row in scope.ledger[:size]))
    await seeding.execute("DELETE FROM relay.checkpoint WHERE scope_key = $1", scope.key)
    await seeding.execute(
        "INSERT INTO relay.checkpoint VALUES ($1, 0, $2, $3, 1, $4, 1, now())",
        scope.key, size, frontier.to_bytes(), checkpoint.document(),
    )  # fmt: skip
    await seeding.executemany(
        "INSERT INTO relay.tree_node VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        [(scope.key, node.height, node.position, root) for node, root in nodes.items()],
    )
    return checkpoint


@pytest_asyncio.fixture
async def scope(seeding: Conn) -> Scope:
    """Seven hundred entries, the first six hundred of them signed."""
    made = Scope(SCOPE)
    for index in range(700):
        made.put(f"obj:{index % 90}", index)
    await made.flush(seeding)
    await keep(seeding, made, 600)
    return made


@pytest_asyncio.fixture
async def proving(database: Database, door: Door) -> AsyncIterator[Door]:
    """A service that knows the key."""
    async with limited(database, door.principal, checkpoint_public_keys=KEYS, anchor_wait_ms=200) as found:
        yield found


async def test_the_newest_checkpoint_and_its_keys(seeding: Conn, scope: Scope, proving: Door) -> None:
    found = await proving.ok("get_checkpoint", scope_id=SCOPE)
    assert found == {"checkpoint": json.loads(signed(scope, 600).document()), "public_keys": KEYS}
    empty = Scope("workspace:empty")
    await empty.flush(seeding)
    assert await proving.ok("get_checkpoint", scope_id="workspace:empty") == {"checkpoint": None, "public_keys": KEYS}


@pytest.mark.parametrize("sequence", [1, 2, 255, 256, 257, 512, 513, 599, 600])
async def test_an_entry_is_proved(scope: Scope, proving: Door, sequence: int) -> None:
    found = await proving.ok("prove_ledger", scope_id=SCOPE, sequence=sequence)
    assert found["consistency"] is None
    inclusion, root = found["inclusion"], hash_bytes(found["checkpoint"]["root"])
    assert root == tree(scope, 600).root()
    event, stored = scope.ledger[sequence - 1][6:8]
    before = scope.ledger[sequence - 2][7] if sequence > 1 else genesis(scope.ledger_id)
    assert hash_bytes(inclusion["previous_hash"]) == before
    assert hash_bytes(inclusion["entry_hash"]) == stored == entry_hash(before, event)
    path = [hash_bytes(item) for item in inclusion["path"]]
    assert includes(leaf_hash(stored), sequence - 1, 600, path, root)


@pytest.mark.parametrize("first", [1, 2, 255, 256, 300, 511, 512, 599, 600])
async def test_an_earlier_size_is_proved(scope: Scope, proving: Door, first: int) -> None:
    found = await proving.ok("prove_ledger", scope_id=SCOPE, **{"from": first})
    assert found["inclusion"] is None
    path = [hash_bytes(item) for item in found["consistency"]["path"]]
    assert extends(first, 600, path, tree(scope, first).root(), tree(scope, 600).root())


async def test_what_can_not_be_proved(seeding: Conn, scope: Scope, proving: Door) -> None:
    """Beyond the head never, beyond the checkpoint not yet, and nothing without something to prove."""
    for beyond in ({"sequence": 701}, {"from": 701}):
        error = await proving.refused("prove_ledger", scope_id=SCOPE, **beyond)
        assert (error["code"], error["details"]["reason"]) == ("invalid_request", "position_future")
    for unsigned in ({"sequence": 601}, {"from": 700}, {"sequence": 1, "from": 650}):
        error = await proving.refused("prove_ledger", scope_id=SCOPE, **unsigned)
        assert (error["code"], error["retryable"]) == ("service_unavailable", True)
    assert (await proving.refused("prove_ledger", scope_id=SCOPE))["code"] == "invalid_request"
    assert (await proving.refused("prove_ledger", scope_id=SCOPE, sequence=0))["code"] == "invalid_request"
    unsigned_scope = Scope("workspace:unsigned")
    unsigned_scope.put("obj:x", 1)
    await unsigned_scope.flush(seeding)
    error = await proving.refused("prove_ledger", scope_id="workspace:unsigned", sequence=1)
    assert error["code"] == "service_unavailable"
    await seeding.execute("DELETE FROM relay.tree_node")
    error = await proving.refused("prove_ledger", scope_id=SCOPE, sequence=1)
    assert error["code"] == "service_unavailable"


async def test_an_edited_entry_has_no_valid_proof(seeding: Conn, scope: Scope, proving: Door) -> None:
    await seeding.execute("ALTER TABLE core.ledger DISABLE TRIGGER insert_only")
    await seeding.execute("UPDATE core.ledger SET entry_hash = sha256('x') WHERE sequence = 590")
    found = await proving.ok("prove_ledger", scope_id=SCOPE, sequence=590)
    path = [hash_bytes(item) for item in found["inclusion"]["path"]]
    leaf = leaf_hash(hash_bytes(found["inclusion"]["entry_hash"]))
    assert not includes(leaf, 589, 600, path, hash_bytes(found["checkpoint"]["root"]))


async def test_another_tenant_sees_nothing(seeding: Conn, scope: Scope, proving: Door) -> None:
    stranger = proving.as_("agent:other", tenant_id="tenant:other")
    for operation, more in (("get_checkpoint", {}), ("prove_ledger", {"sequence": 1})):
        assert (await stranger.refused(operation, scope_id=SCOPE, **more))["code"] == "scope_not_found"


async def test_anchors_are_missing_unreachable_or_compared(
    database: Database, seeding: Conn, scope: Scope, door: Door, proving: Door, nats_process: EmbeddedNats,
    nats: NatsAddress,
) -> None:  # fmt: skip
    """Only what is there and says something else is a problem."""

    async def told(by: Door) -> tuple[bool, list[tuple[str, str]]]:
        found = await by.ok("verify_ledger", scope_id=SCOPE)
        return found["ok"], [(anchor["place"], anchor["status"]) for anchor in found["anchors"]]

    assert await told(door) == (True, [])
    assert await told(proving) == (True, [("bucket", "unreachable")])
    client = await nats_client.connect(nats.url, nkeys_seed_str=nats.service_seed)
    bucket = CheckpointBucket(client)
    options = {"nats_url": nats.url, "nats_nkey_seed": nats.service_seed, "checkpoint_public_keys": KEYS}
    place = subject_token(TENANT), subject_token(TENANT, SCOPE)
    async with limited(database, door.principal, **options) as anchored:
        assert await told(anchored) == (True, [("bucket", "missing")])
        await bucket.ensure()
        assert await told(anchored) == (True, [("bucket", "missing")])
        (last,) = await bucket.put([Entry(*place, signed(scope, 600).document(), 0)])
        assert await told(anchored) == (True, [("bucket", "ok")])
        stranger = Signer.of_seed(base64.b64encode(b"s" * 32).decode()).sign(signed(scope, 600))
        for document, status, ok in (
            (stranger.document(), "unknown_key", True),
            (b"{}", "forged", False),
            (signed(scope, 600).document().replace(b'"size":600', b'"size":500'), "forged", False),
            (signed(Scope("workspace:b", ledger=scope.ledger), 9).document(), "foreign", False),
        ):
            (last,) = await bucket.put([Entry(*place, document, last or 0)])
            assert await told(anchored) == (ok, [("bucket", status)])
        scope.epoch = 2
        (last,) = await bucket.put([Entry(*place, signed(scope, 600).document(), last or 0)])
        assert await told(anchored) == (False, [("bucket", "beyond")])
        problem = (await anchored.ok("verify_ledger", scope_id=SCOPE))["first_problem"]
        assert (problem["sequence"], problem["kind"]) == (600, "anchor_beyond")
    await client.close()
