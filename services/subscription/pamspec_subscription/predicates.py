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
from pamspec_common.conditions import Joint, pointer, read_tree, refused
from pamspec_common.strict_json import LosslessFloat

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
_MISSING = object()


def compile_predicate(tree: object) -> Test:
    """The test of a condition tree; InvalidRequest for an unknown field, operator or type, or beyond the limits."""
    return read_tree(tree, "filter.predicate", _condition, _group)


def _group(joint: Joint, tests: Sequence[Test]) -> Test:
    if joint == "and":
        return lambda event: all(test(event) for test in tests)
    if joint == "or":
        return lambda event: any(test(event) for test in tests)
    return lambda event: not any(test(event) for test in tests)


def _condition(field: object, op: str, value: Any, place: str) -> Test:
    get, kind = _accessor(field, place)
    if op == "exists":
        return lambda event: (get(event) is not _MISSING) is value
    if op in ("in", "nin"):
        return _membership(get, kind, op == "in", [_value(kind, one, place) for one in value])
    if op in ("contains", "starts_with") and kind in (_TIME, _NUMBER):
        raise refused(place, f"{op} does not apply to {field}")
    if op == "starts_with":
        return lambda event: isinstance(found := get(event), str) and found.startswith(value)
    wanted = _value(kind, value, place)
    if op == "contains":
        return _containment(get, wanted)
    if op == "eq":
        return lambda event: _equal(_read(get(event), kind), wanted)
    if op == "ne":
        return lambda event: not _equal(_read(get(event), kind), wanted)
    if isinstance(wanted, bool):
        raise refused(place, f"{op} takes a number, a text or a time")
    return _order(get, kind, op, wanted)


def _accessor(field: object, place: str) -> tuple[Callable[[dict[str, Any]], Any], str]:
    if not isinstance(field, str):
        raise refused(f"{place}.field", "it is the name of an event's field, or payload:/path")
    if field.startswith("payload:"):
        path = pointer(field.removeprefix("payload:"), place)
        return (lambda event: _walk(event.get("payload", _MISSING), path)), _ANY
    kind = FIELDS.get(field)
    if kind is None:
        raise refused(f"{place}.field", f"an event has no such field; use payload:/path or one of {', '.join(FIELDS)}")
    first, _, second = field.partition(".")
    if second:
        return (lambda event: event.get(first, {}).get(second, _MISSING)), kind
    return (lambda event: event.get(first, _MISSING)), kind


def _walk(value: Any, path: Sequence[str]) -> Any:
    for part in path:
        if isinstance(value, dict):
            value = value.get(part, _MISSING)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return _MISSING
    return value


def _value(kind: str, value: object, place: str) -> Any:
    """The value to compare with, of the field's kind; InvalidRequest when it is of another."""
    if isinstance(value, LosslessFloat):
        value = float(value)
    if kind == _TIME:
        try:
            return instants.parse(value if isinstance(value, str) else "")
        except ValueError:
            raise refused(place, "a time is RFC 3339 with an offset, such as 2026-01-01T00:00:00Z") from None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {_TEXT: isinstance(value, str), _NUMBER: is_number, _ANY: isinstance(value, str | bool) or is_number}
    if not fits[kind]:
        raise refused(place, "the value is not of the field's type")
    return value


def _membership(get: Callable[[dict[str, Any]], Any], kind: str, inside: bool, values: Sequence[Any]) -> Test:
    # bool is an int in Python: the kind keeps true apart from 1.
    wanted = {(isinstance(one, bool), one) for one in values}

    def test(event: dict[str, Any]) -> bool:
        found = _read(get(event), kind)
        member = not isinstance(found, dict | list) and (isinstance(found, bool), found) in wanted
        return member is inside

    return test


def _containment(get: Callable[[dict[str, Any]], Any], wanted: Any) -> Test:
    """A text holds a text, an array holds a value."""

    def test(event: dict[str, Any]) -> bool:
        found = get(event)
        if isinstance(found, str):
            return isinstance(wanted, str) and wanted in found
        return isinstance(found, list) and any(_equal(item, wanted) for item in found)

    return test


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
