"""The page of threats names each threat of PAMSPEC 15.1, and only tests that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "threats.md"
OF_THE_DRAFT = [
    "Unauthorized access", "Cross-scope leakage", "Confused deputy", "Memory poisoning", "Persisted prompt injection",
    "Provenance forgery", "Ledger tampering", "Replay", "Excessive privilege", "Malicious relationships",
    "Backup leakage", "Derived-index remnants",
]  # fmt: skip
_NAMED = re.compile(r"`((?:libs|services|tests)/[\w/]+\.py)::(\w+)`")


def _tests_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def missing(page: str) -> list[str]:
    """The tests that a page names and that do not exist."""
    return [
        f"{file}::{name}"
        for file, name in _NAMED.findall(page)
        if not (ROOT / file).is_file() or name not in _tests_of(ROOT / file)
    ]


def test_every_named_test_exists() -> None:
    assert not missing(PAGE.read_text(encoding="utf-8"))


def test_every_threat_has_tests() -> None:
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S))
    assert set(OF_THE_DRAFT) <= sections.keys()
    for threat, section in sections.items():
        rows = [
            line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| what is tried")
        ]
        assert rows, threat
        for row in rows:
            assert _NAMED.search(row), f"{threat}: {row} names no test"


def test_a_test_that_is_gone_is_found() -> None:
    assert missing("`tests/security/test_threats.py::test_gone` `tests/security/nowhere.py::test_x`") == [
        "tests/security/test_threats.py::test_gone",
        "tests/security/nowhere.py::test_x",
    ]
