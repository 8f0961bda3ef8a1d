"""`pamspec roles`: show, give and take the roles of actors, in a scope or in the whole tenant."""

import argparse
import json
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_client import Client
from pamspec_common.authorization.vocabulary import ROLES

SUMMARY = "show roles; --give and --take change them"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--scope", help="the scope (default: the whole tenant)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--give", choices=ROLES, help="give the actor this role")
    what.add_argument("--take", choices=ROLES, help="take this role from the actor")
    parser.add_argument("--actor", metavar="ID", help="whose role, like agent:planner")
    parser.add_argument("--basis", metavar="TEXT", help="with --give and --take: why")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done."""
    place = {} if arguments.scope is None else {"scope_id": arguments.scope}
    role = arguments.give or arguments.take
    if role and not (arguments.actor and arguments.basis):
        raise Misused("a role is given and taken by name and for a reason: give --actor ID and --basis TEXT")
    with service(arguments).client() as client:
        if not role:
            return _list(client, place, arguments)
        request = place | {"actor_id": arguments.actor, "role": role, "policy_basis": arguments.basis}
        reply = client.call("bind_role" if arguments.give else "unbind_role", request)
    if arguments.json:
        print(reply.body.decode())
        return OK
    changed = json.loads(reply.body)["changed"]
    state = "holds" if arguments.give else "does not hold"
    print(f"{arguments.actor}  {state} {role}" + ("" if changed else "  (so it was before)"))
    return OK


def _list(client: Client, place: dict[str, Any], arguments: argparse.Namespace) -> int:
    cursor: str | None = None
    while True:
        request = place | {"pagination": {"limit": 100} | ({"cursor": cursor} if cursor else {})}
        if arguments.actor:
            request["actor_id"] = arguments.actor
        page = json.loads(client.call("list_role_bindings", request).body)
        for one in page["role_bindings"]:
            print(json.dumps(one) if arguments.json else f"{one['actor_id']}  {one['role']}  (by {one['bound_by']})")
        cursor = page["next_cursor"]
        if cursor is None:
            return OK
