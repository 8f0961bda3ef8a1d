"""The statement of a structured or temporal query: one page, sorted, bounded in bytes, at one position.

Invariant: a page at the head reads the heads; a page at an earlier position reads the heads that were there already,
and what has stopped being a head since. Both halves are sorted and cut alike, so a walk over pages neither skips nor
repeats while writers write (PAMSPEC P153).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import asyncpg

from pamspec_common.postgres import Connection
from pamspec_query.model.fields import STATE_COLUMNS
from pamspec_query.model.ordering import OrderKey
from pamspec_query.model.plan import Plan, Span
from pamspec_query.queries.heads import Stored
from pamspec_query.queries.predicates import Arguments, Cast, all_of, compile_tree

_STATE_VALUES: dict[str, LiteralString] = {
    "scratch": "'scratch'",
    "candidate": "'candidate'",
    "active": "'active'",
    "superseded": "'superseded'",
    "deprecated": "'deprecated'",
    "archived": "'archived'",
    "available": "'available'",
    "partially_redacted": "'partially_redacted'",
    "redacted": "'redacted'",
    "deleted": "'deleted'",
    "retained": "'retained'",
    "expired": "'expired'",
    "pending_deletion": "'pending_deletion'",
    "legal_hold": "'legal_hold'",
    "unverified": "'unverified'",
    "corroborated": "'corroborated'",
    "disputed": "'disputed'",
    "rejected": "'rejected'",
}
_BASIS: dict[str, tuple[LiteralString, Cast]] = {
    "observed_at": ("s.observed_at", "timestamptz"),
    "asserted_at": ("s.asserted_at", "timestamptz"),
    "committed_at": ("s.committed_at", "timestamptz"),
    "recorded_at": ("s.committed_at", "timestamptz"),
    "sequence": ("s.from_seq", "bigint"),
}
_KEY_CAST: dict[str, Cast] = {"text": "text", "state": "text", "time": "timestamptz", "integer": "bigint"}
_KEY_NAMES: tuple[LiteralString, ...] = (
    "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9", "k10", "k11", "k12", "k13", "k14", "k15", "k16", "k17",
)  # fmt: skip
HEAD: LiteralString = "s.to_seq = 9223372036854775807"
_NOT_ERASED: LiteralString = """EXISTS (SELECT FROM core.version_private e WHERE e.scope_key = s.scope_key
    AND e.ledger_seq = s.from_seq AND e.private IS NOT NULL)"""


@dataclass(frozen=True, slots=True)
class At:
    """Where a page reads: the position, whether it is the scope's head, and the keys of the item before it."""

    position: int
    is_head: bool
    after: Sequence[Any] | None


@dataclass(frozen=True, slots=True)
class Item:
    """One item: its keys in the ordering, and the version."""

    keys: list[Any]
    stored: Stored


@dataclass(frozen=True, slots=True)
class Page:
    """The items of a page, and whether more follow."""

    items: list[Item]
    more: bool


@dataclass(frozen=True, slots=True)
class Statement:
    """A composed statement and its arguments."""

    sql: LiteralString
    arguments: list[Any]


async def fetch_page(conn: Connection, scope_key: int, plan: Plan, at: At, max_bytes: int) -> Page:
    """A page of a query."""
    statement = page_statement(scope_key, plan, at, max_bytes)
    rows = await conn.fetch(statement.sql, *statement.arguments)
    count = len(plan.order)
    items = [
        Item([row[name] for name in _KEY_NAMES[:count]], Stored(row["metadata"], row["content"], row["private"]))
        for row in rows[: plan.limit]
    ]
    return Page(items, bool(rows) and rows[0]["found"] > len(items))


async def matches_without_default(
    conn: Connection, scope_key: int, plan: Plan, at: At, window: int, timeout_ms: int
) -> bool:
    """Whether one of the newest `window` versions would match if the default states were lifted; False when that takes
    too long. The last statement of its transaction: a timeout ends it.
    """
    statement = hint_statement(scope_key, plan, at, window)
    await conn.execute(f"SET LOCAL statement_timeout = {timeout_ms:d}")
    try:
        return bool(await conn.fetchval(statement.sql, *statement.arguments))
    except asyncpg.QueryCanceledError:
        return False


