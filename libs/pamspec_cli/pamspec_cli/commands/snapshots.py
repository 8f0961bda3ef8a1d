"""`pamspec snapshots`: seal a view of a scope, list the sealed ones, compare two."""

import argparse
from collections.abc import Iterator
from typing import Any

from pamspec_cli.connection import OK, add_arguments, reporting, service
from pamspec_client import Client
from pamspec_client.models import Comparison, Sealed, ShownOnce, ShownTwice, Snapshot, SnapshotPage

SUMMARY = "seal, list and compare sealed views of a scope"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    doing = parser.add_subparsers(dest="doing", required=True, metavar="ACTION")
    seal = doing.add_parser("seal", help="seal the scope as it is now")
    seal.add_argument("--scope", required=True, help="the scope")
    seal.add_argument("--id", dest="snapshot_id", metavar="ID", help="the snapshot's id (else minted)")
    seal.add_argument(
        "--include", action="append", metavar="ID", help="only this object or relationship; several times"
    )
    seal.add_argument("--run", metavar="ID", help="the evaluation run that the snapshot is for")
    seal.add_argument("--start-at", metavar="TIME", help="give the run a clock that starts then (RFC 3339)")
    seal.add_argument("--tick-ms", type=int, metavar="MS", help="how far that clock moves with each operation")
    seal.add_argument("--seed", type=int, help="give the run a seed")
    listing = doing.add_parser("list", help="list the scope's snapshots")
    listing.add_argument("--scope", required=True, help="the scope")
    compare = doing.add_parser("compare", help="show what two snapshots of a scope show differently")
    compare.add_argument("base", metavar="BASE", help="the snapshot to start from")
    compare.add_argument("other", metavar="OTHER", help="the snapshot to compare it with")
    for one in (seal, listing, compare):
        add_arguments(one)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done."""
    with service(arguments).client() as client:
        for line in _DOING[arguments.doing](client, arguments):
            print(line)
    return OK


def _seal(client: Client, arguments: argparse.Namespace) -> Iterator[str]:
    clock: dict[str, Any] | None = None
    if arguments.start_at is not None:
        clock = {"clock_ref": "clock:pamspec-snapshots", "start_at": arguments.start_at}
        if arguments.tick_ms is not None:
            clock["tick_ms"] = arguments.tick_ms
    request = {
        "scope_id": arguments.scope,
        "snapshot_id": arguments.snapshot_id,
        "included_object_ids": arguments.include,
        "evaluation_run_id": arguments.run,
        "deterministic_clock": clock,
        "deterministic_rng_seed": arguments.seed,
    }
    made = Sealed.of(client.call("seal_snapshot", request).body)
    yield made.raw.decode() if arguments.json else _line(made.snapshot)


def _list(client: Client, arguments: argparse.Namespace) -> Iterator[str]:
    cursor: str | None = None
    while True:
        request = {"scope_id": arguments.scope, "limit": 1000, "cursor": cursor}
        page = SnapshotPage.of(client.call("list_snapshots", request).body)
        if arguments.json:
            yield page.raw.decode()
        else:
            yield from (_line(entry.snapshot) for entry in page.snapshots)
        cursor = page.next_cursor
        if not cursor:
            return


def _compare(client: Client, arguments: argparse.Namespace) -> Iterator[str]:
    cursor: str | None = None
    while True:
        ids = {"base_snapshot_id": arguments.base, "other_snapshot_id": arguments.other}
        page = Comparison.of(client.call("compare_snapshots", {**ids, "limit": 1000, "cursor": cursor}).body)
        if arguments.json:
            yield page.raw.decode()
        else:
            yield from (f"+ {_shown(one)}" for one in page.added)
            yield from (f"- {_shown(one)}" for one in page.removed)
            yield from (f"~ {_changed(one)}" for one in page.changed)
        cursor = page.next_cursor
        if not cursor:
            return


_DOING = {"seal": _seal, "list": _list, "compare": _compare}


def _line(snapshot: Snapshot) -> str:
    members = snapshot.included_object_ids
    holds = "all" if members is None else f"{len(members)} named"
    run = f"  run {snapshot.evaluation_run_id}" if snapshot.evaluation_run_id is not None else ""
    return f"{snapshot.snapshot_id}  up to {snapshot.ledger_sequence_high_watermark}  {holds}{run}"


def _shown(one: ShownOnce) -> str:
    return f"{one.object_id or one.relationship_id}  version {one.sequence}"


def _changed(one: ShownTwice) -> str:
    words = [f"{one.object_id or one.relationship_id}  version {one.base.sequence} -> {one.other.sequence}"]
    words += [f"{name.removesuffix('_state')} {moved.from_} -> {moved.to}" for name, moved in one.states.items()]
    return "  ".join(words)
