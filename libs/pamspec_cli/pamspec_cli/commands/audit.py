"""`pamspec audit`: what administrators did and who was refused; `export` adds what the ledger tells of who did what."""

import argparse
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pamspec_cli.connection import OK, add_arguments, reporting, service
from pamspec_client import Client
from pamspec_common.instants import parse, wire

SUMMARY = "show the audit log; export it as lines of JSON"

_PAGE = 500
_SHOWN = ("event_id", "event_type", "sequence", "operation_id", "object_id", "relationship_id", "version_id")


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("what", nargs="?", choices=("list", "export"), default="list", help="(default: list)")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--scope", help="of this scope (default: of the tenant alone)")
    place.add_argument("--all", action="store_true", help="of the tenant and of each of its scopes")
    parser.add_argument("--since", type=_time, metavar="TIME", help="from this time on, like 2026-03-01T00:00:00Z")
    parser.add_argument("--until", type=_time, metavar="TIME", help="before this time")
    parser.add_argument("--actor", metavar="ID", help="only what this actor did")
    parser.add_argument("--operation", metavar="NAME", help="only this operation; no entries of the ledger then")
    parser.add_argument("--outcome", choices=("done", "denied"), help="only what was done, or what was refused")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when all of it was shown."""
    with service(arguments).client() as client:
        for scope_id in _places(client, arguments):
            for entry in _administration(client, arguments, scope_id):
                _print(entry, as_json=arguments.json or arguments.what == "export")
            if arguments.what == "export" and scope_id is not None and arguments.operation is None:
                for entry in _ledger(client, arguments, scope_id):
                    _print(entry, as_json=True)
    return OK


def _places(client: Client, arguments: argparse.Namespace) -> Iterator[str | None]:
    if arguments.scope is not None:
        yield arguments.scope
        return
    yield None
    if arguments.all:
        for page in _pages(client, "list_scopes", {}):
            yield from (scope["scope_id"] for scope in page["scopes"])


def _administration(client: Client, arguments: argparse.Namespace, scope_id: str | None) -> Iterator[dict[str, Any]]:
    asked = {
        "scope_id": scope_id,
        "actor_id": arguments.actor,
        "operation": arguments.operation,
        "outcome": arguments.outcome,
        "since": arguments.since and wire(arguments.since),
        "until": arguments.until and wire(arguments.until),
    }
    named = {} if scope_id is None else {"scope_id": scope_id}
    for page in _pages(client, "list_administration", {name: value for name, value in asked.items() if value}):
        for entry in page["entries"]:
            yield {"kind": "administration", **named, **entry}


def _ledger(client: Client, arguments: argparse.Namespace, scope_id: str) -> Iterator[dict[str, Any]]:
    """The entries of a scope's ledger, without a word of content: who did what, when and under which rules."""
    request = {"scope_id": scope_id, "after_sequence": 0}
    for page in _pages(client, "inspect_history", request):
        for event in page["events"]:
            entry = _decision(scope_id, event)
            if _wanted(arguments, entry):
                yield entry


def _decision(scope_id: str, event: dict[str, Any]) -> dict[str, Any]:
    actor, payload = event["actor"], event.get("payload", {})
    denied = event["event_type"] == "access_denied"
    found = {
        "kind": "event",
        "scope_id": scope_id,
        "done_at": event["recorded_at"],
        **{name: event[name] for name in _SHOWN if name in event},
        **{name: value for name, value in actor.items() if isinstance(value, str)},
        "outcome": "denied" if denied else "done",
    }
    for name in ("policy_version", "authenticated_as", "policy_rule_id", "operation", "reason", "count"):
        if name in payload:
            found[name] = payload[name]
    return found


def _wanted(arguments: argparse.Namespace, entry: dict[str, Any]) -> bool:
    done_at = parse(entry["done_at"])
    return (
        arguments.actor in (None, entry["actor_id"])
        and arguments.outcome in (None, entry["outcome"])
        and (arguments.since is None or done_at >= arguments.since)
        and (arguments.until is None or done_at < arguments.until)
    )


def _time(text: str) -> datetime:
    try:
        return parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError("no time with an offset, like 2026-03-01T00:00:00Z") from None


def _pages(client: Client, operation: str, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    cursor: str | None = None
    while True:
        pagination = {"limit": _PAGE} | ({"cursor": cursor} if cursor else {})
        page = json.loads(client.call(operation, {**request, "pagination": pagination}).body)
        yield page
        cursor = page["next_cursor"]
        if cursor is None:
            return


def _print(entry: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(entry, separators=(",", ":")))
        return
    about = f" {entry['subject']}" if "subject" in entry else ""
    times = f" x{entry['occurrences']}" if entry.get("occurrences", 1) > 1 else ""
    outcome = "" if entry.get("outcome") == "done" else "  refused" + times
    print(f"{entry['done_at']}  {entry['actor_id']}  {entry['operation']}{about}  {entry['detail']}{outcome}")