def page_statement(scope_key: int, plan: Plan, at: At, max_bytes: int) -> Statement:
    """The statement of a page: one row more than its limit is looked for, and cut off in Python.

    The object_id at the end of the order changes nothing; it keeps the default order on the index of heads, whose cost
    does not grow with how often objects were updated.
    """
    arguments = Arguments()
    scope = arguments.add(scope_key, "bigint")
    matching: list[LiteralString] = ["s.scope_key = " + scope, *_filters(plan, plan.states.passing, arguments)]
    if at.after is not None:
        matching.append(_after(plan.order, at.after, arguments))
    limit = arguments.add(plan.limit + 1, "bigint")
    columns = _columns(plan.order)
    tail: LiteralString = " ORDER BY " + _order(plan.order) + ", s.object_id LIMIT " + limit
    branches = [
        "SELECT " + columns + " FROM core.version_span s WHERE " + all_of([*matching, *where]) + tail
        for where in _branches(plan, at, arguments)
    ]
    page = branches[0] if len(branches) == 1 else _united(branches, plan.order, limit)
    return Statement(_hydrated(page, plan, scope, arguments.add(max_bytes, "bigint")), arguments.values)


def hint_statement(scope_key: int, plan: Plan, at: At, window: int) -> Statement:
    """The statement of the hint, bounded by its window."""
    arguments = Arguments()
    scope = arguments.add(scope_key, "bigint")
    current: LiteralString
    if plan.pinned is not None:
        current = _pinned(plan.pinned, arguments)
    elif at.is_head:
        current = HEAD
    else:
        position = arguments.add(at.position, "bigint")
        current = "s.from_seq <= " + position + " AND s.to_seq > " + position
    newest: LiteralString = (
        "SELECT * FROM core.version_span s WHERE s.scope_key = " + scope + " AND " + current
        + " ORDER BY s.from_seq DESC, s.object_id LIMIT " + arguments.add(window, "bigint")
    )  # fmt: skip
    filters = all_of(_filters(plan, plan.states.named, arguments))
    return Statement("SELECT EXISTS (SELECT FROM (" + newest + ") s WHERE " + filters + ")", arguments.values)


def _branches(plan: Plan, at: At, arguments: Arguments) -> list[list[LiteralString]]:
    whole: list[LiteralString] = [] if plan.states.shows_erased else [_NOT_ERASED]
    if plan.pinned is not None:
        return [[_pinned(plan.pinned, arguments), *whole]]
    if at.is_head:
        return [[HEAD]]
    position = arguments.add(at.position, "bigint")
    before: LiteralString = "s.from_seq <= " + position
    return [[HEAD, before], [before, "s.to_seq > " + position, "s.to_seq < 9223372036854775807", *whole]]


def _pinned(sequences: Sequence[int], arguments: Arguments) -> LiteralString:
    return "s.from_seq = ANY (" + arguments.add(list(sequences), "bigint[]") + ")"


def _united(branches: list[LiteralString], keys: Sequence[OrderKey], limit: LiteralString) -> LiteralString:
    union: LiteralString = " UNION ALL ".join(["(" + branch + ")" for branch in branches])
    return "SELECT * FROM (" + union + ") united ORDER BY " + _order_by_names(keys) + " LIMIT " + limit


def _hydrated(page: LiteralString, plan: Plan, scope: LiteralString, max_bytes: LiteralString) -> LiteralString:
    content = plan.fields is None or "canonical_content" in plan.fields
    part: LiteralString = "p.content" if content else "NULL::bytea AS content"
    weight: LiteralString = "coalesce(octet_length(p.content), 0)" if content else "0"
    return (
        "WITH page AS MATERIALIZED (" + page + "), ranked AS MATERIALIZED ("
        "SELECT page.*, row_number() OVER (ORDER BY " + _order_by_names(plan.order) + ") AS n,"
        " count(*) OVER () AS found FROM page), "
        "weighed AS (SELECT r.*, v.metadata, " + part + ", p.private,"
        " sum(octet_length(v.metadata) + " + weight + " + coalesce(octet_length(p.private), 0) + 16)"
        " OVER (ORDER BY r.n) AS bytes FROM ranked r"
        " JOIN core.version v ON v.scope_key = " + scope + " AND v.ledger_seq = r.from_seq"
        " JOIN core.version_private p ON p.scope_key = " + scope + " AND p.ledger_seq = r.from_seq)"
        " SELECT * FROM weighed WHERE n = 1 OR bytes <= " + max_bytes + " ORDER BY n"
    )  # fmt: skip


