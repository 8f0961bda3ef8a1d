"""The predicate of a filter: a condition tree over an event's fields and its payload, compiled once.

Whether a field, an operator or a value fits is decided when the subscription is opened (invalid_request). At delivery,
a field that an event lacks meets `ne`, `nin` and `exists: false` and nothing else, and values of different kinds are
never equal and never ordered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from pamspec_common import instants
from pamspec_common.errors import InvalidRequest
from pamspec_common.strict_json import LosslessFloat

MAX_DEPTH = 8
MAX_CONDITIONS = 256
MAX_LIST = 1000

Test = Callable[[dict[str, Any]], bool]

_TEXT, _NUMBER, _TIME, _ANY = "text", "number", "time", "any"
FIELDS = {
    "event_id": _TEXT,
    "operation_id": _TEXT,
    "scope_id": _TEXT,
    "object_id": _TEXT,
    "relationship_id": _TEXT,
    "version_id": _TEXT,
    "event_type": _TEXT,
    "recorded_at": _TIME,
    "sequence": _NUMBER,
    "actor.actor_id": _TEXT,
    "actor.actor_kind": _TEXT,
    "actor.on_behalf_of_actor_id": _TEXT,
    "actor.delegation_id": _TEXT,
}
_GROUPS = ("and", "or", "not")
_ORDERED = ("gt", "gte", "lt", "lte")
OPERATORS = ("eq", "ne", *_ORDERED, "in", "nin", "exists", "contains", "starts_with")
_MISSING = object()


def compile_predicate(tree: object) -> Test:
    """The test of a condition tree; InvalidRequest for an unknown field, operator or type, or beyond the limits."""
    count = [0]
    return _node(tree, 1, count)


def _node(tree: object, depth: int, count: list[int]) -> Test:
    if not isinstance(tree, dict):
        raise InvalidRequest("A predicate is an object: {and|or|not: [...]} or {field, op, value}.")
    if depth > MAX_DEPTH:
        raise InvalidRequest(
            f"The predicate nests deeper than {MAX_DEPTH} levels; flatten it.", details={"limit": MAX_DEPTH}
        )
    if len(tree) == 1 and (name := next(iter(tree))) in _GROUPS:
        members = tree[name]
        if not isinstance(members, list) or not members:
            raise InvalidRequest(f"predicate: {name} takes a list of at least one condition.")
        return _group(name, [_node(member, depth + 1, count) for member in members])
    count[0] += 1
    if count[0] > MAX_CONDITIONS:
        raise InvalidRequest(
            f"The predicate has more than {MAX_CONDITIONS} conditions; use `in` for lists of values.",
            details={"limit": MAX_CONDITIONS},
        )
    if set(tree) != {"field", "op", "value"}:
        raise InvalidRequest("predicate: a condition has exactly the members field, op and value.")
    return _condition(tree["field"], tree["op"], tree["value"])


def _group(name: str, tests: Sequence[Test]) -> Test:
    if name == "and":
        return lambda event: all(test(event) for test in tests)
    if name == "or":
        return lambda event: any(test(event) for test in tests)
    return lambda event: not any(test(event) for test in tests)


def _condition(field: object, op: object, value: object) -> Test:
    get, kind = _accessor(field)
    if op not in OPERATORS:
        raise InvalidRequest(f"predicate: unknown operator; use one of {', '.join(OPERATORS)}.")
    if op == "exists":
        if not isinstance(value, bool):
            raise InvalidRequest(f"predicate: exists on {field} takes true or false.")
        return lambda event: (get(event) is not _MISSING) is value
    if op in ("in", "nin"):
        return _membership(get, kind, str(field), op == "in", value)
    if op in ("contains", "starts_with"):
        return _part(get, kind, str(field), str(op), value)
    wanted = _value(kind, str(field), value)
    if op == "eq":
        return lambda event: _equal(_read(get(event), kind), wanted)
    if op == "ne":
        return lambda event: not _equal(_read(get(event), kind), wanted)
    if isinstance(wanted, bool):
        raise InvalidRequest(f"predicate: {op} on {field} needs a number or a text.")
    return _order(get, kind, str(op), wanted)


def _accessor(field: object) -> tuple[Callable[[dict[str, Any]], Any], str]:
    if not isinstance(field, str):
        raise InvalidRequest("predicate: field is the name of an event field or payload:/path.")
    if field.startswith("payload:"):
        path = _pointer(field.removeprefix("payload:"))
        return (lambda event: _walk(event.get("payload", _MISSING), path)), _ANY
    kind = FIELDS.get(field)
    if kind is None:
        raise InvalidRequest(
            f"predicate: unknown field; use payload:/path or one of {', '.join(FIELDS)}.", details={"field": field[:64]}
        )
    first, _, second = field.partition(".")
    if second:
        return (lambda event: event.get(first, {}).get(second, _MISSING)), kind
    return (lambda event: event.get(first, _MISSING)), kind


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise InvalidRequest("predicate: after payload: stands a JSON Pointer, which starts with /.")
    parts = text.split("/")[1:]
    if any("~" in part.replace("~0", "").replace("~1", "") for part in parts):
        raise InvalidRequest("predicate: a JSON Pointer writes ~ as ~0 and / as ~1.")
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


def _walk(value: Any, path: Sequence[str]) -> Any:
    for part in path:
        if isinstance(value, dict):
            value = value.get(part, _MISSING)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return _MISSING
    return value


def _value(kind: str, field: str, value: object) -> Any:
    """The value to compare with, of the field's kind; InvalidRequest when it is of another."""
    if isinstance(value, LosslessFloat):
        value = float(value)
    if kind == _TIME:
        try:
            return instants.parse(value if isinstance(value, str) else "")
        except ValueError:
            raise InvalidRequest(f"predicate: {field} compares with an RFC 3339 time with an offset.") from None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = (
        isinstance(value, str)
        if kind == _TEXT
        else is_number
        if kind == _NUMBER
        else isinstance(value, str | bool) or is_number
    )
    if not fits:
        raise InvalidRequest(f"predicate: the value for {field} is of the wrong type.")
    return value


