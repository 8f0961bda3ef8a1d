"""Migrations as upgrades need them: the list that a package carries is true, and nobody is taken by surprise.

During an upgrade the version before works on the new tables. So a migration that takes something away says from which
version on a database with it may be used (`-- floor: NNNN`, see docs/operations/upgrade.md), or why the version before
goes on working (`-- compatible: ...`).
"""

import json
import re
import sys
from pathlib import Path

from pamspec_common.schema import FILE, floor_of, in_checkout

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "libs" / "pamspec_common" / "pamspec_common" / FILE
BEFORE = {
    "delegation": 3,
    "indexing": 5,
    "query": 5,
    "relay": 5,
    "retention_sweeper": 5,
    "subscription": 5,
    "write": 26,
}
"""Migrations from before this rule, and before anybody had a database to keep."""
TAKES_AWAY = re.compile(
    r"\bDROP\s+(?:TABLE|COLUMN|FUNCTION|PROCEDURE|VIEW|TYPE|SCHEMA|CONSTRAINT)\b|\bRENAME\s+(?:TO|COLUMN)\b"
    r"|\bALTER\s+COLUMN\s+\w+\s+(?:SET\s+DATA\s+)?(?:TYPE|SET\s+NOT\s+NULL)\b|\bSET\s+NOT\s+NULL\b|\bREVOKE\b[^;]*\bFROM\s+pamspec_",
    re.IGNORECASE,
)
COMPATIBLE = re.compile(r"^-- compatible: \S.*$", re.MULTILINE)


def surprises(name: str, number: int, text: str) -> list[str]:
    """What is wrong with one migration, ready to print."""
    floor = floor_of(text)
    if floor is not None and floor > number:
        return [f"{name}: its floor {floor:04} is a version that nobody has"]
    statements = re.sub(r"--.*", "", text)
    found = TAKES_AWAY.search(statements)
    if found and floor is None and not COMPATIBLE.search(text):
        return [f"{name}: {' '.join(found[0].split())} may break the version before: say -- floor: or -- compatible:"]
    return []


def written(numbers: dict[str, int]) -> str:
    """The list as the package carries it."""
    return json.dumps(numbers, indent=1, sort_keys=True) + "\n"


def main() -> int:
    """Prints what is wrong; with --write the list is made anew first."""
    numbers = in_checkout(ROOT)
    if "--write" in sys.argv[1:]:
        LIST.write_text(written(numbers), encoding="utf-8")
    found = []
    if not LIST.is_file() or LIST.read_text(encoding="utf-8") != written(numbers):
        found.append(f"{LIST.relative_to(ROOT)} is not what the folders say: run  make contracts")
    for path in sorted(ROOT.glob("services/*/pamspec_*/migrations/*.sql")):
        number = int(path.name[:4])
        if number > BEFORE.get(path.parents[2].name, 0):
            found += surprises(str(path.relative_to(ROOT)), number, path.read_text(encoding="utf-8"))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
