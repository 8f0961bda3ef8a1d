"""`pamspec delete`: write the final tombstone and erase the content."""

import argparse

from pamspec_cli.connection import reporting
from pamspec_cli.erasures import add_subject, erase

SUMMARY = "delete an object or a relationship for good"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_subject(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it is deleted."""
    return erase(arguments, "delete", {})
