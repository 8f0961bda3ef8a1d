"""`pamspec parked list|replay|drop`: ledger entries that a service could not take in; for who operates the service."""

import argparse
import json
import time
from typing import Any

from pamspec_cli.connection import FAILED, OK, add_arguments, reporting, service
from pamspec_client import Client
from pamspec_client.models import ParkedEntry, ParkedEntryPage

SUMMARY = "show ledger entries that a service could not take in, have them replayed, or drop one (for operators)"

CONSUMERS = ("delegation", "indexing")
_WAIT_S = 30.0
_AGAIN_S = 0.2


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="show what is parked, and why")
    listing.add_argument("--consumer", choices=CONSUMERS, help="only of this service")
    listing.add_argument("--tenant", help="only of this tenant")
    listing.add_argument("--scope", help="only of this scope of --tenant")
    add_arguments(listing)
    replay = actions.add_parser("replay", help="take them in again, once their cause is mended")
    replay.add_argument("--sequence", type=int, help="only this entry; without it all of the scope")
    drop = actions.add_parser("drop", help="go on without one for good; it stays in the ledger")
    drop.add_argument("--sequence", type=int, required=True, help="the entry")
    for action in (replay, drop):
        action.add_argument("--consumer", choices=CONSUMERS, required=True, help="the service")
        action.add_argument("--tenant", required=True, help="whose scope it is")
        action.add_argument("--scope", required=True, help="the scope")
        action.add_argument("--basis", metavar="TEXT", required=True, help="why, for the record")
        action.add_argument("--no-wait", action="store_true", help="do not wait for what comes of it")
        add_arguments(action)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done and nothing that was replayed is parked again."""
    with service(arguments).client() as client:
        if arguments.action == "list":
            return _list(client, arguments)
        return _ask(client, arguments)


def _list(client: Client, arguments: argparse.Namespace) -> int:
    wanted = {"consumer": arguments.consumer, "tenant_id": arguments.tenant, "scope_id": arguments.scope}
    for one in _entries(client, {name: value for name, value in wanted.items() if value}):
        print(one if arguments.json else _line(ParkedEntry(**json.loads(one))))
    return OK


def _ask(client: Client, arguments: argparse.Namespace) -> int:
    drops = arguments.action == "drop"
    where = {"consumer": arguments.consumer, "tenant_id": arguments.tenant, "scope_id": arguments.scope}
    request: dict[str, Any] = {**where, "policy_basis": arguments.basis, "skip": drops}
    if arguments.sequence is not None:
        request["sequence"] = arguments.sequence
    reply = client.call("replay_parked_entries", request)
    if arguments.json:
        print(reply.body.decode())
    count = json.loads(reply.body)["entries"]
    if arguments.no_wait:
        _say(arguments, f"asked for {count}")
        return OK
    until = time.monotonic() + _WAIT_S
    while True:
        found = [ParkedEntry(**json.loads(one)) for one in _entries(client, where)]
        mine = [one for one in found if arguments.sequence in (None, one.sequence)]
        if not any(one.asked for one in mine):
            break
        if time.monotonic() > until:
            _say(arguments, f"{arguments.consumer} has not answered yet: is it ready?  pamspec status")
            return FAILED
        time.sleep(_AGAIN_S)
    _say(arguments, f"{count - len(mine)} of {count} {'dropped' if drops else 'taken in'}")
    for one in mine:
        _say(arguments, f"stays parked: {_line(one)}")
    return FAILED if mine else OK


def _say(arguments: argparse.Namespace, line: str) -> None:
    if not arguments.json:
        print(line)


def _entries(client: Client, wanted: dict[str, str]) -> list[str]:
    """All pages, each entry as JSON."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = ParkedEntryPage.of(client.call("list_parked_entries", {**wanted, "limit": 200, "cursor": cursor}).body)
        found += [json.dumps(one) for one in json.loads(page.raw)["entries"]]
        cursor = page.next_cursor
        if cursor is None:
            return found


def _line(one: ParkedEntry) -> str:
    asked = f"  ({one.asked} asked for)" if one.asked else ""
    where = f"{one.consumer}  {one.tenant_id}  {one.scope_id}  {one.sequence}"
    return f"{where}  {one.event_type}  {one.reason}  since {one.parked_at[:19]}{asked}"
