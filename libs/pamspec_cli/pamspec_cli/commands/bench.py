"""`pamspec bench`: every figure beside its floor, measured in the same run."""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import uvloop

from pamspec_cli.bench import table
from pamspec_cli.bench.durability import Weakened
from pamspec_cli.bench.figures import Figure
from pamspec_cli.connection import FAILED, OK, Misused, reporting
from pamspec_cli.demo.conversations import Conversation, NoConversation, read_folder, sample

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
    parser.add_argument("figure", nargs="*", help="the same as --only, for instance: recall")
    parser.add_argument(
        "--conversations",
        type=Path,
        metavar="DIR",
        help="conversations with questions, a JSON file for each, to measure recall on; missing: a short sample",
    )
    parser.add_argument(
        "--conversation",
        action="append",
        default=[],
        metavar="NAME",
        help="only this one of them, by its file name without .json; several times",
    )
    parser.add_argument("--json", action="store_true", help="the figures as one JSON document")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when every measured figure reaches its target."""
    only = [*arguments.figure, *arguments.only]
    groups, conversations = table.chosen(only), chosen_conversations(arguments.conversations, arguments.conversation)
    if not groups:
        raise Misused(f"no such figure; there are {', '.join(table.NAMES)}")
    try:
        results = uvloop.run(_until_terminated(table.run(groups, _report, _say, conversations)))
    except Weakened as error:
        print(f"pamspec: {error}", file=sys.stderr)
        return FAILED
    except asyncio.CancelledError:
        return FAILED
    if only:
        wanted = tuple(only)
        results.figures = [figure for figure in results.figures if figure.name.startswith(wanted)]
    if arguments.json:
        print(json.dumps(results.document(), indent=2))
    else:
        print("\n".join(table.lines(results)))
    return OK if all(figure.ok for figure in results.figures) else FAILED


def chosen_conversations(folder: Path | None, names: Sequence[str]) -> list[Conversation]:
    """The chosen ones of a folder, or of the sample; Misused where there is no such one."""
    try:
        every = sample() if folder is None else read_folder(folder)
    except NoConversation as error:
        raise Misused(str(error)) from None
    if missing := set(names) - {one.name for one in every}:
        raise Misused(f"no conversation {', '.join(sorted(missing))}; there are {', '.join(one.name for one in every)}")
    return [one for one in every if not names or one.name in names]


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
