"""`pamspec reindex`: rebuild, verify or drop a derived index of a scope, or tell how far each is."""

import argparse
import json
import time

from pamspec_cli.connection import FAILED, OK, Misused, add_arguments, reporting, service
from pamspec_client import Client
from pamspec_client.models import Index, IndexList

SUMMARY = "rebuild an index of a scope online; --verify compares it, --drop removes it, --list tells how far each is"
_LOOK_EVERY_S = 0.2


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--scope", required=True, help="whose indexes")
    parser.add_argument(
        "--index",
        default="index:lexical",
        metavar="ID",
        help="which (default: index:lexical); vectors are made anew by POST /v1/vectors/reembed",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--verify", action="store_true", help="compare it with the canonical store; nothing is changed")
    what.add_argument("--drop", action="store_true", help="remove it until it is rebuilt")
    what.add_argument("--list", action="store_true", help="tell how far each index is")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the end")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done, and a verification found nothing."""
    with service(arguments).client() as client:
        if arguments.list:
            return _list(client, arguments)
        kind = "verify" if arguments.verify else "drop" if arguments.drop else "rebuild"
        reply = client.call(f"{kind}_index", {"scope_id": arguments.scope, "index_id": arguments.index})
        if arguments.no_wait:
            print(reply.body.decode() if arguments.json else f"{kind} of {arguments.index} is under way")
            return OK
        found = _ended(client, arguments)
    job = found.job
    assert job is not None, "it was asked for"
    problems = job.problems
    wrong = 0 if problems is None else problems.missing + problems.stale + problems.stray
    if arguments.json:
        told = {"index_id": found.index_id, "state": found.state, "kind": job.kind, "done": job.done, "problems": wrong}
        print(json.dumps(told))
    else:
        print(f"{found.index_id}  {job.kind}: {job.done:,} objects" + (f", {wrong:,} problems" if problems else ""))
    return FAILED if wrong else OK


def _ended(client: Client, arguments: argparse.Namespace) -> Index:
    """The index once its job has ended."""
    while True:
        for index in client.list_indexes(scope_id=arguments.scope).indexes:
            if index.index_id == arguments.index and index.job is not None and index.job.state == "done":
                return index
        time.sleep(_LOOK_EVERY_S)


def _list(client: Client, arguments: argparse.Namespace) -> int:
    reply = client.call("list_indexes", {"scope_id": arguments.scope})
    if arguments.json:
        print(reply.body.decode())
        return OK
    indexes = IndexList.of(reply.body).indexes
    if not indexes:
        raise Misused("nothing of this scope has been indexed yet")
    for one in indexes:
        print(f"{one.index_id}  {one.state}  up to {one.watermark.sequence}, {one.lag.events} entries behind")
    return OK
