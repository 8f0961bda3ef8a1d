"""`pamspec bench`: every figure beside its floor, measured in the same run."""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Coroutine
from typing import Any

import uvloop

from pamspec_cli.bench import table
from pamspec_cli.bench.durability import Weakened
from pamspec_cli.bench.figures import Figure
from pamspec_cli.connection import FAILED, OK, Misused, reporting

SUMMARY = "measure the figures, each beside its floor"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="only this figure, or those whose names start so; several times. Figures: " + ", ".join(table.NAMES),
    )
    parser.add_argument("--json", action="store_true", help="the figures as one JSON document")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when every measured figure reaches its target."""
    groups = table.chosen(arguments.only)
    if not groups:
        raise Misused(f"no such figure; there are {', '.join(table.NAMES)}")
    try:
        results = uvloop.run(_until_terminated(table.run(groups, _report, _say)))
    except Weakened as error:
        print(f"pamspec: {error}", file=sys.stderr)
        return FAILED
    except asyncio.CancelledError:
        return FAILED
    if arguments.only:
        wanted = tuple(arguments.only)
        results.figures = [figure for figure in results.figures if figure.name.startswith(wanted)]
    if arguments.json:
        print(json.dumps(results.document(), indent=2))
    else:
        print("\n".join(table.lines(results)))
    return OK if all(figure.ok for figure in results.figures) else FAILED


async def _until_terminated(run: Coroutine[Any, Any, table.Results]) -> table.Results:
    """SIGTERM ends the run as Ctrl-C does: servers stop and their directory is removed."""
    task = asyncio.create_task(run)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def _report(figure: Figure) -> None:
    beside = "" if figure.ratio is None else f", {figure.ratio:.2f} x floor"
    mark = "ok" if figure.ok else "SHORT"
    print(f"  {mark:<5} {figure.name}: {figure.value:,.4g} {figure.unit}{beside} ({figure.target})", file=sys.stderr)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
