"""The repository speaks of itself alone, and truly.

No path of one machine, no address of a package mirror, no unfinished note; a Python file that a page names is there.
"""

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


def missing_files(name: str, text: str, files: set[str]) -> list[str]:
    """One line per Python file that a page names in backticks and that is none of `files`, by path or by its end."""
    named = re.finditer(r"`([A-Za-z_][\w/.]*\.py)`", text)
    return [
        f"{name}: names {match[1]}, which is not there"
        for match in named
        if not any(file == match[1] or file.endswith("/" + match[1]) for file in files)
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
    files = set(filter(None, listed.split("\0")))
    for name in sorted(files):
        path = ROOT / name
        if name in GENERATED or name in ITSELF or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += findings(name, text)
        if name.endswith(".md"):
            found += missing_files(name, text, files)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
