"""Which part of a ledger can hold the matches of a query: committed times and positions grow together.

Invariant: bounds leave no match out; the conditions that they come from are weighed again where the rows are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from pamspec_query.model.where import Condition, Node, conjuncts

_TICK = timedelta(microseconds=1)
_TIMES = frozenset({"committed_at", "recorded_at"})
_BOUNDING = _TIMES | {"ledger_sequence"}
COMMITTED = _TIMES | {"sequence"}
"""The temporal bases that are positions of the ledger."""


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range on a temporal basis; None is open."""

    basis: str
    start: datetime | int | None
    end: datetime | int | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Matches lie after `after` and no further than `until`; a time stands for the last position recorded by then."""

    after: tuple[int | datetime, ...] = ()
    until: tuple[int | datetime, ...] = ()

    @property
    def times(self) -> list[datetime]:
        """The times whose positions have to be looked up."""
        return sorted({bound for bound in (*self.after, *self.until) if isinstance(bound, datetime)})


def bounds(span: Span | None, where: Node | None) -> Bounds:
    """The bounds of a temporal range and of the conditions that hold of every match."""
    after: list[int | datetime] = []
    until: list[int | datetime] = []
    for op, value in [*_of_range(span), *_of_conditions(where)]:
        if op in ("gt", "eq", "gte"):
            after.append(value if op == "gt" else _before(value))
        if op in ("lt", "eq", "lte"):
            until.append(_before(value) if op == "lt" else value)
    return Bounds(tuple(after), tuple(until))


def _of_range(span: Span | None) -> Iterable[tuple[str, int | datetime]]:
    if span is not None and span.basis in COMMITTED:
        if span.start is not None:
            yield "gte", span.start
        if span.end is not None:
            yield "lt", span.end


def _of_conditions(where: Node | None) -> Iterable[tuple[str, int | datetime]]:
    for node in conjuncts(where):
        if (
            isinstance(node, Condition)
            and node.target.name in _BOUNDING
            and isinstance(node.value, int | datetime)
            and not isinstance(node.value, bool)
        ):
            yield node.op, node.value


def _before(value: int | datetime) -> int | datetime:
    """The position or time just before."""
    if isinstance(value, int):
        return value - 1
    return value - _TICK if value.replace(tzinfo=None) > datetime.min else value
