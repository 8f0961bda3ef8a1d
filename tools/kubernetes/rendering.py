"""Overlays as kustomize builds them, kept in deploy/k8s/rendered so that what a change does to a cluster can be read.

Invariant: a rendered file names the digest of the sources that it was made of; with other sources it is stale.
"""

import hashlib
import subprocess
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parents[2] / "deploy" / "k8s"
RENDERED = DIRECTORY / "rendered"
OVERLAYS = ("dev", "production", "high-availability")
_HEADER = "# Made by  make k8s  from deploy/k8s, whose files have the digest {digest}; not edited by hand.\n"


def header() -> str:
    """The first line of a rendered file as it must be now."""
    digest = hashlib.sha256()
    for folder in ("base", "components", "overlays"):
        for path in sorted((DIRECTORY / folder).rglob("*")):
            if path.is_file():
                digest.update(f"{path.relative_to(DIRECTORY)}\0{path.read_text(encoding='utf-8')}\0".encode())
    return _HEADER.format(digest=digest.hexdigest())


def build(kubectl: str, overlay: Path) -> str:
    """What kustomize makes of a directory; CalledProcessError with its words on standard error."""
    return subprocess.run([kubectl, "kustomize", str(overlay)], check=True, stdout=subprocess.PIPE, text=True).stdout


def rendered(overlay: str) -> Path:
    """The kept file of an overlay."""
    return RENDERED / f"{overlay}.yaml"
