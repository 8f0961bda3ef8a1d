"""`pamspec promote`: make an object of working memory."""

import argparse
from typing import Any

from pamspec_cli.commands.create import content
from pamspec_cli.connection import OK, add_arguments, reporting, service
from pamspec_client import Promotion

SUMMARY = "make an object of working memory, which it supersedes"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("source", metavar="ID", help="the working memory")
    parser.add_argument("--scope", required=True, help="its scope")
    parser.add_argument("--type", required=True, help="what it becomes: claim, decision, task ...")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--content", metavar="JSON", help="the new object's content as JSON text")
    what.add_argument("--content-file", metavar="FILE", help="a file with the content as JSON text; - is stdin")
    what.add_argument("--text", help='short for --content {"text": ...}')
    parser.add_argument("--expected", metavar="VERSION", help="its current version, as you know it (else looked up)")
    parser.add_argument("--activity", default="manual", help="how it came about, for its provenance (default: manual)")
    parser.add_argument("--object-id", metavar="ID", help="an id of your own for the new object (else one is made)")
    parser.add_argument("--lifecycle", help="lifecycle state of the new object (default: active)")
    parser.add_argument("--validation", help="validation state of the new object (default: unverified)")
    parser.add_argument("--idempotency-key", help="the same key again answers the first outcome")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when the new object is stored and the working memory superseded."""
    about = {"scope_id": arguments.scope, "object_id": arguments.source}
    with service(arguments).client() as client:
        version = arguments.expected or client.read_fields(["version_id"], **about)["version_id"]
        request: dict[str, Any] = {
            "scope_id": arguments.scope,
            "source_object_id": arguments.source,
            "expected_version_id": version,
            "target_object_type": arguments.type,
            "target_canonical_content": content(arguments),
            "target_object_id": arguments.object_id,
            "target_lifecycle_state": arguments.lifecycle,
            "target_validation_state": arguments.validation,
            "provenance": {"activity": arguments.activity},
            "idempotency_key": arguments.idempotency_key,
        }
        reply = client.call("promote", request)
    if arguments.json:
        print(reply.body.decode())
        return OK
    made = Promotion.of(reply.body)
    new = made.object
    print(f"{new.object_id}  version {new.version_id}  ledger sequence {new.ledger_sequence}  {made.relationship_id}")
    return OK
