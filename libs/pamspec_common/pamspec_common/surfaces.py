"""The surfaces of an erasure: every place where what was erased might be, each with its own line in the receipt.

Invariant: a receipt names all of them, whatever is deployed. An erasure is absent from every answer once each surface
but the page bytes is settled, and closed once those are too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SURFACES: Final = (
    "canonical_content",
    "provenance",
    "idempotency_records",
    "operation_outcomes",
    "lexical",
    "vector",
    "graph",
    "caches",
    "webhook_log",
    "parked_messages",
    "import_staging",
    "snapshots",
    "exports",
    "streams",
    "read_replicas",
    "page_bytes",
)
PAGE_BYTES: Final = "page_bytes"
OPEN: Final = "open"
CLOSED: Final = "closed"
NOT_PRESENT: Final = "not_present"
SETTLED: Final = frozenset({CLOSED, NOT_PRESENT})
"""States in which a surface holds the erasure open no longer: verified, or nothing of its kind is deployed."""
FRESH: Final[Mapping[str, Any]] = {"state": OPEN, "attempts": 0}
"""A surface that nobody has looked at yet."""


def line(surfaces: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What is known of a surface."""
    return {**FRESH, **surfaces.get(name, {})}


SHOWN: Final = ("state", "position", "attempts", "repairs", "scan", "error", "checked_at", "closed_at", "deadline")


def shown(surfaces: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lines of a receipt as they are answered."""
    known = [(name, line(surfaces, name)) for name in SURFACES]
    return [{"surface": name, **{key: said[key] for key in SHOWN if key in said}} for name, said in known]


def unsettled(surfaces: Mapping[str, Any]) -> list[str]:
    """The surfaces that are still to be verified, in the order of the receipt."""
    return [name for name in SURFACES if line(surfaces, name)["state"] not in SETTLED]
