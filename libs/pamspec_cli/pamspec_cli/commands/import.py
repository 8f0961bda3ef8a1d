"""`pamspec import`: a file of `pamspec export` into a new or empty scope."""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_cli.transferring import Meter

SUMMARY = "take a file of `pamspec export` into a new or empty scope"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("file", metavar="FILE", help="the file; - for standard input")
    parser.add_argument("--remap", metavar="SCOPE", help="into this scope, with a ledger of its own")
    parser.add_argument(
        "--on-conflict", choices=("refuse", "skip"), default="refuse", help="where the scope is not empty"
    )
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when the scope holds all of the file; otherwise nothing of it was taken."""
    file: Any = iter(lambda: sys.stdin.buffer.read(1024 * 1024), b"")
    size = None
    if arguments.file != "-":
        file = Path(arguments.file)
        if not file.is_file():
            raise Misused(f"there is no file {file}")
        size = file.stat().st_size
    request: dict[str, Any] = {"on_conflict": arguments.on_conflict}
    if arguments.remap:
        request["remap"] = {"scope_id": arguments.remap}
    with service(arguments).client() as client, Meter("sent", time.monotonic, size) as meter:
        answer = client.import_(file, progress=meter.show, **request)
    if arguments.json:
        print(answer.raw.decode())
    elif not answer.imported:
        print(f"{answer.scope_id}  left as it is: it holds something else")
    else:
        again = ", which it held already" if answer.replayed else ""
        print(f"{answer.scope_id}  {answer.entries} entries, {answer.versions} versions{again}")
    return OK
