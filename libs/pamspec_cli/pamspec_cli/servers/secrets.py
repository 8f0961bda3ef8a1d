"""Passwords and keys that a data directory makes once and keeps: one file each, readable by its owner alone."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path


def kept(path: Path, make: Callable[[], str]) -> str:
    """The text of this file, made when there is none, mode 0600; whole or absent."""
    if path.exists():
        return path.read_text(encoding="ascii").strip()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = make()
    write_private(path, text + "\n")
    return text


def write_private(path: Path, text: str) -> None:
    """Writes the file with mode 0600 in one step: a reader sees the old text or the new."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)


def password() -> str:
    """A new password of 192 bits in letters that need no quoting in a URL."""
    return secrets.token_urlsafe(24)
