"""What a `where` tree means, in a few lines of Python: the model that the property tests hold the service against."""

from __future__ import annotations

from typing import Any

MISSING: Any = object()
"""The value of a field that is not there."""


def holds(tree: dict[str, Any], fields: dict[str, Any], content: Any) -> bool:
    """Whether a tree lets a version pass that has these fields and this content."""
    for joint, members in tree.items():
        if joint in ("and", "or", "not"):
            passing = [holds(member, fields, content) for member in members]
            return all(passing) if joint == "and" else any(passing) if joint == "or" else not any(passing)
    name = tree["field"]
    value = at(content, name.removeprefix("content:")) if name.startswith("content:") else fields.get(name, MISSING)
    return compares(tree["op"], value, tree["value"])


def at(content: Any, pointer: str) -> Any:
    """What stands at a JSON Pointer."""
    for name in (escaped.replace("~1", "/").replace("~0", "~") for escaped in pointer.split("/")[1:]):
        if isinstance(content, dict) and name in content:
            content = content[name]
        elif isinstance(content, list) and name.isdigit() and int(name) < len(content):
            content = content[int(name)]
        else:
            return MISSING
    return content


def compares(op: str, value: Any, wanted: Any) -> bool:
    if op == "exists":
        return (value is not MISSING) is wanted
    if op in ("ne", "nin"):
        return not compares({"ne": "eq", "nin": "in"}[op], value, wanted)
    if value is MISSING:
        return False
    if op == "eq":
        return equal(value, wanted)
    if op == "in":
        return any(equal(value, one) for one in wanted)
    if op == "contains":
        return contains(value, wanted)
    if op == "starts_with":
        return isinstance(value, str) and value.startswith(wanted)
    if kind(value) != kind(wanted):
        return False
    return bool({"gt": value > wanted, "gte": value >= wanted, "lt": value < wanted, "lte": value <= wanted}[op])


def contains(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict | list):
        return within(wanted, value)
    if isinstance(value, list):
        return any(equal(one, wanted) for one in value)
    return isinstance(value, str) and isinstance(wanted, str) and wanted in value


def within(part: Any, whole: Any) -> bool:
    """Containment by the rules of jsonb, below the top."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(name in whole and within(part[name], whole[name]) for name in part)
    if isinstance(part, list):
        return isinstance(whole, list) and all(any(within(one, other) for other in whole) for one in part)
    return equal(part, whole)


def equal(some: Any, other: Any) -> bool:
    return kind(some) == kind(other) and bool(some == other)


def kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__
