"""`pamspec transition`: move one state of an object or a relationship."""

import argparse
from typing import Any

from pamspec_cli.connection import OK, add_arguments, reporting, service
from pamspec_cli.erasures import current_version
from pamspec_cli.showing import states
from pamspec_client import Outcome

SUMMARY = "move one state: make memory trusted, archive it ..."
DIMENSIONS = ("lifecycle", "availability", "retention", "validation")


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("subject", metavar="ID", help="the object, or with --relationship the relationship")
    parser.add_argument("dimension", choices=DIMENSIONS, help="which of its states")
    parser.add_argument("state", metavar="STATE", help="corroborated, archived, legal_hold ...")
    parser.add_argument("--relationship", action="store_true", help="ID is a relationship")
    parser.add_argument("--scope", required=True, help="its scope")
    parser.add_argument("--basis", required=True, metavar="TEXT", help="why: the policy basis")
    parser.add_argument("--expected", metavar="VERSION", help="its current version, as you know it (else looked up)")
    parser.add_argument("--idempotency-key", help="the same key again answers the first outcome")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when the state has moved."""
    kind = "relationship_id" if arguments.relationship else "object_id"
    about: dict[str, Any] = {"scope_id": arguments.scope, kind: arguments.subject}
    with service(arguments).client() as client:
        request: dict[str, Any] = {
            **about,
            "expected_version_id": arguments.expected or current_version(client, about),
            "dimension": arguments.dimension,
            "target_state": arguments.state,
            "policy_basis": arguments.basis,
            "idempotency_key": arguments.idempotency_key,
        }
        reply = client.call("transition", request)
    if arguments.json:
        print(reply.body.decode())
        return OK
    made = Outcome.of(reply.body)
    print(f"{arguments.subject}  {states(made.envelope)}  version {made.version_id}")
    return OK
