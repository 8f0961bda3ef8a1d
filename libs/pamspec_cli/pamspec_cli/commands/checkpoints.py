"""`pamspec checkpoints accept|rotate`: what an operator says of the signed past."""

import argparse
import asyncio
import os
from collections.abc import Sequence

import asyncpg

from pamspec_cli import anchors, development
from pamspec_cli.commands.verify import connected, database_url
from pamspec_cli.connection import OK, Misused, reporting
from pamspec_cli.data import DataDirectory, chosen
from pamspec_cli.deployment import checkpoint_keys
from pamspec_common.checkpoint_bucket import CheckpointBucket, Entry
from pamspec_common.checkpoint_files import CheckpointFiles
from pamspec_common.checkpoints import Checkpoint, Signer, hash_text, read
from pamspec_common.ids import subject_token
from pamspec_common.instants import wire
from pamspec_common.postgres import scoped
from pamspec_common.verification import walk
from pamspec_common.verification.rules import Chain

SUMMARY = "accept a ledger after a restore, or change the key that signs"

SCOPE_SQL = "SELECT scope_key FROM core.resolve_scope($1, $2)"
# Refuses by finding no row when the scope was written since it was verified.
RAISE_SQL = """
UPDATE core.scope_head SET ledger_epoch = $4, revision = revision + 1
WHERE scope_key = $1 AND last_seq = $2 AND last_hash = $3 RETURNING clock_timestamp()
"""
FORGET_SQL = """
WITH nodes AS (DELETE FROM relay.tree_node WHERE scope_key = $1) DELETE FROM relay.checkpoint WHERE scope_key = $1
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    accept = actions.add_parser("accept", help="sign what a scope's ledger is now, in a new epoch, against its anchors")
    accept.add_argument("--scope", required=True, metavar="ID", help="the scope whose ledger was restored on purpose")
    accept.add_argument(
        "--tenant", default=development.TENANT_ID, metavar="ID", help=f"its tenant (default: {development.TENANT_ID})"
    )
    rotate = actions.add_parser("rotate", help="make a new key; it signs from the next start on")
    for action in (accept, rotate):
        action.add_argument("--data", metavar="DIR", help="the data directory (PAMSPEC_DATA, else ./.data)")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done."""
    data = DataDirectory(chosen(arguments.data))
    if arguments.action == "rotate":
        print(f"key {checkpoint_keys(data).rotate()} signs from the next  pamspec up  on; older ones stay known")
        return OK
    return asyncio.run(_accept(data, arguments.tenant, arguments.scope))


async def _accept(data: DataDirectory, tenant_id: str, scope_id: str) -> int:
    signer = _signer(data)
    async with connected(database_url(data)) as connection, anchors.places(data) as places:
        if places.client is None:
            raise Misused("the bus does not answer, and the bucket of checkpoints is there: start it first")
        scope_key = await connection.fetchval(SCOPE_SQL, tenant_id, scope_id)
        if scope_key is None:
            raise Misused(f"no such scope: {scope_id}")
        bucket, tokens = CheckpointBucket(places.client), (subject_token(tenant_id), subject_token(tenant_id, scope_id))
        await bucket.ensure()
        held = await bucket.get(*tokens)
        async with scoped(connection, [scope_key]):
            chain = await walk.verify(connection, scope_key)
            _check(chain)
            in_files = (places.files or {}).get(chain.trust.ledger_id.hex())
            epoch = 1 + max([chain.trust.ledger_epoch, *_epochs(None if held is None else held.document, in_files)])
            checkpoint = await _raise(connection, scope_key, chain, epoch, signer)
        document = checkpoint.document()
        (sequence,) = await bucket.put([Entry(*tokens, document, 0 if held is None else held.sequence)])
        if sequence is None:
            raise Misused("somebody else has signed this scope meanwhile: look at  pamspec verify  and try again")
        CheckpointFiles(anchors.directory(data)).append([document])
    print(f"{scope_id}: {checkpoint.size} entries signed in epoch {epoch} by {checkpoint.key_id}")
    return OK


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


def _epochs(document: bytes | None, in_files: Checkpoint | None) -> Sequence[int]:
    """The epochs that were signed; what can't be read says nothing."""
    found = [] if in_files is None else [in_files.ledger_epoch]
    try:
        return found if document is None else [*found, read(document).ledger_epoch]
    except ValueError:
        return found


async def _raise(
    connection: "asyncpg.Connection[asyncpg.Record]", scope_key: int, chain: Chain, epoch: int, signer: Signer
) -> Checkpoint:
    """The scope enters the epoch, and its tree will be built anew; what is to be signed of it."""
    trust = chain.trust
    now = await connection.fetchval(RAISE_SQL, scope_key, trust.last_seq, trust.last_hash, epoch)
    if now is None:
        raise Misused("the scope was written meanwhile: try again")
    await connection.execute(FORGET_SQL, scope_key)
    return signer.sign(
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
