"""`pamspec redact`: erase content, whole or in part, and past versions."""

import argparse
from typing import Any

from pamspec_cli.connection import reporting
from pamspec_cli.erasures import add_subject, erase

SUMMARY = "erase content, whole or in part"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--whole", action="store_true", help="all of the content, or with --version those versions alone")
    what.add_argument(
        "--path", action="append", metavar="POINTER", help="a part of the content, as /a/b/0; may be given again"
    )
    parser.add_argument(
        "--version", action="append", metavar="VERSION", help="erase this past version alone; may be given again"
    )
    add_subject(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it is erased."""
    target: dict[str, Any] = {"redaction_target": {"whole": True} if arguments.whole else {"paths": arguments.path}}
    if arguments.version:
        target["version_ids"] = arguments.version
    return erase(arguments, "redact", target)