def _columns(keys: Sequence[OrderKey]) -> LiteralString:
    named = [_key(key) + " AS " + name for key, name in zip(keys, _KEY_NAMES, strict=False)]
    return ", ".join(["s.from_seq", *named])


def _key(key: OrderKey) -> LiteralString:
    assert key.field.column is not None
    return key.field.column


def _order(keys: Sequence[OrderKey]) -> LiteralString:
    return ", ".join([_key(key) + _direction(key) for key in keys])


def _order_by_names(keys: Sequence[OrderKey]) -> LiteralString:
    return ", ".join([name + _direction(key) for key, name in zip(keys, _KEY_NAMES, strict=False)])


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


def _filters(plan: Plan, states: Any, arguments: Arguments) -> list[LiteralString]:
    found: list[LiteralString] = [_kinds(plan, arguments)]
    for dimension, passing in states.items():
        if passing is not None:
            found.append(_state(STATE_COLUMNS[dimension], passing))
    if plan.provenance_ids is not None:
        found.append(_words("s.provenance_id", plan.provenance_ids, arguments))
    if plan.span is not None:
        found += _span(plan.span, arguments)
    if plan.valid_at is not None:
        instant = arguments.add(plan.valid_at, "timestamptz")
        found.append("(s.valid_from IS NULL OR s.valid_from <= " + instant + ")")
        found.append("(s.valid_until IS NULL OR s.valid_until > " + instant + ")")
    if plan.where is not None:
        found.append(compile_tree(plan.where, arguments))
    return found


def _kinds(plan: Plan, arguments: Arguments) -> LiteralString:
    kinds: list[LiteralString] = []
    for wanted, kind, types in (
        (plan.objects, _OBJECT, plan.object_types),
        (plan.relationships, _RELATIONSHIP, plan.relationship_types),
    ):
        if wanted:
            kinds.append(kind if types is None else kind + " AND " + _words("s.object_type", types, arguments))
    return kinds[0] if len(kinds) == 1 else "((" + ") OR (".join(kinds) + "))"


_OBJECT: LiteralString = "s.kind = 'o'"
_RELATIONSHIP: LiteralString = "s.kind = 'r'"


def _words(column: LiteralString, words: Sequence[str], arguments: Arguments) -> LiteralString:
    if len(words) == 1:
        return column + " = " + arguments.add(words[0], "text")
    return column + " = ANY (" + arguments.add(list(words), "text[]") + ")"


def _state(column: LiteralString, passing: Sequence[str]) -> LiteralString:
    """States are words of ours, so they stand in the text, where the partial indexes can see them."""
    if not passing:
        return "false"
    values = [_STATE_VALUES[state] for state in passing]
    return column + " = " + values[0] if len(values) == 1 else column + " IN (" + ", ".join(values) + ")"


def _span(span: Span, arguments: Arguments) -> list[LiteralString]:
    found: list[LiteralString] = []
    if span.basis == "valid_time":
        if span.end is not None:
            found.append("(s.valid_from IS NULL OR s.valid_from < " + arguments.add(span.end, "timestamptz") + ")")
        if span.start is not None:
            found.append("(s.valid_until IS NULL OR s.valid_until > " + arguments.add(span.start, "timestamptz") + ")")
        return found
    column, cast_to = _BASIS[span.basis]
    found.append(column + " IS NOT NULL")
    if span.start is not None:
        found.append(column + " >= " + arguments.add(span.start, cast_to))
    if span.end is not None:
        found.append(column + " < " + arguments.add(span.end, cast_to))
    return found
