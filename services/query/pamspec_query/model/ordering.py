"""Ordering profiles: what an answer is sorted by, down to a key that no two items share.

Invariant: every ordering ends in a unique key, by default the ledger sequence in the direction of the last field of
`by`, so that equal keys never make pages skip or repeat (PAMSPEC P153). A missing value comes last in either direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pamspec_common.errors import InvalidRequest
from pamspec_common.instants import parse as parse_instant
from pamspec_common.instants import wire
from pamspec_query.documents import Ordering
from pamspec_query.model.fields import FIELDS, Field, Pointer, resolve


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One key: a field with a column, and its direction."""

    field: Field
    descending: bool


DEFAULT = (OrderKey(FIELDS["ledger_sequence"], True),)


BY_SCOPE = OrderKey(Field("scope", "integer", "s.scope_key"), False)
"""What decides last where an answer holds versions of several scopes, whose ledger sequences may be equal."""


def order(ordering: Ordering | None) -> tuple[OrderKey, ...]:
    """The keys of a request, cut after the first unique one; InvalidRequest for a field that cannot order."""
    if ordering is None:
        return DEFAULT
    wanted = [
        (entry.field, entry.direction == "desc", f"ordering.by[{index}]")
        for index, entry in enumerate(ordering.by or [])
    ]
    if not wanted:
        wanted = [("ledger_sequence", True, "ordering.by")]
    implied = OrderKey(FIELDS["ledger_sequence"], wanted[-1][1])
    wanted += [(name, False, f"ordering.tie_break[{index}]") for index, name in enumerate(ordering.tie_break or [])]
    keys = [OrderKey(column(name, where), descending) for name, descending, where in wanted]
    keys.append(implied)
    last = next(index for index, key in enumerate(keys) if key.field.unique)
    return tuple(keys[: last + 1])


def column(name: str, where: str) -> Field:
    """The field of that name, which has a column; InvalidRequest when answers cannot be ordered by it."""
    found = resolve(name, where)
    if isinstance(found, Pointer) or found.column is None:
        raise InvalidRequest(
            f"{where}: answers cannot be ordered by that field; use one of the names in details.",
            details={"field": where, "fields": sorted(name for name, field in FIELDS.items() if field.column)},
        )
    return found


def written(keys: Sequence[OrderKey], values: Sequence[Any]) -> list[Any]:
    """The values of a row's keys as a cursor holds them."""
    return [wire(value) if isinstance(value, datetime) else value for value in values[: len(keys)]]


def read(keys: Sequence[OrderKey], values: Any) -> list[Any]:
    """The values of a cursor as the store compares them; ValueError when they do not fit the keys."""
    if not isinstance(values, list) or len(values) != len(keys):
        raise ValueError("the cursor does not fit the ordering")
    return [
        parse_instant(value) if key.field.kind == "time" and value is not None else value
        for key, value in zip(keys, values, strict=True)
    ]
