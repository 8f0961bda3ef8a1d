"""`pamspec query`: find objects by type, states and conditions."""

import argparse
import json
import sys
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_cli.showing import envelope_line
from pamspec_client.models import QueryPage

SUMMARY = "find objects"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--scope", required=True, help="the scope")
    parser.add_argument("--type", action="append", help="object type; may be given several times")
    parser.add_argument(
        "--trust",
        choices=("trusted", "working", "all"),
        help="trusted (default): active, available, retained, corroborated; working: an agent's own notes; all",
    )
    parser.add_argument("--where", metavar="JSON", help='a condition tree: {"field": ..., "op": ..., "value": ...}')
    parser.add_argument("--as-of", type=int, metavar="SEQUENCE", help="as it was after this ledger sequence")
    parser.add_argument("--limit", type=int, default=50, help="items of the page (default: 50, at most 1000)")
    parser.add_argument("--cursor", help="the next page of an earlier answer")
    parser.add_argument("--all", action="store_true", help="all pages")
    parser.add_argument("--snapshot", metavar="ID", help="as a sealed snapshot shows it")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when the query was answered, also with nothing."""
    request = {
        "scope_id": arguments.scope,
        "snapshot_id": arguments.snapshot,
        "query": expression(arguments),
        "limit": arguments.limit,
    }
    cursor = arguments.cursor
    with service(arguments).client() as client:
        while True:
            page = QueryPage.of(client.call("query", {**request, "cursor": cursor}).body)
            cursor = page.next_cursor
            _show(page, arguments)
            if not (arguments.all and cursor):
                break
    if cursor and not arguments.json:
        print(f"more: --cursor {cursor}", file=sys.stderr)
    return OK


def expression(arguments: argparse.Namespace) -> dict[str, Any]:
    """The query that the arguments mean."""
    found: dict[str, Any] = {"kind": "structured"}
    if arguments.type:
        found["filters"] = {"object_type": arguments.type}
    if arguments.trust:
        found["trust"] = arguments.trust
    if arguments.where:
        try:
            found["where"] = json.loads(arguments.where)
        except ValueError as error:
            raise Misused(f"--where is no JSON: {error}") from None
    if arguments.as_of is not None:
        found["as_of"] = {"ledger_sequence": arguments.as_of}
    return found


def _show(page: QueryPage, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(page.raw.decode())
        return
    for item in page.items:
        print(envelope_line(item.envelope))
    if page.hint:
        print(f"hint: {page.hint}", file=sys.stderr)
