"""The command `pamspec`: finds the subcommand, runs it, and turns its refusals into one line and an exit code."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

from pamspec_cli.data import DirectoryBusy
from pamspec_cli.servers.process import ServerError

COMMANDS = (
    "up",
    "down",
    "status",
    "demo",
    "keys",
    "tenants",
    "scopes",
    "roles",
    "audit",
    "rules",
    "quotas",
    "parked",
    "holds",
    "delegations",
    "schemas",
    "snapshots",
    "create",
    "read",
    "query",
    "assemble",
    "history",
    "update",
    "transition",
    "relate",
    "promote",
    "redact",
    "delete",
    "erasures",
    "subscribe",
    "subscriptions",
    "tail",
    "mcp",
    "amp",
    "verify",
    "reindex",
    "spaces",
    "vectors",
    "export",
    "import",
    "checkpoints",
    "backup",
    "restored",
    "provision",
    "migrate",
    "encryption",
    "bench",
    "conformance",
)
"""Each has a module of its name in pamspec_cli.commands, loaded when it is called or when help lists all."""


class Command(Protocol):
    """What a module of pamspec_cli.commands offers."""

    SUMMARY: str

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Declares the arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Does the work; the exit code."""


def command(name: str) -> Command:
    """The module of a subcommand."""
    return cast(Command, importlib.import_module(f"pamspec_cli.commands.{name.replace('-', '_')}"))


class _Parser(argparse.ArgumentParser):
    """A parser that says all that it can do to who names a command and nothing else."""

    bare = False

    def error(self, message: str) -> NoReturn:
        """The help before the complaint, where nothing but the command was given; exit code 2."""
        if self.bare:
            self.print_help(sys.stderr)
            self.exit(2, f"\n{self.prog}: {message}\n")
        super().error(message)


def parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The command line: of the one subcommand that `argv` names, else of all."""
    whole = _Parser(prog="pamspec", description="Persistent memory for agents.")
    whole.bare = not argv
    subcommands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in [name for name in COMMANDS if name in argv[:1]] or COMMANDS:
        module = command(name)
        one = subcommands.add_parser(name, help=module.SUMMARY, description=module.SUMMARY)
        one.bare = list(argv) == [name]
        module.add(one)
    return whole


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand; its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    whole = parser(given)
    arguments, unknown = whole.parse_known_args(given)
    if unknown:
        whole.error(f"{arguments.command} has no {' '.join(unknown)}; see  pamspec {arguments.command} --help")
    try:
        return command(arguments.command).run(arguments)
    except DirectoryBusy as busy:
        print(f"pamspec: {busy}", file=sys.stderr)
        return 2
    except ServerError as error:
        print(f"pamspec: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 1


if __name__ == "__main__":
    sys.exit(main())
