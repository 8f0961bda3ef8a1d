"""Conditions as SQL: fragments of constant text, and every value an argument.

Invariant: no byte of a request enters a statement's text; wildcards have no meaning (substring and prefix are
functions, not patterns). Inside a fragment the version's row is `s`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, LiteralString

from pamspec_common.instants import wire
from pamspec_common.strict_json import canonical
from pamspec_query.model.fields import Field, Pointer
from pamspec_query.model.where import Condition, Json, Node

Cast = Literal[
    "text",
    "text[]",
    "bigint",
    "bigint[]",
    "timestamptz",
    "timestamptz[]",
    "jsonb",
    "jsonb[]",
    "integer",
    "boolean",
    "integer[]",
    "real[]",
    "float8[]",
]
_CASTS: dict[Cast, LiteralString] = {
    "text": "::text",
    "text[]": "::text[]",
    "bigint": "::bigint",
    "bigint[]": "::bigint[]",
    "timestamptz": "::timestamptz",
    "timestamptz[]": "::timestamptz[]",
    "jsonb": "::jsonb",
    "jsonb[]": "::jsonb[]",
    "integer": "::integer",
    "boolean": "::boolean",
    "integer[]": "::integer[]",
    "real[]": "::real[]",
    "float8[]": "::float8[]",
}
_FIELD_CAST: dict[str, tuple[Cast, Cast]] = {
    "text": ("text", "text[]"),
    "state": ("text", "text[]"),
    "time": ("timestamptz", "timestamptz[]"),
    "integer": ("bigint", "bigint[]"),
}
_COMPARISON: dict[str, LiteralString] = {"eq": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
PRIVATE: LiteralString = """coalesce(s.private, (SELECT query.as_jsonb(m.private) FROM core.version_private m
      WHERE m.scope_key = s.scope_key AND m.ledger_seq = s.from_seq
        AND substring(m.private FROM 1 FOR 1) <> '\\x01'))"""
"""The private half of the version of a row `s`: as it is stored, or what was kept to compare where that is sealed."""
_DOCUMENT: dict[str, LiteralString] = {
    "metadata": """(SELECT query.as_jsonb(m.metadata) FROM core.version m
      WHERE m.scope_key = s.scope_key AND m.ledger_seq = s.from_seq)""",
    "private": PRIVATE,
}
_ROW: dict[str, LiteralString] = {"o": "s.kind = 'o'", "r": "s.kind = 'r'"}
_INDEX = re.compile(r"(?:0|[1-9][0-9]*)\Z")
_NUMBERISH = re.compile(r"\s*[+-]?[0-9]+\Z")


class Arguments:
    """The arguments of a statement, numbered as they are added; equal ones share a number."""

    def __init__(self, given: Iterable[Any] = ()) -> None:
        self.values: list[Any] = list(given)

    def add(self, value: Any, cast_to: Cast) -> LiteralString:
        """The placeholder of an argument. Its text is a number, never the value."""
        self.values.append(value)
        return f"${len(self.values)}" + _CASTS[cast_to]


def all_of(fragments: Sequence[LiteralString]) -> LiteralString:
    """Fragments joined by AND."""
    return " AND ".join(fragments)


def any_of(fragments: Sequence[LiteralString]) -> LiteralString:
    """Fragments joined by OR."""
    return " OR ".join(fragments)


def compile_tree(node: Node, arguments: Arguments) -> LiteralString:
    """The tree as one SQL condition; NULL counts as false, and a negation turns it into true."""
    if isinstance(node, Condition):
        return _condition(node, arguments)
    members = [compile_tree(member, arguments) for member in node.members]
    if node.joint == "and":
        return "(" + " AND ".join(members) + ")"
    either: LiteralString = "(" + " OR ".join(members) + ")"
    return either if node.joint == "or" else "(" + either + " IS NOT TRUE)"


def _condition(condition: Condition, arguments: Arguments) -> LiteralString:
    positive = {"ne": "eq", "nin": "in"}.get(condition.op)
    if positive is not None:
        inner = _condition(Condition(condition.target, positive, condition.value), arguments)
        return "(" + inner + " IS NOT TRUE)"
    if condition.op == "exists" and condition.value is False:
        inner = _condition(Condition(condition.target, "exists", True), arguments)
        return "(" + inner + " IS NOT TRUE)"
    target = condition.target
    if isinstance(target, Pointer):
        return _guarded(target, arguments, _json(_content(target, arguments), condition, arguments))
    if target.column is None:
        return _stored(target, condition, arguments)
    leaf = _version(condition, arguments) or _column(target, target.column, condition, arguments)
    return leaf if target.row is None else "(" + leaf + " AND " + _ROW[target.row] + ")"


def _version(condition: Condition, arguments: Arguments) -> LiteralString | None:
    """Versions by their ids, which have an index beside the immutable rows; None for any other condition."""
    if condition.target.name != "version_id" or condition.op not in ("eq", "in") or condition.value is None:
        return None
    ids = [condition.value] if condition.op == "eq" else condition.value
    return (
        "s.from_seq = ANY (ARRAY (SELECT v.ledger_seq FROM core.version v WHERE v.version_id = ANY ("
        + arguments.add(ids, "text[]") + ")))"
    )  # fmt: skip


def _column(field: Field, column: LiteralString, condition: Condition, arguments: Arguments) -> LiteralString:
    op, value = condition.op, condition.value
    one, many = _FIELD_CAST[field.kind]
    if op == "exists":
        return column + " IS NOT NULL"
    if value is None:
        return column + " IS NULL"
    if op == "in":
        return column + " = ANY (" + arguments.add(value, many) + ")"
    if op == "contains":
        return "strpos(" + column + ", " + arguments.add(value, one) + ") > 0"
    if op == "starts_with":
        return "starts_with(" + column + ", " + arguments.add(value, one) + ")"
    return column + " " + _COMPARISON[op] + " " + arguments.add(value, one)


def _stored(field: Field, condition: Condition, arguments: Arguments) -> LiteralString:
    """A member without a column, from the version's stored JSON; its values are ours, so its type is known."""
    place = "(" + _DOCUMENT[field.source] + " #> " + arguments.add(list(field.path), "text[]") + ")"
    if condition.value is None:
        return place + " IS NULL"
    return _json(place, _as_json(field, condition), arguments)


