"""`pamspec export`: a scope as one file."""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_cli.transferring import Meter

SUMMARY = "write a scope, with its history, to standard output or a file"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("scope", metavar="SCOPE", help="the scope, for example workspace:default")
    parser.add_argument("--output", metavar="FILE", help="a new file, instead of standard output")
    parser.add_argument("--embeddings", choices=("none", "reference", "include"), default="none")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when the whole scope was written; what an interrupted export has written lacks its last line."""
    target: Path | None = Path(arguments.output) if arguments.output else None
    if target is None and sys.stdout.isatty():
        raise Misused(
            "standard output is a terminal: name a file with --output, or redirect:  pamspec export SCOPE > FILE"
        )
    with service(arguments).client() as client:
        pieces = client.export(scope_id=arguments.scope, embeddings=arguments.embeddings)
        if target is None:
            _write(pieces, sys.stdout.buffer)
            return OK
        try:
            with target.open("xb") as file:
                _write(pieces, file)
        except FileExistsError:
            raise Misused(f"{target} is there already: name another file") from None
        except BaseException:
            target.unlink(missing_ok=True)
            raise
    return OK


def _write(pieces: Iterator[bytes], file: BinaryIO) -> None:
    with Meter("exported", time.monotonic) as meter:
        sent = 0
        for piece in pieces:
            file.write(piece)
            sent += len(piece)
            meter.show(sent)
        file.flush()
