"""Every line of the protocol has a test."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
LINES = [f"A{number}" for number in range(1, 46)] + [f"AY{number}" for number in range(1, 6)]
NAMED = re.compile(r"(?<![A-Za-z0-9])[aA](Y|y)?(\d+)(?:[-_](?:[aA])(\d+))?(?![A-Za-z0-9])")


def lines_of(text: str) -> set[str]:
    """The lines that tests and vectors name; `A1-A9` names what is between."""
    found: set[str] = set()
    for match in NAMED.finditer(text.replace("_", " ").replace("test a", " a")):
        prefix, first = "AY" if match[1] else "A", int(match[2])
        last = int(match[3]) if match[3] else first
        found |= {f"{prefix}{number}" for number in range(first, last + 1)}
    return found


def test_every_line_has_a_test() -> None:
    texts = [path.read_text(encoding="utf-8") for path in [*HERE.glob("test_[!c]*.py"), *HERE.glob("vectors/*.json")]]
    named = {line for text in texts for line in lines_of(text)}
    assert [line for line in LINES if line not in named] == []
