"""A query request, checked and resolved: what the statement is composed from.

Invariant: every member of a request is honoured or refused here (PAMSPEC P120-P123, P147, P152, P157); a plan holds
nothing unchecked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET

from pamspec_common.authorization.sight import EVERYTHING, Sight
from pamspec_common.documents import MAX_SEQUENCE
from pamspec_common.errors import InvalidRequest
from pamspec_query.documents import AsOf, Expression, Filters, Query, Range
from pamspec_query.model import where as tree
from pamspec_query.model.bounds import COMMITTED, Bounds, Span, bounds
from pamspec_query.model.lapses import Lapses
from pamspec_query.model.lookups import Lookup, lookup
from pamspec_query.model.ordering import OrderKey, order
from pamspec_query.model.ranked import Ranked, ranked
from pamspec_query.model.snapshots import check_position
from pamspec_query.model.states import States, states

DEFAULT_LIMIT = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """A query."""

    object_types: Sequence[str] | None
    relationship_types: Sequence[str] | None
    objects: bool
    relationships: bool
    provenance_ids: Sequence[str] | None
    states: States
    where: tree.Node | None
    span: Span | None
    valid_at: datetime | None
    recorded_at: datetime | None
    ledger_sequence: int | None
    order: tuple[OrderKey, ...]
    limit: int
    fields: list[str] | None
    lookup: Lookup | None
    bounds: Bounds
    count: str | None
    pinned: Sequence[int] | None = None
    """The ledger sequences of the only versions that may be shown; None where all may."""
    elsewhere: Sequence[tuple[int, int]] = ()
    """Versions of other scopes that may be shown beside `pinned`: their scope's key and their ledger sequence."""
    sight: Sight = EVERYTHING
    """What may be shown of the query's own scope."""
    ranked: Ranked | None = None
    """What a query of a ranked kind looks for; `order` then breaks its ties."""

    lapsed: Lapses | None = None
    """What the retention rules of the query's own scope hide; None where nothing was asked of them."""

    @property
    def hides_lapsed(self) -> bool:
        """Whether what has lapsed is hidden: not from who names states or looks at the past."""
        past = self.ledger_sequence is not None or self.recorded_at is not None or self.pinned is not None
        return self.states.hides_lapsed and not past

    def narrowing(self) -> list[str]:
        """The fields by which the request can be narrowed when it scans too much."""
        names = [] if self.where is None else tree.fields_of(self.where)
        names += [key.field.name for key in self.order if key.field.name != "ledger_sequence"]
        return sorted(set(names))


def plan(request: Query) -> Plan:
    """The plan of a request; what is wrong, unknown or not offered is an error that says so."""
    expression = request.query
    looked_for = ranked(request)
    check_position(request.snapshot_id, expression.as_of)
    if request.traverse is not None and any("\0" in name for name in request.traverse.relationship_types or []):
        raise InvalidRequest(
            "traverse.relationship_types: a NUL character cannot be looked for.",
            details={"field": "traverse.relationship_types"},
        )
    filters = expression.filters or Filters()
    related = filters.relationship_type
    as_of = check_as_of(expression.as_of)
    where = None if expression.where is UNSET else tree.parse(expression.where)
    span = _span(expression)
    passing = states(filters, expression.trust)
    objects = related is None or filters.object_type is not None
    relationships = related is not None or (where is not None and tree.names_relationships(where))
    object_types = _words(filters.object_type, "object_type")
    relationship_types = _words(related, "relationship_type")
    provenance_ids = _words(filters.provenance_id, "provenance_id")
    kinds = {**({"o": object_types} if objects else {}), **({"r": relationship_types} if relationships else {})}
    rest = [] if provenance_ids is None else ["provenance_id"]
    rest += [] if as_of.valid_at is None else ["valid_time"]
    rest += [] if span is None or span.basis in COMMITTED else [span.basis]
    return Plan(
        object_types=object_types,
        relationship_types=relationship_types,
        objects=objects,
        relationships=relationships,
        provenance_ids=provenance_ids,
        states=passing,
        where=where,
        span=span,
        valid_at=as_of.valid_at,
        recorded_at=as_of.recorded_at,
        ledger_sequence=as_of.ledger_sequence,
        order=order(request.ordering) if looked_for is None else looked_for.tie_break,
        limit=DEFAULT_LIMIT if request.pagination is None else request.pagination.limit,
        fields=check_fields(request.fields),
        lookup=lookup(kinds, passing, where, rest),
        bounds=bounds(span, where),
        count=request.count,
        ranked=looked_for,
    )


