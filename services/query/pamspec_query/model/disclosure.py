"""What a ranked answer says of the indexes behind it and of what was filtered before (PAMSPEC P29, P148, P149)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pamspec_common.documents import STATES
from pamspec_common.embedding_spaces import index_id
from pamspec_common.instants import wire
from pamspec_query.documents import Query
from pamspec_query.model.plan import Plan
from pamspec_query.model.ranked import Ranked
from pamspec_query.model.ranking import PARAMETERS
from pamspec_query.model.where import fields_of

FILTERS = "filters_applied"
"""The member that repeats the request, and is as long as that."""
LEXICAL = "index:lexical"
GRAPH = "canonical:relationships"
"""Relationships are walked in the canonical store itself, so their watermark is the position of the answer."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of candidates: which index it is of, up to where that is complete, and whether it names all it could."""

    mode: str
    index_id: str
    watermark: int
    approximate: bool
    complete: bool


def index_ids(looked: Ranked) -> dict[str, str]:
    """The index of each mode."""
    of_space = index_id(looked.embedding_space_id or "")
    known = {"lexical": LEXICAL, "vector": of_space, "graph": GRAPH}
    return {mode: known[mode] for mode in looked.modes}


def disclosed(plan: Plan, looked: Ranked, lists: Sequence[Listed], request: Query, *, past: bool) -> dict[str, Any]:
    """The member `index` of an answer. At a past position what has changed since is not ranked, so it approximates."""
    said: dict[str, Any] = {
        "embedding_space_id": looked.embedding_space_id,
        "index_id": "+".join(one.index_id for one in lists),
        "watermark": min(one.watermark for one in lists),
        "approximate": past or any(one.approximate for one in lists),
        "index_snapshot_id": None,
        "lists": [
            {
                "mode": one.mode,
                "index_id": one.index_id,
                "watermark": one.watermark,
                "approximate": one.approximate,
                "complete": one.complete,
            }
            for one in lists
        ],
        FILTERS: filters_applied(plan, request),
        "tie_break": list(looked.said),
        "ordering_profile": looked.profile.name,
        "text_clamped": looked.text_clamped,
    }
    said["fusion"] = {
        "method": "relative_score",
        "weights": {mode: PARAMETERS.weights[mode] for mode in looked.modes},
        "context": {"decay": PARAMETERS.context_decay, "reach": PARAMETERS.context_reach},
    }
    return said


def filters_applied(plan: Plan, request: Query) -> dict[str, Any]:
    """What was asked of a version before anything was ranked; of conditions the fields, never the values."""
    found: dict[str, Any] = {name: _any(plan.states.passing[name]) for name in STATES}
    named: Mapping[str, Any] = {
        "object_type": plan.object_types,
        "relationship_type": plan.relationship_types,
        "provenance_id": plan.provenance_ids,
        "where": None if plan.where is None else sorted(set(fields_of(plan.where))),
        "temporal_basis": None if plan.span is None else plan.span.basis,
        "valid_at": None if plan.valid_at is None else wire(plan.valid_at),
        "ledger_sequence": plan.ledger_sequence,
        "recorded_at": None if plan.recorded_at is None else wire(plan.recorded_at),
        "snapshot_id": request.snapshot_id,
        "traverse": None if request.traverse is None else True,
    }
    return {**found, **{name: _any(value) for name, value in named.items() if value is not None}}


def _any(value: Any) -> Any:
    return "any" if value is None else list(value) if isinstance(value, tuple | list) else value
