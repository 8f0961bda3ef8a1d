"""Accepting a ledger as it is now: the next epoch, and a signed checkpoint in every place, against what was there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg

from pamspec_cli import anchors
from pamspec_cli.connection import Misused
from pamspec_cli.data import DataDirectory
from pamspec_cli.deployment import checkpoint_keys
from pamspec_common.checkpoint_bucket import CheckpointBucket, Entry, Held
from pamspec_common.checkpoint_files import CheckpointFiles
from pamspec_common.checkpoints import Checkpoint, Signer, hash_text, read
from pamspec_common.ids import subject_token
from pamspec_common.instants import wire
from pamspec_common.ledger import genesis
from pamspec_common.merkle import EMPTY_ROOT
from pamspec_common.postgres import scoped
from pamspec_common.verification import walk
from pamspec_common.verification.rules import Chain

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

# Refuses by finding no row when the scope was written since it was verified.
RAISE_SQL = """
UPDATE core.scope_head SET ledger_epoch = $4, revision = revision + 1
WHERE scope_key = $1 AND last_seq = $2 AND last_hash = $3 RETURNING clock_timestamp()
"""
FORGET_SQL = """
WITH nodes AS (DELETE FROM relay.tree_node WHERE scope_key = $1) DELETE FROM relay.checkpoint WHERE scope_key = $1
"""


@dataclass(frozen=True)
class Accepting:
    """Signs what ledgers are now. `files` is the directory beside the bucket."""

    connection: Connection
    bucket: CheckpointBucket
    files: CheckpointFiles
    signer: Signer

    async def accept(self, tenant_id: str, scope_id: str, scope_key: int, epoch: int | None = None) -> Checkpoint:
        """What was signed of the scope in its new epoch: this one, or the one after all that were signed before.

        Misused where the ledger is not whole, is empty, or was written meanwhile.
        """
        tokens = subject_token(tenant_id), subject_token(tenant_id, scope_id)
        held = await self.bucket.get(*tokens)
        async with scoped(self.connection, [scope_key]):
            chain = await walk.verify(self.connection, scope_key)
            _check(chain)
            ledger_id = chain.trust.ledger_id.hex()
            if epoch is None:
                in_files = self.files.latest([ledger_id]).get(ledger_id)
                epoch = 1 + max(chain.trust.ledger_epoch, epoch_of(held), in_files.ledger_epoch if in_files else 0)
            checkpoint = await self._raise(scope_key, chain, epoch)
        await self._put(tokens, checkpoint, held)
        return checkpoint

    async def give_up(self, tokens: tuple[str, str] | None, lost: Checkpoint, held: Held | None, epoch: int) -> None:
        """Sign that a ledger which was signed before is lost: it has no entries in this epoch."""
        checkpoint = self.signer.sign(
            Checkpoint(
                scope_id=lost.scope_id,
                ledger_id=lost.ledger_id,
                ledger_epoch=epoch,
                size=0,
                head_hash=hash_text(genesis(bytes.fromhex(lost.ledger_id))),
                root=hash_text(EMPTY_ROOT),
                made_at=wire(await self.connection.fetchval("SELECT clock_timestamp()")),
                key_id="",
            )
        )
        if tokens is None:
            self.files.append([checkpoint.document()])
        else:
            await self._put(tokens, checkpoint, held)

    async def _put(self, tokens: tuple[str, str], checkpoint: Checkpoint, held: Held | None) -> None:
        document = checkpoint.document()
        (sequence,) = await self.bucket.put([Entry(*tokens, document, 0 if held is None else held.sequence)])
        if sequence is None:
            raise Misused("somebody else has signed this scope meanwhile: look at  pamspec verify  and try again")
        self.files.append([document])

    async def _raise(self, scope_key: int, chain: Chain, epoch: int) -> Checkpoint:
        """The scope enters the epoch, and its tree will be built anew; what is to be signed of it."""
        trust = chain.trust
        now = await self.connection.fetchval(RAISE_SQL, scope_key, trust.last_seq, trust.last_hash, epoch)
        if now is None:
            raise Misused("the scope was written meanwhile: try again")
        await self.connection.execute(FORGET_SQL, scope_key)
        return self.signer.sign(
            Checkpoint(
                scope_id=trust.scope_id,
                ledger_id=trust.ledger_id.hex(),
                ledger_epoch=epoch,
                size=trust.last_seq,
                head_hash=hash_text(trust.last_hash),
                root=hash_text(chain.tree.root()),
                made_at=wire(now),
                key_id="",
            )
        )


async def accepting(connection: Connection, places: anchors.Places, data: DataDirectory) -> Accepting:
    """Over the places of a deployment; Misused where the bus does not answer or there is no key."""
    if places.client is None:
        raise Misused("the bus does not answer, and the bucket of checkpoints is there: start it first")
    bucket = CheckpointBucket(places.client)
    await bucket.ensure()
    return Accepting(connection, bucket, CheckpointFiles(anchors.directory(data)), _signer(data))


def epoch_of(held: Held | None) -> int:
    """The epoch that was signed, 0 where nothing is held; what can't be read says nothing."""
    try:
        return 0 if held is None else read(held.document).ledger_epoch
    except ValueError:
        return 0


def _signer(data: DataDirectory) -> Signer:
    keys, given = checkpoint_keys(data), os.environ.get("PAMSPEC_CHECKPOINT_KEY")
    if given is None and not (keys.path / "active").is_file():
        raise Misused("there is no signing key here: set PAMSPEC_CHECKPOINT_KEY to that of the relay")
    try:
        return Signer.of_seed(given or keys.seed())
    except ValueError as error:
        raise Misused(f"PAMSPEC_CHECKPOINT_KEY: {error}") from None


def _check(chain: Chain) -> None:
    if chain.problems:
        first = chain.problems[0]
        raise Misused(f"the ledger itself is not whole (entry {first.sequence}: {first.kind}): see  pamspec verify")
    if not chain.trust.last_seq:
        raise Misused("the ledger is empty: there is nothing to sign")
