"""The condition tree of `where` and `predicate`: groups and conditions, within limits.

Invariant: the shape is decided here, the same for every tree (contracts/schemas/request.json); which fields there are
and which values go with them is decided by who reads the tree. Every refusal is invalid_request and names the place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from pamspec_common.errors import InvalidRequest

MAX_DEPTH = 8
MAX_CONDITIONS = 200
MAX_VALUES = 1000

Joint = Literal["and", "or", "not"]
"""and: all hold; or: at least one holds; not: none holds."""
JOINTS: tuple[Joint, ...] = ("and", "or", "not")
ORDERINGS = frozenset({"gt", "gte", "lt", "lte"})
MEMBERSHIPS = frozenset({"in", "nin"})
OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "exists", "contains", "starts_with")

T = TypeVar("T")


def read_tree(
    tree: Any,
    place: str,
    condition: Callable[[Any, str, Any, str], T],
    group: Callable[[Joint, list[T]], T],
) -> T:
    """What `condition` (field, operator, value, place) and `group` make of a tree that stands at `place`."""
    conditions = 0

    def node(document: Any, place: str, depth: int) -> T:
        nonlocal conditions
        if depth > MAX_DEPTH:
            raise refused(place, f"the tree is deeper than {MAX_DEPTH} levels; flatten it", limit=MAX_DEPTH)
        if not isinstance(document, dict):
            raise refused(place, "a condition or a group is an object")
        joint = next((name for name in JOINTS if name in document), None)
        if joint is not None:
            members = document[joint]
            if len(document) > 1 or not isinstance(members, list) or not members:
                raise refused(place, f"a group is one member {joint} with a list of at least one condition")
            return group(joint, [node(one, f"{place}.{joint}[{at}]", depth + 1) for at, one in enumerate(members)])
        conditions += 1
        if conditions > MAX_CONDITIONS:
            raise refused(place, f"the tree has more than {MAX_CONDITIONS} conditions", limit=MAX_CONDITIONS)
        if document.keys() != {"field", "op", "value"}:
            raise refused(place, "a condition has exactly the members field, op and value")
        op, value = document["op"], document["value"]
        _check_value(op, value, place)
        return condition(document["field"], op, value, place)

    return node(tree, place, 1)


def _check_value(op: Any, value: Any, place: str) -> None:
    """What every field asks of an operator and its value."""
    if not isinstance(op, str) or op not in OPERATORS:
        raise refused(place, f"op is one of {', '.join(OPERATORS)}")
    if op == "exists" and not isinstance(value, bool):
        raise refused(place, "exists takes true or false")
    if op in MEMBERSHIPS and (not isinstance(value, list) or not 1 <= len(value) <= MAX_VALUES):
        raise refused(place, f"{op} takes a list of 1 to {MAX_VALUES} values", limit=MAX_VALUES)
    if op == "starts_with" and not isinstance(value, str):
        raise refused(place, "starts_with takes a text")


def pointer(text: str, place: str) -> tuple[str, ...]:
    """The names of a JSON Pointer (RFC 6901), without a NUL character, which the store holds nowhere."""
    if "\0" in text or (text and not text.startswith("/")):
        raise refused(f"{place}.field", "no JSON Pointer; it starts with / and holds no NUL character")
    names = text.split("/")[1:]
    if any("~" in name.replace("~0", "").replace("~1", "") for name in names):
        raise refused(f"{place}.field", "no JSON Pointer; a tilde is written ~0 and a slash in a name ~1")
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in names)


def refused(place: str, reason: str, **details: Any) -> InvalidRequest:
    """The refusal of what stands at `place`."""
    return InvalidRequest(f"{place}: {reason}.", details={"field": place, **details})
