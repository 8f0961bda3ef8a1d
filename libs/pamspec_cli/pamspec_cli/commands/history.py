"""`pamspec history`: the versions and ledger entries of an object, or a stretch of the scope's ledger."""

import argparse
from typing import Any

from pamspec_cli.connection import OK, add_arguments, reporting, service
from pamspec_cli.showing import brief, event_line, states
from pamspec_client.models import HistoryPage

SUMMARY = "show what happened to an object, or in a scope"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("object_id", metavar="ID", nargs="?", help="the object (else the whole scope)")
    parser.add_argument("--scope", required=True, help="the scope")
    parser.add_argument("--after", type=int, metavar="SEQUENCE", help="only after this ledger sequence")
    parser.add_argument("--to", type=int, metavar="SEQUENCE", help="only up to this ledger sequence")
    parser.add_argument("--event", action="append", metavar="TYPE", help="only this event type; several times")
    parser.add_argument("--limit", type=int, default=1000, help="entries of a page (default: 1000)")
    parser.add_argument("--snapshot", metavar="ID", help="as a sealed snapshot shows it")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was found; all pages are shown."""
    after = arguments.after if arguments.after is not None or arguments.object_id else 0
    request: dict[str, Any] = {
        "scope_id": arguments.scope,
        "snapshot_id": arguments.snapshot,
        "object_id": arguments.object_id,
        "after_sequence": after,
        "to_sequence": arguments.to,
        "event_classes": arguments.event,
        "limit": arguments.limit,
    }
    cursor: str | None = None
    with service(arguments).client() as client:
        while True:
            page = HistoryPage.of(client.call("inspect_history", {**request, "cursor": cursor}).body)
            _show(page, as_json=arguments.json)
            cursor = page.next_cursor
            if not cursor:
                return OK


def _show(page: HistoryPage, *, as_json: bool) -> None:
    if as_json:
        print(page.raw.decode())
        return
    versions = {version.version_id: version for version in page.versions}
    for event in page.events:
        print(event_line(event))
        version = versions.get(event.version_id or "")
        if version is not None:
            print(f"{'':10}version {version.sequence}: {states(version)}  {brief(version.content)}")
        basis = page.notes.get(event.event_id, {}).get("policy_basis")
        if basis:
            print(f"{'':10}basis: {basis}")
