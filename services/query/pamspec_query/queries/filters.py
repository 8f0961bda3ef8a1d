"""What a query asks of a version, as conditions on its row `s`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

from pamspec_query.model.bounds import Span
from pamspec_query.model.fields import STATE_COLUMNS
from pamspec_query.model.plan import Plan
from pamspec_query.queries.lapses import unlapsed
from pamspec_query.queries.predicates import Arguments, Cast, compile_tree

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


def filters(plan: Plan, states: Any, arguments: Arguments) -> list[LiteralString]:
    """The conditions of a plan, with these states in place of its own."""
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
    if plan.lapsed is not None:
        found += unlapsed(plan.lapsed, arguments)
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
