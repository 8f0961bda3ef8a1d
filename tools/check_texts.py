"""The repository speaks of itself alone: no path of one machine, no address of a package mirror, no unfinished note."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GENERATED = {"uv.lock", "requirements.txt"}
ITSELF = {"tools/check_texts.py"}
RULES = [
    ("a path of one machine", re.compile(r"(?<![\w./])/(?:work|root|opt|mnt|home/[a-z]+)/[A-Za-z.]")),
    (
        "a package registry's address",
        re.compile(r"https?://(?:[\w.-]*\.)?(?:pypi|pythonhosted|npmjs)\.", re.IGNORECASE),
    ),
    ("a note that something is unfinished", re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")),
]


def findings(name: str, text: str) -> list[str]:
    """One line per place of this text that breaks a rule, ready to print."""
    return [
        f"{name}:{number}: {label}"
        for number, line in enumerate(text.splitlines(), start=1)
        for label, pattern in RULES
        if pattern.search(line)
    ]


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found: list[str] = []
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if name in GENERATED or name in ITSELF or not path.is_file():
            continue
        try:
            found += findings(name, path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
