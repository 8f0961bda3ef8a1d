"""The contracts as they landed: read from git, so that nobody keeps a second copy of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from pamspec_common.contracts import sources

_BUNDLE = Path("libs", "pamspec_common", "pamspec_common", "contracts", sources.BUNDLE)
_ACCEPTED = Path("contracts", "accepted-changes.yaml")


def landed(root: Path) -> str | None:
    """The commit to compare with: the last one, or the one before it where the contracts have not changed since.

    None without a history.
    """
    if _git(root, "rev-parse", "HEAD") is None:
        return None
    changed = _git(root, "status", "--porcelain", "--", "contracts", str(_BUNDLE))
    return "HEAD" if changed else "HEAD~1"


def bundle_of(root: Path, commit: str | None) -> dict[str, Any] | None:
    """The bundle of a commit, or of the checkout; None where that commit has none."""
    text = (root / _BUNDLE).read_text() if commit is None else _git(root, "show", f"{commit}:{_BUNDLE.as_posix()}")
    if text is None:
        return None
    bundle: dict[str, Any] = json.loads(text)
    return bundle


def accepted_changes(root: Path) -> set[str]:
    """What contracts/accepted-changes.yaml accepts; ValueError for an entry without a reason."""
    entries = yaml.safe_load((root / _ACCEPTED).read_text())["accepted"]
    for entry in entries:
        if not (isinstance(entry, dict) and entry.keys() == {"change", "why"} and all(entry.values())):
            raise ValueError(f"{_ACCEPTED}: every entry has a change and a why")
    return {entry["change"] for entry in entries}


def _git(root: Path, *arguments: str) -> str | None:
    """What git says; None when it can't."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout
