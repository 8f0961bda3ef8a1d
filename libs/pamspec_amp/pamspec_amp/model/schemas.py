"""The forms of cells and requests (AMP A1-A9, A13, A15, A18).

A stored cell is closed; what a request has beside the declared members is left out, as the protocol says (A10, A15).
"""

from __future__ import annotations

from typing import Any

AMP_VERSION = "0.1.0"
OBJECT_TYPE = "amp:cell"
SCHEMA_ID = "amp:schema:cell:0.1.0"
TYPES = ("episodic", "semantic", "procedural")
STATUSES = ("active", "stale", "archived", "deleted")
MAX_PAGE = 100
MAX_OFFSET = 10_000

_NAME = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[^\\u0000]*$"}
_NAME_OR_NULL = {**_NAME, "type": ["string", "null"]}
_PATTERNS = {"type": "array", "maxItems": 1000, "items": _NAME}
_UNIT = {"type": "number", "minimum": 0, "maximum": 1}
_SCORING = {
    "importance": _UNIT,
    "confidence": _UNIT,
    "decay_rate": {"type": "number", "minimum": 0, "maximum": 1000},
}
_POLICY = {"readable_by": _PATTERNS, "writable_by": _PATTERNS, "public": {"type": "boolean"}}
_PROVENANCE = {
    "source_type": {"enum": ["conversation", "document", "inference", "user_explicit", None]},
    "source_ref": {"type": ["string", "null"]},
    "extraction_method": {"enum": ["llm_extraction", "rule_based", "user_explicit", None]},
}
_CONTENT = {"text": {"type": "string", "minLength": 1}, "metadata": {"type": "object"}}
_IDENTITY = {
    "owner_id": _NAME,
    "owner_type": {"enum": ["user", "agent", "organization"]},
    "created_by": _NAME_OR_NULL,
    "session_id": _NAME_OR_NULL,
}


def _object(properties: dict[str, Any], *required: str, closed: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        made["required"] = list(required)
    return made | ({"additionalProperties": False} if closed else {})


_COUNTED = {"access_count": {"type": "integer", "minimum": 0}}

CREATE = _object(
    {
        "type": {"enum": list(TYPES)},
        "content": _object(_CONTENT, "text"),
        "identity": _object(_IDENTITY, "owner_id", "owner_type"),
        "scoring": _object({**_SCORING, **_COUNTED}),
        "access_policy": _object(_POLICY),
        "provenance": _object(_PROVENANCE),
    },
    "type",
    "content",
    "identity",
)
PATCH = _object(
    {
        "content": _object(_CONTENT),
        "scoring": _object({**_SCORING, **_COUNTED}),
        "access_policy": _object(_POLICY),
        "provenance": _object(_PROVENANCE),
        "lifecycle": _object(
            {
                "status": {"enum": list(STATUSES)},
                "expires_at": {"type": ["string", "null"], "format": "date-time"},
            }
        ),
    }
)
SEARCH = _object(
    {
        "query": {"type": "string", "minLength": 1, "maxLength": 8192},
        "owner_id": _NAME_OR_NULL,
        "types": {"type": ["array", "null"], "items": {"enum": list(TYPES)}},
        "status": {"type": ["array", "null"], "items": {"enum": list(STATUSES)}},
        "include_stale": {"type": "boolean"},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE},
        "offset": {"type": "integer", "minimum": 0, "maximum": MAX_OFFSET},
    },
    "query",
)
STORED = _object(
    {
        "type": {"enum": list(TYPES)},
        "content": _object(_CONTENT, "text", closed=True),
        "identity": _object(_IDENTITY, "owner_id", "owner_type", "created_by", closed=True),
        "scoring": _object(_SCORING, *_SCORING, closed=True),
        "access_policy": _object(_POLICY, closed=True),
        "provenance": _object(_PROVENANCE, closed=True),
    },
    "type",
    "content",
    "identity",
    "scoring",
    closed=True,
)
"""What a scope keeps; registered there, it holds for writers through every door."""

DECAY = {
    "rate_per_day": 0.01,
    "importance": 0.5,
    "confidence": 1.0,
    "threshold": 0.3,
    "rate_at": "/scoring/decay_rate",
    "importance_at": "/scoring/importance",
    "confidence_at": "/scoring/confidence",
    "archive_after_seconds": 30 * 86_400,
}
"""The rule of a scope's policy by which its cells decay (A25-A28, A38)."""
