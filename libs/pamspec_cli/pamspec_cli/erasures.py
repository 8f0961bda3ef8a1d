"""What `pamspec redact` and `pamspec delete` share: what they are about, its current version, and the answer."""

import argparse
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, service
from pamspec_cli.showing import brief
from pamspec_client import Client, ObjectRedacted, Outcome


def add_subject(parser: argparse.ArgumentParser) -> None:
    """Declares what is erased, and why."""
    parser.add_argument("subject", metavar="ID", help="the object, or with --relationship the relationship")
    parser.add_argument("--relationship", action="store_true", help="ID is a relationship")
    parser.add_argument("--scope", required=True, help="its scope")
    parser.add_argument("--basis", required=True, metavar="TEXT", help="why: the policy basis")
    parser.add_argument("--expected", metavar="VERSION", help="its current version, as you know it (else looked up)")
    parser.add_argument("--idempotency-key", help="the same key again answers the first outcome")
    add_arguments(parser)


def erase(arguments: argparse.Namespace, operation: str, target: dict[str, Any]) -> int:
    """Send the erasure and show its answer; 0 when it is done."""
    about = {
        "scope_id": arguments.scope,
        ("relationship_id" if arguments.relationship else "object_id"): arguments.subject,
    }
    with service(arguments).client() as client:
        request = {
            **about,
            **target,
            "expected_version_id": arguments.expected or current_version(client, about),
            "policy_basis": arguments.basis,
            "idempotency_key": arguments.idempotency_key,
        }
        reply = client.call(operation, request)
    if arguments.json:
        print(reply.body.decode())
        return OK
    made = Outcome.of(reply.body)
    print(f"{arguments.subject}  {made.envelope.availability_state}  version {made.version_id}  {made.erasure_id}")
    if made.envelope.availability_state in ("available", "partially_redacted"):
        print(brief(made.envelope.content))
    return OK


def current_version(client: Client, about: dict[str, Any]) -> str:
    """The version to follow; Misused where only a history tells it."""
    try:
        return str(client.read_fields(["version_id"], **about)["version_id"])
    except ObjectRedacted:
        raise Misused("it is redacted: give its current version by --expected; pamspec history shows it") from None
