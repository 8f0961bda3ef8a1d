"""`pamspec relate`: join two objects."""

import argparse
import json
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_client import Outcome, RawJson

SUMMARY = "join two objects by a relationship"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("source", metavar="SOURCE", help="the object that it leads from")
    parser.add_argument("type", metavar="TYPE", help="supports, contradicts, part_of ... or a name of your own")
    parser.add_argument("target", metavar="TARGET", help="the object that it leads to")
    parser.add_argument("--scope", required=True, help="the scope of the source and of the relationship")
    parser.add_argument("--target-scope", metavar="SCOPE", help="where the target lies, when that is another scope")
    parser.add_argument("--basis", metavar="TEXT", help="the policy basis; needed into another scope")
    parser.add_argument(
        "--direction",
        default="directed",
        choices=("directed", "bidirectional", "undirected"),
        help="which way it leads (default: directed)",
    )
    parser.add_argument("--content", metavar="JSON", help="what there is to say about it, as JSON text")
    parser.add_argument("--activity", default="manual", help="how it came about, for its provenance (default: manual)")
    parser.add_argument("--relationship-id", metavar="ID", help="an id of your own (else one is made)")
    parser.add_argument("--idempotency-key", help="the same key again answers the first outcome")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when they are joined."""
    request: dict[str, Any] = {
        "scope_id": arguments.scope,
        "source_object_id": arguments.source,
        "relationship_type": arguments.type,
        "target_object_id": arguments.target,
        "target_scope_id": arguments.target_scope,
        "policy_basis": arguments.basis,
        "directionality": arguments.direction,
        "relationship_id": arguments.relationship_id,
        "provenance": {"activity": arguments.activity},
        "idempotency_key": arguments.idempotency_key,
    }
    if arguments.content is not None:
        request["canonical_content"] = _content(arguments.content)
    with service(arguments).client() as client:
        reply = client.call("relate", request)
    if arguments.json:
        print(reply.body.decode())
        return OK
    made = Outcome.of(reply.body)
    print(f"{made.relationship_id}  version {made.version_id}  ledger sequence {made.ledger_sequence}")
    return OK


def _content(text: str) -> RawJson:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misused(f"the content is no JSON: {error}") from None
    return RawJson(text)
