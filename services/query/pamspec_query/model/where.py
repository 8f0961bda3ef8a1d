"""The `where` tree: groups and typed conditions.

Invariant: what the tree means is decided here alone. A condition is true or false, never unknown: a field that is
missing meets `ne` and `nin`, and no other operator but `exists: false`. Text compares by code point, numbers by value,
times as instants; a value of another type than the one stored meets nothing. An operator or a value that does not go
with its field is invalid_request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pamspec_common.conditions import MEMBERSHIPS, OPERATORS, ORDERINGS, Joint, read_tree, refused
from pamspec_common.instants import parse as parse_instant
from pamspec_common.strict_json import LosslessFloat, canonical
from pamspec_query.documents import holds_nul
from pamspec_query.model.fields import Field, Pointer, resolve

_INT8 = 2**63
_ALLOWED: dict[str, frozenset[str]] = {
    "text": frozenset(OPERATORS),
    "state": frozenset({"eq", "ne", "in", "nin", "exists"}),
    "time": frozenset({"eq", "ne", "in", "nin", "exists"}) | ORDERINGS,
    "integer": frozenset({"eq", "ne", "in", "nin", "exists"}) | ORDERINGS,
    "number": frozenset({"eq", "ne", "in", "nin", "exists"}) | ORDERINGS,
    "texts": frozenset({"exists", "contains"}),
}
_TINY = re.compile(r"[eE]-[0-9]{4}")


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value as its text, ready to be compared as jsonb; `text` when it is a string."""

    encoded: str
    text: str | None = None
    composite: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """A field, an operator and a value of the field's type."""

    target: Field | Pointer
    op: str
    value: Any


@dataclass(frozen=True, slots=True)
class Group:
    """Conditions and groups under one joint."""

    joint: Joint
    members: tuple[Node, ...]


Node = Group | Condition


def parse(document: Any) -> Node:
    """The tree of a request; InvalidRequest names the place that is wrong."""
    return read_tree(document, "where", _condition, _group)


def fields_of(node: Node) -> list[str]:
    """The names of all fields that a tree looks at."""
    if isinstance(node, Condition):
        return [node.target.name]
    return sorted({name for member in node.members for name in fields_of(member)})


def names_relationships(node: Node) -> bool:
    """Whether a tree looks at a member that only relationships have."""
    if isinstance(node, Condition):
        return isinstance(node.target, Field) and node.target.row == "r"
    return any(map(names_relationships, node.members))


def conjuncts(node: Node | None) -> list[Node]:
    """What must hold of everything that a tree lets pass: the members of its outermost `and`."""
    if node is None:
        return []
    if isinstance(node, Group) and (node.joint == "and" or (node.joint == "or" and len(node.members) == 1)):
        return [below for member in node.members for below in conjuncts(member)]
    return [node]


def _condition(field: Any, op: str, value: Any, place: str) -> Condition:
    target = resolve(field, place)
    return Condition(target, op, _value(target, op, value, place))


def _group(joint: Joint, members: list[Node]) -> Group:
    return Group(joint, tuple(members))


def _value(target: Field | Pointer, op: str, value: Any, where: str) -> Any:
    if holds_nul(value):
        raise refused(where, "a NUL character cannot be looked for")
    if op == "exists":
        return value
    if isinstance(target, Pointer):
        return _content_value(op, value, where)
    if op not in _ALLOWED[target.kind]:
        raise refused(where, f"{target.name} cannot be compared by {op}")
    if op in MEMBERSHIPS:
        return [_field_value(target, member, where) for member in value]
    if value is None and op in ("eq", "ne"):
        return None
    return _field_value(target, value, where)


def _field_value(field: Field, value: Any, where: str) -> Any:
    if field.kind in ("text", "state", "texts"):
        if not isinstance(value, str):
            raise refused(where, f"{field.name} is compared with a text")
        if field.kind == "state" and value not in field.states:
            raise refused(where, f"{field.name} is one of {', '.join(sorted(field.states))}")
        return value
    if field.kind == "time":
        return instant(value, where)
    if isinstance(value, bool) or not isinstance(value, int if field.kind == "integer" else int | LosslessFloat):
        raise refused(where, f"{field.name} is compared with a number, without a fraction where it counts")
    if field.kind == "number":
        return _json(value)
    if not -_INT8 <= value < _INT8:
        raise refused(where, f"{field.name} is compared with an integer of 64 bits")
    return value


def instant(value: Any, where: str) -> datetime:
    """An RFC 3339 time with an offset; InvalidRequest for anything else (a date alone, an epoch, a leap second)."""
    try:
        if isinstance(value, str):
            return parse_instant(value)
    except ValueError:
        pass
    raise refused(where, "a time is RFC 3339 with an offset, such as 2026-01-01T00:00:00Z, in the years 1 to 9999")


def _content_value(op: str, value: Any, where: str) -> Any:
    if op in MEMBERSHIPS:
        return [_scalar(member, op, where) for member in value]
    if op in ("eq", "ne"):
        return _scalar(value, op, where)
    if op in ORDERINGS and (isinstance(value, bool) or not isinstance(value, str | int | LosslessFloat)):
        raise refused(where, f"{op} takes a text or a number")
    return _json(value)


def _scalar(value: Any, op: str, where: str) -> Json:
    if isinstance(value, dict | list):
        raise refused(where, f"{op} compares with a text, a number, true, false or null; use contains for more")
    return _json(value)


def _json(value: Any) -> Json:
    encoded = canonical(_rounded(value)).decode()
    return Json(encoded, value if isinstance(value, str) else None, isinstance(value, dict | list))


def _rounded(value: Any) -> Any:
    """Numbers too small for the index become the double that they round to there, too."""
    if isinstance(value, LosslessFloat):
        return float(value) if _TINY.search(str(value)) else value
    if isinstance(value, dict):
        return {name: _rounded(below) for name, below in value.items()}
    if isinstance(value, list):
        return [_rounded(below) for below in value]
    return value
