"""`python -m pamspec_cli.contracts generate|verify`: exit codes 0 ok, 1 stale, 2 usage."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pamspec_cli.contracts.generate import generate, stale
from pamspec_common.contracts import sources


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m pamspec_cli.contracts", description=__doc__)
    parser.add_argument("command", choices=["generate", "verify"])
    command = parser.parse_args(arguments).command
    folder = sources.checkout()
    if folder is None:
        print("No checkout with a folder contracts/ here; run this from the project's environment.", file=sys.stderr)
        return 2
    root = folder.parent
    if command == "generate":
        _tell("written", root, generate(root))
        return 0
    found = stale(root)
    _tell("stale, run `make contracts`", root, found)
    return 1 if found else 0


def _tell(word: str, root: Path, paths: list[Path]) -> None:
    for path in paths:
        print(f"{path.relative_to(root)}: {word}")


if __name__ == "__main__":
    sys.exit(main())