def _membership(get: Callable[[dict[str, Any]], Any], kind: str, field: str, inside: bool, value: object) -> Test:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_LIST:
        raise InvalidRequest(f"predicate: in and nin on {field} take a list of 1 to {MAX_LIST} values.")
    # bool is an int in Python: the kind keeps true apart from 1.
    wanted = {(isinstance(one, bool), one) for one in (_value(kind, field, item) for item in value)}

    def test(event: dict[str, Any]) -> bool:
        found = _read(get(event), kind)
        member = not isinstance(found, dict | list) and (isinstance(found, bool), found) in wanted
        return member is inside

    return test


def _part(get: Callable[[dict[str, Any]], Any], kind: str, field: str, op: str, value: object) -> Test:
    if kind in (_TIME, _NUMBER):
        raise InvalidRequest(f"predicate: {op} does not apply to {field}.")
    if op == "starts_with":
        if not isinstance(value, str):
            raise InvalidRequest(f"predicate: starts_with on {field} takes a text.")
        return lambda event: isinstance(found := get(event), str) and found.startswith(value)
    wanted = _value(kind, field, value)

    def contains(event: dict[str, Any]) -> bool:
        found = get(event)
        if isinstance(found, str):
            return isinstance(wanted, str) and wanted in found
        return isinstance(found, list) and any(_equal(item, wanted) for item in found)

    return contains


def _order(get: Callable[[dict[str, Any]], Any], kind: str, op: str, wanted: Any) -> Test:
    text = isinstance(wanted, str)

    def test(event: dict[str, Any]) -> bool:
        found = _read(get(event), kind)
        if isinstance(found, datetime) is not isinstance(wanted, datetime):
            return False
        if not isinstance(found, datetime) and (
            isinstance(found, bool) or isinstance(found, str) is not text or not isinstance(found, str | int | float)
        ):
            return False
        if op in ("gt", "gte"):
            return bool(found > wanted or (op == "gte" and found == wanted))
        return bool(found < wanted or (op == "lte" and found == wanted))

    return test


def _read(found: Any, kind: str) -> Any:
    if kind == _TIME and isinstance(found, str):
        return instants.parse(found)
    return found


def _equal(found: Any, wanted: Any) -> bool:
    return found is not _MISSING and isinstance(found, bool) is isinstance(wanted, bool) and bool(found == wanted)
