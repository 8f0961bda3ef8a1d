"""`pamspec keys create|list|revoke`: who may enter by the public door."""

import argparse
import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta

from pamspec_cli import development, keys
from pamspec_cli.connection import FAILED, OK, reporting
from pamspec_cli.data import DataDirectory, chosen
from pamspec_common.authorization.vocabulary import ROLES

SUMMARY = "make, list and revoke API keys"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make a key and show it, this once")
    create.add_argument("--actor", required=True, metavar="ID", help="for whom it stands, like agent:planner")
    create.add_argument("--kind", default="agent", help="what that is: agent, human, service (default: agent)")
    create.add_argument(
        "--tenant", default=development.TENANT_ID, metavar="ID", help=f"its tenant (default: {development.TENANT_ID})"
    )
    create.add_argument("--right", action="append", default=[], choices=keys.RIGHTS, help="may be given several times")
    create.add_argument(
        "--role",
        action="append",
        default=[],
        choices=ROLES,
        help="what it may do in every scope of its tenant; may be given several times (default: contributor)",
    )
    create.add_argument("--days", type=_days, metavar="N", help="valid for so many days (default: until revoked)")
    listing = actions.add_parser("list", help="show keys, never their texts")
    listing.add_argument("--tenant", metavar="ID", help="of this tenant only")
    revoke = actions.add_parser("revoke", help="end a key")
    revoke.add_argument("key_id", metavar="KEY_ID", help="as `pamspec keys list` shows it")
    for action in (create, listing, revoke):
        action.add_argument("--data", metavar="DIR", help="the data directory (PAMSPEC_DATA, else ./.data)")
        action.add_argument("--json", action="store_true", help="JSON instead of lines for people")


def _days(text: str) -> float:
    days = float(text)
    if not 0 < days <= 36_500:
        raise argparse.ArgumentTypeError("more than 0 and at most 36500 days")
    return days


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done; 1 when there was no such valid key to revoke."""
    by = keys.administrator(DataDirectory(chosen(arguments.data)))
    if arguments.action == "create":
        return asyncio.run(_create(by, arguments))
    if arguments.action == "list":
        return asyncio.run(_list(by, arguments))
    return asyncio.run(_revoke(by, arguments))


async def _create(by: keys.Administrator, arguments: argparse.Namespace) -> int:
    expires_at = datetime.now(UTC) + timedelta(days=arguments.days) if arguments.days else None
    roles = arguments.role or ["contributor"]
    owner = keys.Owner(arguments.tenant, arguments.actor, arguments.kind, arguments.right, expires_at, roles)
    key_id, key = await keys.create_key(by, owner)
    if arguments.json:
        print(json.dumps({"key_id": key_id, "key": key}))
    else:
        print(f"id        {key_id}\nkey       {key}\nKeep the key now: it cannot be shown again.")
    return OK


async def _list(by: keys.Administrator, arguments: argparse.Namespace) -> int:
    found = await keys.list_keys(by, arguments.tenant)
    for key in found:
        document = {
            "key_id": key.key_id,
            "tenant_id": key.owner.tenant_id,
            "actor_id": key.owner.actor_id,
            "actor_kind": key.owner.actor_kind,
            "rights": list(key.owner.rights),
            "roles": list(key.owner.roles),
            "created_at": key.created_at.isoformat(),
            "expires_at": key.owner.expires_at and key.owner.expires_at.isoformat(),
            "revoked_at": key.revoked_at and key.revoked_at.isoformat(),
        }
        if arguments.json:
            print(json.dumps(document))
        else:
            state = "revoked" if key.revoked_at else "valid"
            rights = ",".join([*key.owner.roles, *key.owner.rights]) or "-"
            print(f"{state:<8} {key.key_id}  {key.owner.tenant_id}  {key.owner.actor_id}  {rights}")
    return OK


async def _revoke(by: keys.Administrator, arguments: argparse.Namespace) -> int:
    if not await keys.revoke_key(by, arguments.key_id):
        print("pamspec: no valid key has this id; see  pamspec keys list", file=sys.stderr)
        return FAILED
    print(json.dumps({"revoked": arguments.key_id}) if arguments.json else f"revoked   {arguments.key_id}")
    return OK