def _as_json(field: Field, condition: Condition) -> Condition:
    """The same condition over JSON: texts and times of a stored document are JSON strings."""

    def encoded(value: Any) -> Any:
        if isinstance(value, Json | bool):
            return value
        text = value if isinstance(value, str) else wire(value)
        return Json(canonical(text).decode(), text)

    value = condition.value
    return Condition(field, condition.op, [encoded(v) for v in value] if isinstance(value, list) else encoded(value))


def _content(pointer: Pointer, arguments: Arguments) -> LiteralString:
    if not pointer.path:
        return "s.content"
    return "(s.content #> " + arguments.add(list(pointer.path), "text[]") + ")"


def _guarded(pointer: Pointer, arguments: Arguments, leaf: LiteralString) -> LiteralString:
    """Names like -1 or 01 are members of objects only: to the store they could also be places in an array."""
    guards: list[LiteralString] = []
    for index, token in enumerate(pointer.path):
        if _NUMBERISH.match(token) and not _INDEX.match(token):
            parent = _content(Pointer("", pointer.path[:index]), arguments)
            guards.append("jsonb_typeof(" + parent + ") = 'object'")
    return all_of([leaf, *guards]) if not guards else "(" + all_of([leaf, *guards]) + ")"


def _json(place: LiteralString, condition: Condition, arguments: Arguments) -> LiteralString:
    op, value = condition.op, condition.value
    if op == "exists":
        return place + " IS NOT NULL"
    if op == "eq":
        return place + " = " + arguments.add(value.encoded, "jsonb")
    if op == "in":
        return place + " = ANY (" + arguments.add([one.encoded for one in value], "jsonb[]") + ")"
    if op == "contains":
        return _contains(place, value, arguments)
    if op == "starts_with":
        prefix = arguments.add(value.text, "text")
        return "(jsonb_typeof(" + place + ") = 'string' AND starts_with(" + place + " #>> '{}', " + prefix + "))"
    comparison = _COMPARISON[op]
    if value.text is None:
        number = arguments.add(value.encoded, "jsonb")
        return "(jsonb_typeof(" + place + ") = 'number' AND " + place + " " + comparison + " " + number + ")"
    text = arguments.add(value.text, "text")
    as_text: LiteralString = "((" + place + " #>> '{}') COLLATE \"C\")"
    return "(jsonb_typeof(" + place + ") = 'string' AND " + as_text + " " + comparison + " " + text + ")"


def _contains(place: LiteralString, value: Json, arguments: Arguments) -> LiteralString:
    """A text holds a text, an array holds a scalar, an array or object holds what jsonb containment says."""
    part = arguments.add(value.encoded, "jsonb")
    if value.composite:
        return "(" + place + " @> " + part + ")"
    in_array: LiteralString = "WHEN 'array' THEN " + place + " @> " + part
    if value.text is None:
        return "(CASE jsonb_typeof(" + place + ") " + in_array + " ELSE false END)"
    text = arguments.add(value.text, "text")
    in_text: LiteralString = "WHEN 'string' THEN strpos(" + place + " #>> '{}', " + text + ") > 0"
    return "(CASE jsonb_typeof(" + place + ") " + in_text + " " + in_array + " ELSE false END)"
