"""`pamspec conformance`: the cases of the eleven profiles against a gateway, and the implementation report."""

import argparse
import asyncio
import importlib.resources
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pamspec_cli.connection import FAILED, OK, Misused, reporting, service
from pamspec_cli.data import DataDirectory, chosen
from pamspec_cli.own_service import own_service
from pamspec_conformance import (
    PROFILES,
    Case,
    Facilities,
    HttpBinding,
    Outcome,
    Report,
    Result,
    Statement,
    cases,
    run_cases,
)
from pamspec_conformance.scenarios import run_scenario, shipped

SUMMARY = "run the conformance cases and print the implementation report"
STATEMENT = "conformance_statement.json"


@dataclass(frozen=True)
class Target:
    """A gateway under test. `restart` is None where this run can't restart it."""

    url: str
    key: str = field(repr=False)
    stranger_key: str | None = field(default=None, repr=False)
    restart: Callable[[], Awaitable[None]] | None = None


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "--url",
        help="address of the gateway (PAMSPEC_URL, else `pamspec up` on --data, else a service of this run alone)",
    )
    parser.add_argument("--key", help="API key (PAMSPEC_API_KEY, else the development key of --data)")
    parser.add_argument("--stranger-key", metavar="KEY", help="a key of another tenant, for the cases that need one")
    parser.add_argument("--restart", metavar="COMMAND", help="restarts the service and returns when it answers again")
    parser.add_argument("--data", metavar="DIR", help="the data directory (PAMSPEC_DATA, else ./.data)")
    names = ", ".join(profile.name for profile in PROFILES)
    parser.add_argument("--profile", action="append", default=[], metavar="NAME", help=f"several times; one of {names}")
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="only this case; several times")
    parser.add_argument(
        "--scenario", nargs="?", const="", metavar="FILE", help="run this acceptance scenario, or ours, and no cases"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and what they cover, and run none")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON, - for standard output")
    parser.add_argument("--markdown", metavar="FILE", help="write the report as Markdown, - for standard output")
    parser.add_argument("--statement", metavar="FILE", help="what the implementation states about itself, as JSON")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 unless a case failed; what is not offered yet or could not be tried is no failure, and never a pass."""
    wanted = _wanted(arguments)
    if arguments.list:
        for case in wanted:
            print(f"{case.name}  {' '.join(case.covers)}\n    {case.promise}")
        return OK
    if "-" == arguments.json == arguments.markdown:
        raise Misused("only one of --json and --markdown can go to standard output")
    if arguments.scenario is not None:
        return asyncio.run(_scenario(arguments))
    report = asyncio.run(_report(arguments, wanted))
    _write(arguments.json, report.json)
    _write(arguments.markdown, report.markdown)
    if "-" not in (arguments.json, arguments.markdown):
        print(_summary(report) if arguments.json or arguments.markdown else report.markdown(), end="")
    return FAILED if report.failed else OK


def _wanted(arguments: argparse.Namespace) -> list[Case]:
    try:
        found = cases(*(name.upper() for name in arguments.profile))
    except KeyError as error:
        raise Misused(f"no profile {error.args[0]}; there are {', '.join(p.name for p in PROFILES)}") from None
    if arguments.case:
        missing = set(arguments.case) - {case.name for case in found}
        if missing:
            raise Misused(f"no case {', '.join(sorted(missing))}: see  pamspec conformance --list")
        found = [case for case in found if case.name in arguments.case]
    return found


async def _report(arguments: argparse.Namespace, wanted: list[Case]) -> Report:
    async with _target(arguments) as target, HttpBinding(target.url, target.key) as binding:
        stranger = HttpBinding(target.url, target.stranger_key) if target.stranger_key else None
        try:
            statement = await _statement(arguments, binding)
            facilities = Facilities(stranger, target.restart, binding)
            results = await run_cases(wanted, binding, facilities, done=_say)
        finally:
            if stranger is not None:
                await stranger.aclose()
    return Report(results, statement, target.url, datetime.now(UTC).isoformat(timespec="seconds"))


async def _scenario(arguments: argparse.Namespace) -> int:
    try:
        text = Path(arguments.scenario).read_text(encoding="utf-8") if arguments.scenario else None
        scenario = shipped() if text is None else json.loads(text)
    except (OSError, ValueError) as error:
        raise Misused(f"the scenario can't be used: {error}") from None
    async with _target(arguments) as target, HttpBinding(target.url, target.key) as binding:
        results = await run_scenario(scenario, binding)
    for one in results:
        print(f"{one.number:3} {one.does:18} {one.outcome.value:9} {one.detail}".rstrip())
    return FAILED if any(one.outcome is Outcome.FAILED for one in results) else OK


@asynccontextmanager
async def _target(arguments: argparse.Namespace) -> AsyncIterator[Target]:
    if arguments.url or os.environ.get("PAMSPEC_URL") or DataDirectory(chosen(arguments.data)).noted():
        found = service(arguments)
        yield Target(found.url, found.api_key, arguments.stranger_key, _restart(arguments.restart))
        return
    print("nothing runs here: starting a service for this run alone", file=sys.stderr)
    async with own_service() as own:
        yield Target(own.url, own.key, own.stranger_key, own.restart)


def _restart(command: str | None) -> Callable[[], Awaitable[None]] | None:
    if command is None:
        return None

    async def restart() -> None:
        process = await asyncio.create_subprocess_shell(command, stdout=sys.stderr)
        if await process.wait() != 0:
            raise Misused(f"the command of --restart ended with code {process.returncode}")

    return restart


async def _statement(arguments: argparse.Namespace, binding: HttpBinding) -> Statement:
    """The given statement; ours where the gateway calls itself what we are; else what it calls itself."""
    if arguments.statement:
        return _read_statement(Path(arguments.statement).read_text(encoding="utf-8"))
    ours = _read_statement(importlib.resources.files("pamspec_cli").joinpath(STATEMENT).read_text(encoding="utf-8"))
    named = await binding.name()
    if named is None or named == (ours.name, ours.version):
        return ours if named else Statement()
    return Statement(*named)


def _read_statement(text: str) -> Statement:
    try:
        document = json.loads(text)
        return Statement.of(document if isinstance(document, dict) else {"": ""})
    except ValueError as error:
        raise Misused(f"the statement can't be used: {error}") from None


def _say(result: Result) -> None:
    if sys.stderr.isatty() or result.outcome is Outcome.FAILED:
        detail = f": {result.detail}" if result.outcome is Outcome.FAILED else ""
        print(f"{result.outcome.value:9} {result.case.name}{detail}", file=sys.stderr)


def _write(place: str | None, text: Callable[[], str]) -> None:
    if place == "-":
        print(text(), end="")
    elif place is not None:
        Path(place).write_text(text(), encoding="utf-8")


def _summary(report: Report) -> str:
    lines = [
        f"{entry.profile.name:18}{entry.standing:10}"
        + ", ".join(f"{entry.count(outcome)} {outcome.value}" for outcome in Outcome if entry.count(outcome))
        for entry in report.profiles
        if entry.results
    ]
    return "\n".join([*lines, f"{len(report.complete)} of {len(PROFILES)} profiles complete"]) + "\n"
