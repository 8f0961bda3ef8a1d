"""`pamspec read`: show one version of an object."""

import argparse
import json
from typing import Any

from pamspec_cli.connection import OK, add_arguments, reporting, service
from pamspec_cli.showing import envelope_lines
from pamspec_client.models import Envelope, ReadAnswer

SUMMARY = "show an object"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("object_id", metavar="ID", help="the object")
    parser.add_argument("--scope", required=True, help="its scope")
    parser.add_argument("--version", metavar="ID", help="a version of it (else the current one)")
    parser.add_argument("--as-of", type=int, metavar="SEQUENCE", help="as it was after this ledger sequence")
    parser.add_argument("--min-sequence", type=int, metavar="SEQUENCE", help="not older than this ledger sequence")
    parser.add_argument("--snapshot", metavar="ID", help="as a sealed snapshot shows it")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was found."""
    request: dict[str, Any] = {
        "scope_id": arguments.scope,
        "snapshot_id": arguments.snapshot,
        "object_id": arguments.object_id,
        "version_id": arguments.version,
        "as_of": {"ledger_sequence": arguments.as_of} if arguments.as_of is not None else None,
        "min_sequence": arguments.min_sequence,
        "wait_ms": 5000 if arguments.min_sequence is not None else None,
    }
    with service(arguments).client() as client:
        reply = client.call("read", request)
    envelope = Envelope.of(ReadAnswer.of(reply.body).envelope_raw)
    if arguments.json:
        print(envelope.raw.decode())
        return OK
    for line in envelope_lines(envelope):
        print(line)
    print(json.dumps(envelope.content, indent=2, ensure_ascii=False))
    return OK