def check_fields(fields: Sequence[str] | None) -> list[str] | None:
    """The projection of a request, without repetitions."""
    if fields is not None and len(set(fields)) != len(fields):
        raise InvalidRequest("fields names one field twice; name each once.", details={"field": "fields"})
    return None if fields is None else list(fields)


def check_as_of(as_of: AsOf | None) -> AsOf:
    """The past position of a request; InvalidRequest when it is empty or names two record positions."""
    if as_of is None:
        return AsOf()
    if as_of.recorded_at is None and as_of.valid_at is None and as_of.ledger_sequence is None:
        raise InvalidRequest(
            "as_of is empty; name recorded_at, valid_at or ledger_sequence.", details={"field": "as_of"}
        )
    if as_of.recorded_at is not None and as_of.ledger_sequence is not None:
        raise InvalidRequest(
            "as_of names two record positions; leave recorded_at or ledger_sequence out.", details={"field": "as_of"}
        )
    return AsOf(_utc(as_of.recorded_at, "recorded_at"), _utc(as_of.valid_at, "valid_at"), as_of.ledger_sequence)


def _utc(instant: datetime | None, name: str) -> datetime | None:
    try:
        return None if instant is None else instant.astimezone(UTC)
    except OverflowError:
        raise InvalidRequest(
            f"as_of.{name} lies outside the years 1 to 9999 in UTC.", details={"field": f"as_of.{name}"}
        ) from None


def _words(words: list[str] | str | None, name: str) -> list[str] | None:
    if words is None or isinstance(words, str):
        return None
    if any("\0" in word for word in words):
        field = f"query.filters.{name}"
        raise InvalidRequest(f"{field}: a NUL character cannot be looked for.", details={"field": field})
    return sorted(set(words))


def _span(expression: Expression) -> Span | None:
    basis, given = expression.temporal_basis, expression.range
    if expression.kind == "structured" and (basis is not None or given is not None):
        raise InvalidRequest(
            "temporal_basis and range belong to the kind temporal; send that kind.", details={"field": "query.kind"}
        )
    if basis is None and given is None and expression.kind != "temporal":
        return None
    if basis is None:
        if given is not None or expression.as_of is None:
            raise InvalidRequest(
                "A temporal query names its basis; send temporal_basis.", details={"field": "query.temporal_basis"}
            )
        return None
    bounds = given or Range()
    start, end = _bound(basis, bounds.from_, "from"), _bound(basis, bounds.to, "to")
    if given is not None and start is None and end is None:
        raise InvalidRequest("query.range is empty; send from, to or both.", details={"field": "query.range"})
    if start is not None and end is not None and _not_before(start, end):
        raise InvalidRequest(
            "query.range holds nothing: from is included and to is not, so from must lie before to.",
            details={"field": "query.range"},
        )
    return Span(basis, start, end)


def _not_before(start: Any, end: Any) -> bool:
    return bool(start >= end)


def _bound(basis: str, value: Any, name: str) -> datetime | int | None:
    field = f"query.range.{name}"
    if value is None:
        return None
    if basis != "sequence":
        return tree.instant(value, field)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SEQUENCE:
        raise InvalidRequest(f"{field} is a ledger sequence for that basis.", details={"field": field})
    return value
