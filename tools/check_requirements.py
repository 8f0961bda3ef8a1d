"""requirements.txt is what uv.lock says, for people who install with pip: fails, or rewrites it with --write."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "requirements.txt"
EXPORT = [
    "export",
    "--frozen",
    "--all-packages",
    "--no-emit-workspace",
    "--no-header",
    "--no-annotate",
    "--quiet",
]


def exported() -> str:
    """The locked third-party packages with their hashes, one environment marker each where needed."""
    uv = Path(sys.executable).with_name("uv")
    return subprocess.run([uv, *EXPORT], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> int:
    wanted = exported()
    if "--write" in sys.argv[1:]:
        TARGET.write_text(wanted, encoding="utf-8")
        return 0
    if not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != wanted:
        print("requirements.txt differs from uv.lock: run  make lock", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
