"""`pamspec update`: write the next version of an object."""

import argparse
from typing import Any

from pamspec_cli.commands.create import content
from pamspec_cli.connection import OK, add_arguments, reporting, service
from pamspec_client import Outcome

SUMMARY = "write the next version of an object"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("object_id", metavar="ID", help="the object")
    parser.add_argument("--scope", required=True, help="its scope")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--content", metavar="JSON", help="the new content as JSON text")
    what.add_argument("--content-file", metavar="FILE", help="a file with the content as JSON text; - is stdin")
    what.add_argument("--text", help='short for --content {"text": ...}')
    what.add_argument("--restore", metavar="VERSION", help="the content of this earlier version")
    parser.add_argument("--expected", metavar="VERSION", help="its current version, as you know it (else looked up)")
    parser.add_argument("--activity", default="manual", help="how it came about, for its provenance (default: manual)")
    parser.add_argument("--source", metavar="REF", help="where it comes from, for its provenance")
    parser.add_argument("--idempotency-key", help="the same key again answers the first outcome")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when the version is stored."""
    about = {"scope_id": arguments.scope, "object_id": arguments.object_id}
    what = {"restore_version_id": arguments.restore} if arguments.restore else {"canonical_content": content(arguments)}
    with service(arguments).client() as client:
        request: dict[str, Any] = {
            **about,
            **what,
            "expected_version_id": arguments.expected or client.read_fields(["version_id"], **about)["version_id"],
            "provenance": {"activity": arguments.activity}
            | ({"source_ref": arguments.source} if arguments.source else {}),
            "idempotency_key": arguments.idempotency_key,
        }
        reply = client.call("update", request)
    if arguments.json:
        print(reply.body.decode())
        return OK
    made = Outcome.of(reply.body)
    print(f"{made.object_id}  version {made.version_id}  ledger sequence {made.ledger_sequence}")
    return OK
