"""Cells, as a scope keeps them and as the protocol shows them.

A cell is an object of the type `amp:cell`: its content is what agents say, its states are the object's, `asserted_at`
is when it was made, `observed_at` when it was last patched, `valid_until` its expires_at.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from pamspec_amp.model.schemas import AMP_VERSION
from pamspec_amp.model.ulids import cell_of
from pamspec_common.decay import Scoring, score
from pamspec_common.instants import parse

JOBS = ("service:retention_sweeper", "service:legal-hold")
DAY_S = 86_400
_SCORING = {"importance": 0.5, "confidence": 1.0, "decay_rate": 0.01}
_POLICY: Mapping[str, Any] = {"readable_by": [], "writable_by": [], "public": False}
_PROVENANCE: Mapping[str, Any] = {"source_type": None, "source_ref": None, "extraction_method": None}
_PARTS = {"content": ("text", "metadata"), "scoring": tuple(_SCORING), "access_policy": tuple(_POLICY)}
_PATCHED = {**_PARTS, "provenance": tuple(_PROVENANCE)}
_IDENTITY = ("owner_id", "owner_type", "created_by", "session_id")

FIELDS = [
    "object_id",
    "version_id",
    "sequence",
    "committed_at",
    "actor",
    "lifecycle_state",
    "retention_state",
    "asserted_at",
    "observed_at",
    "valid_until",
    "canonical_content",
]
"""The members of an envelope that a cell is made of."""


class Usage(NamedTuple):
    """How often a cell was read, and when last."""

    reads: int = 0
    last_at: str | None = None


class Cell(NamedTuple):
    """A cell as it is now."""

    cell_id: str
    object_id: str
    version_id: str
    sequence: int
    status: str
    created_at: str
    updated_at: str | None
    expires_at: str | None
    document: dict[str, Any]


def status_of(lifecycle: str, retention: str) -> str | None:
    """The status of what is there (A24-A33); None for what is no cell to anybody, as a draft of another door."""
    if lifecycle in ("archived", "superseded", "deprecated"):
        return "archived"
    if lifecycle != "active":
        return None
    return "stale" if retention in ("expired", "pending_deletion") else "active"


def cell_in(envelope: Mapping[str, Any]) -> Cell | None:
    """The cell of an envelope that has FIELDS; None for what is none."""
    cell = cell_of(envelope["object_id"])
    status = status_of(envelope["lifecycle_state"], envelope["retention_state"])
    document = envelope["canonical_content"]
    if cell is None or status is None or not _is_whole(document):
        return None
    committed: str = envelope["committed_at"]
    updated = envelope.get("observed_at")
    if envelope["sequence"] > 1 and envelope["actor"]["actor_id"] not in JOBS:
        updated = committed
    created = envelope.get("asserted_at", committed)
    expires = envelope.get("valid_until")
    ids = (cell, envelope["object_id"], envelope["version_id"], envelope["sequence"])
    return Cell(*ids, status, created, updated, expires, document)


def _is_whole(document: Any) -> bool:
    """Whether content has what every rule here asks for; the scope's schema has judged the rest."""
    if not isinstance(document, dict) or "type" not in document:
        return False
    parts = [document.get(name) for name in ("content", "identity", "scoring")]
    if not all(isinstance(part, dict) for part in parts):
        return False
    return "text" in document["content"] and "owner_id" in document["identity"] and _SCORING.keys() <= parts[2].keys()  # type: ignore[union-attr]


def made_of(body: Mapping[str, Any], created_by: str) -> dict[str, Any]:
    """What a scope keeps of a new cell; members that nobody declared are left out (A10)."""
    identity = _named(body["identity"], _IDENTITY) | {"created_by": created_by}
    document: dict[str, Any] = {
        "type": body["type"],
        "content": _named(body["content"], _PARTS["content"]),
        "identity": identity,
    }
    return patched(document | {"scoring": dict(_SCORING)}, {name: body.get(name, {}) for name in _PATCHED})


def patched(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's content with a patch merged into its parts (A15)."""
    merged = dict(document)
    for part, members in _PATCHED.items():
        if part in patch:
            merged[part] = {**merged.get(part, {}), **_named(patch[part], members)}
    # What says nothing is not kept, so that a query finds those that name somebody.
    for part, defaults in (("access_policy", _POLICY), ("provenance", _PROVENANCE)):
        said = {name: value for name, value in merged.get(part, {}).items() if value != defaults[name]}
        merged.pop(part, None)
        if said:
            merged[part] = said
    return merged


def _named(part: Mapping[str, Any], members: tuple[str, ...]) -> dict[str, Any]:
    return {name: part[name] for name in members if name in part}


def shown(cell: Cell, usage: Usage) -> dict[str, Any]:
    """The full cell (A1-A9)."""
    document = cell.document
    return {
        "amp_version": AMP_VERSION,
        "id": cell.cell_id,
        "type": document["type"],
        "content": {"metadata": {}, **document["content"]},
        "identity": {"session_id": None, **document["identity"]},
        "scoring": {**document["scoring"], "access_count": usage.reads},
        "lifecycle": {
            "created_at": cell.created_at,
            "last_accessed_at": usage.last_at,
            "last_updated_at": cell.updated_at,
            "expires_at": cell.expires_at,
            "status": cell.status,
        },
        "access_policy": {**_POLICY, **document.get("access_policy", {})},
        "provenance": {**_PROVENANCE, **document.get("provenance", {})},
    }


def decay_score(cell: Cell, usage: Usage, now: datetime) -> float:
    """importance x confidence x e^(-rate x days since the latest of creation, update and read) (A38, AY1)."""
    used = max(parse(one) for one in (cell.created_at, cell.updated_at, usage.last_at) if one is not None)
    numbers = cell.document["scoring"]
    scoring = Scoring(*(float(numbers[name]) for name in _SCORING))
    return score(scoring, max(0.0, (now - used).total_seconds()) / DAY_S)


def rank(similarity: float, decay: float) -> float:
    """What a search is ordered by (A18)."""
    return 0.7 * max(0.0, similarity) + 0.3 * decay
