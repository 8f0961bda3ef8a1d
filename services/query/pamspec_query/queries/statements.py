"""The statements of a structured or temporal query: a page, sorted, bounded in bytes, at one position; its count.

Invariant: a page at the head reads the heads; a page at an earlier position reads the heads that were there already,
and what has stopped being a head since. Both halves are sorted and cut alike, so a walk over pages neither skips nor
repeats while writers write (PAMSPEC P153).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from pamspec_common.authorization.rows import shown
from pamspec_query.model.ordering import DEFAULT, OrderKey
from pamspec_query.model.plan import Plan
from pamspec_query.queries.filters import filters
from pamspec_query.queries.predicates import Arguments, Cast, all_of

_KEY_CAST: dict[str, Cast] = {"text": "text", "state": "text", "time": "timestamptz", "integer": "bigint"}
KEY_NAMES: tuple[LiteralString, ...] = (
    "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9", "k10", "k11", "k12", "k13", "k14", "k15", "k16", "k17",
)  # fmt: skip
HEAD: LiteralString = "s.to_seq = 9223372036854775807"
_NOT_ERASED: LiteralString = """EXISTS (SELECT FROM core.version_private e WHERE e.scope_key = s.scope_key
    AND e.ledger_seq = s.from_seq AND e.private IS NOT NULL)"""


@dataclass(frozen=True, slots=True)
class At:
    """Where a page reads: the position, whether it is the scope's head, the keys of the item before it, and the
    positions between which all matches lie (the first one not included).
    """

    position: int
    is_head: bool
    after: Sequence[Any] | None
    low: int = 0
    high: int | None = None


@dataclass(frozen=True, slots=True)
class Within:
    """Heads that were found by a search, and the positions between which it looked (neither included)."""

    sequences: Sequence[int]
    after: int
    before: int


@dataclass(frozen=True, slots=True)
class Statement:
    """A composed statement and its arguments."""

    sql: LiteralString
    arguments: list[Any]


def page_statement(
    scope_key: int,
    plan: Plan,
    at: At,
    max_bytes: int,
    *,
    rows: int | None = None,
    within: Within | None = None,
    missing: bool | None = None,
) -> Statement:
    """The statement of a page: one row more than its limit is looked for, and cut off in Python.

    Where the order `reads_in_two`, `missing` says which half is read: with the time, or then without.
    """
    arguments = Arguments()
    scope = arguments.add(scope_key, "bigint")
    beyond, order = _order_of(plan, at, missing, arguments)
    asked = [*matching(scope, plan, at, arguments), *beyond]
    limit = arguments.add(plan.limit + 1 if rows is None else rows, "bigint")
    start: LiteralString = "SELECT " + key_columns(plan.order) + " FROM core.version_span s WHERE "
    branches = [
        start + all_of([*asked, *current]) + " ORDER BY " + order + " LIMIT " + limit
        for current in branches_at(plan, scope, at, within, arguments)
    ]
    page = branches[0] if len(branches) == 1 else _united(branches, plan.order, limit)
    return Statement(_hydrated(page, plan, scope, arguments.add(max_bytes, "bigint")), arguments.values)


def count_statement(scope_key: int, plan: Plan, at: At, at_most: int | None, within: Within | None = None) -> Statement:
    """How many match at a position, counted no further than `at_most`."""
    arguments = Arguments()
    scope = arguments.add(scope_key, "bigint")
    asked = matching(scope, plan, at, arguments)
    rows: LiteralString = " UNION ALL ".join(
        "SELECT 1 FROM core.version_span s WHERE " + all_of([*asked, *conditions])
        for conditions in branches_at(plan, scope, at, within, arguments)
    )
    if at_most is not None:
        rows = rows + " LIMIT " + arguments.add(at_most, "bigint")
    return Statement("SELECT count(*) FROM (" + rows + ") matching", arguments.values)


def hint_statement(scope_key: int, plan: Plan, at: At, window: int) -> Statement:
    """The statement of the hint, bounded by its window."""
    arguments = Arguments()
    scope = arguments.add(scope_key, "bigint")
    current: LiteralString
    if plan.pinned is not None:
        current = _one_of(plan.pinned, arguments)
    elif at.is_head:
        current = HEAD
    else:
        position = arguments.add(at.position, "bigint")
        current = "s.from_seq <= " + position + " AND s.to_seq > " + position
    newest: LiteralString = (
        "SELECT * FROM core.version_span s WHERE s.scope_key = " + scope + " AND " + current
        + " ORDER BY s.from_seq DESC, s.object_id LIMIT " + arguments.add(window, "bigint")
    )  # fmt: skip
    matching = all_of([*filters(plan, plan.states.named, arguments), *_in_sight(scope, plan, at, arguments)])
    return Statement("SELECT EXISTS (SELECT FROM (" + newest + ") s WHERE " + matching + ")", arguments.values)


def matching(scope: LiteralString, plan: Plan, at: At, arguments: Arguments) -> list[LiteralString]:
    """What is asked of every row `s`, whatever the position: scope, filters, sight, bounds."""
    found = [_scopes(scope, plan, arguments), *filters(plan, plan.states.passing, arguments)]
    found += _in_sight(scope, plan, at, arguments)
    if at.low > 0:
        found.append("s.from_seq > " + arguments.add(at.low, "bigint"))
    if at.high is not None:
        found.append("s.from_seq <= " + arguments.add(at.high, "bigint"))
    return found


def _in_sight(scope: LiteralString, plan: Plan, at: At, arguments: Arguments) -> list[LiteralString]:
    """What the reader may see; versions of other scopes were decided when they were reached."""
    if plan.sight.everything:
        return []
    condition = shown(plan.sight, arguments.values, is_head=at.is_head and plan.pinned is None)
    return ["(s.scope_key <> " + scope + " OR " + condition + ")"] if plan.elsewhere else [condition]


def _scopes(scope: LiteralString, plan: Plan, arguments: Arguments) -> LiteralString:
    if not plan.elsewhere:
        return "s.scope_key = " + scope
    return (
        "s.scope_key = ANY ("
        + arguments.add(sorted({key for key, _ in plan.elsewhere}), "bigint[]")
        + " || "
        + scope
        + ")"
    )


def _pinned(plan: Plan, scope: LiteralString, arguments: Arguments) -> LiteralString:
    """The only versions that may be shown."""
    own = _one_of(plan.pinned or [], arguments)
    if not plan.elsewhere:
        return own
    keys = arguments.add([key for key, _ in plan.elsewhere], "bigint[]")
    sequences = arguments.add([sequence for _, sequence in plan.elsewhere], "bigint[]")
    others: LiteralString = "SELECT * FROM unnest(" + keys + ", " + sequences + ")"
    return "((s.scope_key = " + scope + " AND " + own + ") OR (s.scope_key, s.from_seq) IN (" + others + "))"


def branches_at(
    plan: Plan, scope: LiteralString, at: At, within: Within | None, arguments: Arguments
) -> list[list[LiteralString]]:
    """The conditions of the rows that were current at the position: heads, and what has stopped being one since."""
    whole: list[LiteralString] = [] if plan.states.shows_erased else [_NOT_ERASED]
    if plan.pinned is not None:
        return [[_pinned(plan, scope, arguments), *whole]]
    heads: list[LiteralString] = [HEAD]
    if within is not None:
        heads.append(_one_of(within.sequences, arguments))
    if at.is_head:
        return [heads]
    position = arguments.add(at.position, "bigint")
    before: LiteralString = "s.from_seq <= " + position
    ended: list[LiteralString] = [before, "s.to_seq > " + position, "s.to_seq < 9223372036854775807", *whole]
    if within is not None:
        ended.append("s.from_seq > " + arguments.add(within.after, "bigint"))
        ended.append("s.from_seq < " + arguments.add(within.before, "bigint"))
    return [[*heads, before], ended]


def _one_of(sequences: Sequence[int], arguments: Arguments) -> LiteralString:
    return "s.from_seq = ANY (" + arguments.add(list(sequences), "bigint[]") + ")"


def reads_in_two(plan: Plan, within: Within | None) -> bool:
    """Whether the order begins with a time that may be missing: those that are there have an index."""
    first = plan.order[0].field
    return within is None and first.nullable and first.kind == "time"


def _order_of(
    plan: Plan, at: At, missing: bool | None, arguments: Arguments
) -> tuple[list[LiteralString], LiteralString]:
    """What lies beyond the item before the page, and the order.

    The object_id at the end of the default order changes nothing; it keeps that order on the index of heads, whose cost
    does not grow with how often objects were updated.
    """
    keys, after = plan.order, at.after
    beyond = [] if after is None else [_after(keys, after, arguments)]
    column = _key(keys[0])
    if missing:
        return [*beyond, column + " IS NULL"], ", ".join(_orders(keys[1:]))
    if missing is None:
        order: LiteralString = ", ".join(_orders(keys))
        return beyond, order + ", s.object_id" if keys == DEFAULT else order
    if after is not None:
        sign: LiteralString = " <= " if keys[0].descending else " >= "
        beyond.append(column + sign + arguments.add(after[0], "timestamptz"))
    direction: LiteralString = " DESC" if keys[0].descending else " ASC"
    return [*beyond, column + " IS NOT NULL"], ", ".join([column + direction, *_orders(keys[1:])])


def _united(branches: list[LiteralString], keys: Sequence[OrderKey], limit: LiteralString) -> LiteralString:
    union: LiteralString = " UNION ALL ".join(["(" + branch + ")" for branch in branches])
    return "SELECT * FROM (" + union + ") united ORDER BY " + _order_by_names(keys) + " LIMIT " + limit


def _hydrated(page: LiteralString, plan: Plan, scope: LiteralString, max_bytes: LiteralString) -> LiteralString:
    content = plan.fields is None or "canonical_content" in plan.fields
    part: LiteralString = "p.content" if content else "NULL::bytea AS content"
    key: LiteralString = "r.scope_key" if plan.elsewhere else scope
    weight: LiteralString = "coalesce(octet_length(p.content), 0)" if content else "0"
    return (
        "WITH page AS MATERIALIZED (" + page + "), ranked AS MATERIALIZED ("
        "SELECT page.*, row_number() OVER (ORDER BY " + _order_by_names(plan.order) + ") AS n,"
        " count(*) OVER () AS found FROM page), "
        "weighed AS (SELECT r.*, v.metadata, " + part + ", p.private,"
        " sum(octet_length(v.metadata) + " + weight + " + coalesce(octet_length(p.private), 0) + 16)"
        " OVER (ORDER BY r.n) AS bytes FROM ranked r"
        " JOIN core.version v ON v.scope_key = " + key + " AND v.ledger_seq = r.from_seq"
        " JOIN core.version_value p ON p.scope_key = " + key + " AND p.ledger_seq = r.from_seq)"
        " SELECT * FROM weighed WHERE n = 1 OR bytes <= " + max_bytes + " ORDER BY n"
    )  # fmt: skip


def key_columns(keys: Sequence[OrderKey]) -> LiteralString:
    """The columns that a page is sorted by, as k0, k1 ..."""
    named = [_key(key) + " AS " + name for key, name in zip(keys, KEY_NAMES, strict=False)]
    return ", ".join(["s.scope_key", "s.from_seq", *named])


def _key(key: OrderKey) -> LiteralString:
    assert key.field.column is not None
    return key.field.column


def _orders(keys: Sequence[OrderKey]) -> list[LiteralString]:
    return [_key(key) + _direction(key) for key in keys]


def _order_by_names(keys: Sequence[OrderKey]) -> LiteralString:
    return ", ".join([name + _direction(key) for key, name in zip(keys, KEY_NAMES, strict=False)])


def _direction(key: OrderKey) -> LiteralString:
    if key.descending:
        return " DESC NULLS LAST" if key.field.nullable else " DESC"
    return " ASC"


def _after(keys: Sequence[OrderKey], values: Sequence[Any], arguments: Arguments) -> LiteralString:
    """Beyond an item in the ordering: one alternative for each key, with all keys before it equal."""
    alternatives: list[LiteralString] = []
    equal: list[LiteralString] = []
    for key, value in zip(keys, values, strict=True):
        column = _key(key)
        if value is None:
            equal.append(column + " IS NULL")
            continue
        placeholder = arguments.add(value, _KEY_CAST[key.field.kind])
        beyond: LiteralString = column + (" < " if key.descending else " > ") + placeholder
        if key.field.nullable:
            beyond = "(" + beyond + " OR " + column + " IS NULL)"
        alternatives.append(all_of([*equal, beyond]))
        equal.append(column + " = " + placeholder)
    if len(alternatives) == 1:
        return alternatives[0]
    return "((" + ") OR (".join(alternatives) + "))"
