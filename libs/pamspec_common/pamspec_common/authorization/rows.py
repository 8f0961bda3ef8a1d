"""What a reader may see, as conditions on the rows of versions and of the ledger.

Within a grant's terms nothing else is seen: of types and ids that it does not name, neither the memory nor its entries.

Invariant: a version is seen when its object may be seen as it is now, and as it was then; a relationship also only
with both of its ends, of those in its own scope. Delegations are shown to their parties, which is decided elsewhere.
"""

from __future__ import annotations

from typing import Any

from pamspec_common.authorization.sight import Sight
from pamspec_common.authorization.vocabulary import ATTRIBUTES

_COLUMN = {**{name: name for name in ATTRIBUTES}, "creator": "created_by"}
_HEAD = "to_seq = 9223372036854775807"


def shown(sight: Sight, values: list[Any], *, is_head: bool = False) -> str:
    """The condition on a row `s` of core.version_span; its arguments join the statement's `values`.

    `is_head` says that the row is its object's head anyway.
    """
    parts = [_alone(sight, "s", values)]
    if sight.by_state and not is_head:
        parts.append(
            "EXISTS (SELECT FROM core.version_span h WHERE h.scope_key = s.scope_key AND h.object_id = s.object_id"
            f" AND h.{_HEAD} AND {_alone(sight, 'h', values)})"
        )
    parts.append(
        "(s.kind <> 'r' OR NOT EXISTS (SELECT FROM core.version_span e WHERE e.scope_key = s.scope_key"
        f" AND e.{_HEAD} AND e.object_id = ANY (ARRAY[s.source_object_id,"
        " CASE WHEN s.target_scope_id IS NULL THEN s.target_object_id END])"
        f" AND NOT {_alone(sight, 'e', values)}))"
    )
    return f"(s.kind = 'd' OR ({' AND '.join(parts)}))"


def shown_entry(sight: Sight, values: list[Any]) -> str:
    """The same for an entry `l` of core.ledger: the version that it made is seen, and what it is about."""
    return (
        "(NOT EXISTS (SELECT FROM core.version_span s WHERE s.scope_key = l.scope_key AND s.from_seq = l.sequence"
        f" AND NOT {shown(sight, values)})"
        " AND NOT EXISTS (SELECT FROM core.version_span s WHERE s.scope_key = l.scope_key"
        f" AND s.object_id = l.subject_id AND s.{_HEAD} AND NOT {shown(sight, values, is_head=True)}))"
    )


def _alone(sight: Sight, row: str, values: list[Any]) -> str:
    """Whether a row may be seen by its own attributes; the text is made of columns and numbers, never of values."""
    columns = {name: f"{row}.{column}" for name, column in _COLUMN.items()}
    condition, arguments = sight.sql(columns, len(values) + 1)
    values += arguments
    if sight.narrowing is None:
        return condition
    parts = [condition]
    if sight.narrowing.object_types is not None:
        values.append(sorted(sight.narrowing.object_types))
        parts.append(f"{row}.kind = 'o' AND {row}.object_type = ANY (${len(values)}::text[])")
    if sight.narrowing.object_ids is not None:
        values.append(sorted(sight.narrowing.object_ids))
        parts.append(f"{row}.object_id = ANY (${len(values)}::text[])")
    return "(" + " AND ".join(parts) + ")"
