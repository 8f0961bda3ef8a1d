"""`pamspec tenants create|list|suspend|resume|offboard`: for who operates the service, with a key that may."""

import argparse
import json
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_client import Client

SUMMARY = "make, list, suspend, resume and take off tenants (for operators)"

_DO = {
    "create": "make a tenant",
    "suspend": "close a tenant to everybody, with everything kept",
    "resume": "open a tenant again",
    "offboard": "end a tenant: keys, roles and rules at once, its scopes step by step",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, said in _DO.items():
        action = actions.add_parser(name, help=said)
        action.add_argument("tenant", metavar="TENANT", help="like tenant:acme")
        action.add_argument("--basis", metavar="TEXT", default="", help="why, for the record")
        if name == "offboard":
            action.add_argument("--dry-run", action="store_true", help="only count what would go")
        add_arguments(action)
    listing = actions.add_parser("list", help="show tenants, or one with what it has")
    listing.add_argument("tenant", metavar="TENANT", nargs="?")
    add_arguments(listing)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done."""
    dry = arguments.action == "offboard" and arguments.dry_run
    if arguments.action != "list" and not arguments.basis and not dry:
        raise Misused("a tenant changes for a reason: give --basis TEXT")
    with service(arguments).client() as client:
        if arguments.action == "list":
            return _list(client, arguments)
        request: dict[str, Any] = {"tenant_id": arguments.tenant, "policy_basis": arguments.basis or "counting"}
        reply = client.call(f"{arguments.action}_tenant", request | ({"dry_run": True} if dry else {}))
    _print(json.loads(reply.body), arguments)
    return OK


def _print(answer: dict[str, Any], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json.dumps(answer))
        return
    tenant = answer["tenant"]
    print(f"{tenant['tenant_id']}  {tenant['state']}  since {tenant['state_at'][:16]}")
    for name, number in answer.get("counts", {}).items():
        print(f"  {name.replace('_', ' '):<15} {number}")


def _list(client: Client, arguments: argparse.Namespace) -> int:
    cursor: str | None = None
    while True:
        request: dict[str, Any] = {"pagination": {"limit": 100} | ({"cursor": cursor} if cursor else {})}
        if arguments.tenant:
            request["tenant_id"] = arguments.tenant
        page = json.loads(client.call("list_tenants", request).body)
        for one in page["tenants"]:
            if arguments.json:
                print(json.dumps(one))
            else:
                _print({"tenant": one, "counts": one.get("counts", {})}, arguments)
        cursor = page["next_cursor"]
        if cursor is None:
            return OK
