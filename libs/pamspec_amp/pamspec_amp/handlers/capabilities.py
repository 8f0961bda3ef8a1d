"""What the door tells of itself: each number is the one that is enforced (AMP A12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pamspec_amp.handlers.place import Place, Refusal
from pamspec_amp.handlers.writing import MAX_CELL_BYTES, MAX_SCORING_EDITS, SCORING_WINDOW_S
from pamspec_amp.model.schemas import AMP_VERSION, DECAY, MAX_PAGE, OBJECT_TYPE

RETENTION_DAYS = 30
"""The least time for which what a deletion leaves is kept; there is no purge that could cut it short (A35)."""


async def capabilities(place: Place, *, keys_required: bool, interval_s: int, space: str | None) -> dict[str, Any]:
    """The answer of GET /spec."""
    return {
        "amp_version": AMP_VERSION,
        "capabilities": {
            "mcp_compatible": False,
            "storage_backends": ["postgresql"],
            "api_keys_required": keys_required,
            "scoring_patch_limit": {"max_patches": MAX_SCORING_EDITS, "window_seconds": SCORING_WINDOW_S},
            "embedding": await _embedding(place, space),
            "max_cell_size_bytes": MAX_CELL_BYTES,
            "max_page_size": MAX_PAGE,
            "retention_days": RETENTION_DAYS,
            "lifecycle_scheduler": {
                "enabled": await _decays(place),
                "interval_seconds": interval_s,
                "manual_run_endpoint": False,
            },
        },
    }


async def _decays(place: Place) -> bool:
    """Whether the policy of the scope makes cells decay as the protocol says."""
    try:
        found = await place.ask("get_scope", {})
    except Refusal:
        return False
    retention: Mapping[str, Any] = ((found["scope"].get("policy") or {}).get("retention")) or {}
    by_type = retention.get("by_type", {})
    rule = by_type.get(OBJECT_TYPE, retention.get("default", {}))
    decay: Mapping[str, Any] = rule.get("decay") or {}
    return all(decay.get(name) == wanted for name, wanted in DECAY.items() if name.endswith("_at")) and all(
        float(decay.get(name, wanted)) == wanted for name, wanted in DECAY.items() if not isinstance(wanted, str)
    )


async def _embedding(place: Place, space: str | None) -> dict[str, Any]:
    """What searches compare: vectors of a space, or words."""
    if space is None:
        return {"provider": "none", "dimensions": 0}
    try:
        found = await place.ask("list_embedding_spaces", {})
    except Refusal:
        return {"provider": space, "dimensions": 0}
    dimensions = [one["dimensions"] for one in found["embedding_spaces"] if one["embedding_space_id"] == space]
    return {"provider": space, "dimensions": dimensions[0] if dimensions else 0}
