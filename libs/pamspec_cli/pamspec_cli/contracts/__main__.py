"""`python -m pamspec_cli.contracts generate|verify|compatible`: exit codes 0 ok, 1 stale or breaking, 2 usage.

`compatible` compares with a commit: the one that `--against` names, else the last one, or the one before it where
nothing has changed since.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pamspec_cli.contracts.compatibility import breaks
from pamspec_cli.contracts.generate import generate, stale
from pamspec_cli.contracts.landed import accepted_changes, bundle_of, landed
from pamspec_common.contracts import sources


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m pamspec_cli.contracts", description=__doc__)
    parser.add_argument("command", choices=["generate", "verify", "compatible"])
    parser.add_argument("--against", metavar="COMMIT", help="the version that landed (compatible)")
    given = parser.parse_args(arguments)
    command = given.command
    folder = sources.checkout()
    if folder is None:
        print("No checkout with a folder contracts/ here; run this from the project's environment.", file=sys.stderr)
        return 2
    root = folder.parent
    if command == "generate":
        _tell("written", root, generate(root))
        return 0
    if command == "compatible":
        return _compatible(root, given.against)
    found = stale(root)
    _tell("stale, run `make contracts`", root, found)
    return 1 if found else 0


def _compatible(root: Path, against: str | None) -> int:
    """Tell what breaks against a commit; 0 when all of that was accepted."""
    commit = against or landed(root)
    before = None if commit is None else bundle_of(root, commit)
    if before is None:
        print("There is no earlier version to compare with.")
        return 0
    accepted = accepted_changes(root)
    found = [one for one in breaks(before, bundle_of(root, None) or {}) if str(one) not in accepted]
    for one in found:
        print(f"{one} (deploy {one.first} first, and say so in contracts/accepted-changes.yaml)")
    return 1 if found else 0


def _tell(word: str, root: Path, paths: list[Path]) -> None:
    for path in paths:
        print(f"{path.relative_to(root)}: {word}")


if __name__ == "__main__":
    sys.exit(main())
