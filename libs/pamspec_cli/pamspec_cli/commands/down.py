"""`pamspec down`: the ordered stop of a running `pamspec up` on the same data directory."""

import argparse
import os
import signal
import sys
import time

from pamspec_cli.data import DataDirectory, chosen

SUMMARY = "stop the service that runs on a data directory"
STOP_SECONDS = 90.0
_LOOK_SECONDS = 0.05


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--data", metavar="DIR", help="the data directory (PAMSPEC_DATA, else ./.data)")


def run(arguments: argparse.Namespace) -> int:
    """0 when nothing runs there any more, 1 when it does not end in time."""
    data = DataDirectory(chosen(arguments.data))
    owner = data.owner()
    if owner is None:
        print(f"nothing runs on {data.path}")
        return 0
    try:
        os.kill(owner, signal.SIGTERM)
    except ProcessLookupError:
        owner = None
    deadline = time.monotonic() + STOP_SECONDS
    while data.owner() is not None:
        if time.monotonic() > deadline:
            print(f"pamspec: process {owner} did not stop within {STOP_SECONDS:.0f} s: end it", file=sys.stderr)
            return 1
        time.sleep(_LOOK_SECONDS)
    print("stopped")
    return 0
