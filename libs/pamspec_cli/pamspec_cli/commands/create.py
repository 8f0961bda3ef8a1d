"""`pamspec create`: write the first version of an object."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_client import Outcome, RawJson

SUMMARY = "store an object"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--scope", required=True, help="the scope, for example workspace:research")
    parser.add_argument("--type", default="observation", help="object type (default: observation)")
    content = parser.add_mutually_exclusive_group(required=True)
    content.add_argument("--content", metavar="JSON", help="the content as JSON text")
    content.add_argument("--content-file", metavar="FILE", help="a file with the content as JSON text; - is stdin")
    content.add_argument("--text", help='short for --content {"text": ...}')
    parser.add_argument("--activity", default="manual", help="how it came about, for its provenance (default: manual)")
    parser.add_argument("--source", metavar="REF", help="where it comes from, for its provenance")
    parser.add_argument("--object-id", help="an id of your own (else one is made)")
    parser.add_argument("--lifecycle", help="lifecycle state (default: active; working_memory: scratch)")
    parser.add_argument("--validation", help="validation state (default: unverified)")
    parser.add_argument("--valid-from", metavar="TIME", help="RFC 3339 with an offset")
    parser.add_argument("--valid-until", metavar="TIME", help="RFC 3339 with an offset")
    parser.add_argument("--idempotency-key", help="the same key again answers the first outcome")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it is stored."""
    provenance = {"activity": arguments.activity} | ({"source_ref": arguments.source} if arguments.source else {})
    request: dict[str, Any] = {
        "scope_id": arguments.scope,
        "object_type": arguments.type,
        "canonical_content": content(arguments),
        "provenance": provenance,
        "object_id": arguments.object_id,
        "lifecycle_state": arguments.lifecycle,
        "validation_state": arguments.validation,
        "valid_from": arguments.valid_from,
        "valid_until": arguments.valid_until,
        "idempotency_key": arguments.idempotency_key,
    }
    with service(arguments).client() as client:
        reply = client.call("create", request)
    if arguments.json:
        print(reply.body.decode())
        return OK
    made = Outcome.of(reply.body)
    print(f"{made.object_id}  version {made.version_id}  ledger sequence {made.ledger_sequence}")
    return OK


def content(arguments: argparse.Namespace) -> RawJson:
    """The content as it was given, number tokens untouched; Misused when it is no JSON."""
    if arguments.text is not None:
        return RawJson(json.dumps({"text": arguments.text}))
    if arguments.content is not None:
        text = arguments.content
    elif arguments.content_file == "-":
        text = sys.stdin.read()
    else:
        file = Path(arguments.content_file)
        if not file.is_file():
            raise Misused(f"no file {file}")
        text = file.read_text(encoding="utf-8")
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misused(f"the content is no JSON: {error}") from None
    return RawJson(text)
