"""`pamspec holds`: show, place and release legal holds over a scope or a type of it."""

import argparse
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_client import Client
from pamspec_client.models import Hold, HoldPage, HoldPlaced

SUMMARY = "show legal holds; --place and --release change them"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--scope", required=True, help="the scope")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--place", action="store_true", help="place a hold over the scope, or over --type of it")
    what.add_argument("--release", metavar="HOLD", help="end this hold")
    parser.add_argument("--type", help="with --place: the object type that is held")
    parser.add_argument("--basis", metavar="TEXT", help="with --place and --release: why")
    parser.add_argument("--all", action="store_true", help="show released holds too")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done."""
    if (arguments.place or arguments.release) and not arguments.basis:
        raise Misused("a hold is placed and released for a reason: give --basis TEXT")
    with service(arguments).client() as client:
        if not (arguments.place or arguments.release):
            return _list(client, arguments)
        request: dict[str, Any] = {"scope_id": arguments.scope, "policy_basis": arguments.basis}
        if arguments.place:
            reply = client.call("place_hold", request | {"object_type": arguments.type})
        else:
            reply = client.call("release_hold", request | {"hold_id": arguments.release})
    done = "placed" if arguments.place else "released"
    print(reply.body.decode() if arguments.json else f"{HoldPlaced.of(reply.body).hold_id}  {done}")
    return OK


def _list(client: Client, arguments: argparse.Namespace) -> int:
    cursor: str | None = None
    while True:
        request = {"scope_id": arguments.scope, "include_released": arguments.all, "limit": 100, "cursor": cursor}
        page = HoldPage.of(client.call("list_holds", request).body)
        if arguments.json:
            print(page.raw.decode())
        for one in () if arguments.json else page.holds:
            print(_line(one))
        cursor = page.next_cursor
        if not cursor:
            return OK


def _line(hold: Hold) -> str:
    """The hold, and whether its objects show it already."""
    over = hold.object_type or "the whole scope"
    state = "in force" if hold.released_at is None else f"released {hold.released_at}"
    moving = "" if hold.settled else "  (its objects are being moved)"
    return f"{hold.hold_id}  {over}  {state}  {hold.policy_basis}{moving}"
