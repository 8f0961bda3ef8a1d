"""`pamspec checkpoints accept|rotate`: what an operator says of the signed past."""

import argparse
import asyncio

from pamspec_cli import anchors, development
from pamspec_cli.commands.verify import connected, database_url
from pamspec_cli.connection import OK, Misused, reporting
from pamspec_cli.data import DataDirectory, chosen
from pamspec_cli.deployment import checkpoint_keys
from pamspec_cli.restoring.accepting import accepting

SUMMARY = "accept a ledger after a restore, or change the key that signs"

SCOPE_SQL = "SELECT scope_key FROM core.resolve_scope($1, $2)"


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
    async with connected(database_url(data)) as connection, anchors.places(data) as places:
        scope_key = await connection.fetchval(SCOPE_SQL, tenant_id, scope_id)
        if scope_key is None:
            raise Misused(f"no such scope: {scope_id}")
        checkpoint = await (await accepting(connection, places, data)).accept(tenant_id, scope_id, scope_key)
    print(f"{scope_id}: {checkpoint.size} entries signed in epoch {checkpoint.ledger_epoch} by {checkpoint.key_id}")
    return OK
