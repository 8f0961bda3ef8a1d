"""What a change of the contracts breaks, and who has to be deployed first.

A request that was taken must still be taken: servers move first. An answer must still hold what its readers require;
members that they do not know they pass over. What travels on the bus is read by closed schemas, so it may not gain a
member before its readers take it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Schema = Mapping[str, Any]
Bundle = Mapping[str, Any]

SERVERS, READERS = "servers", "readers"
_ON_THE_BUS = ("pamspec:schema:memory-event", "pamspec:schema:event-payload", "pamspec:schema:frame")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_CONDITIONS = ("not", "if", "then", "else", "dependentRequired", "propertyNames", "patternProperties", "contains")
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})


@dataclass(frozen=True, order=True)
class Break:
    """One thing that a change breaks."""

    where: str
    what: str
    first: str = field(compare=False)
    """Who has to be deployed before the others for it to be safe."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def breaks(old: Bundle, new: Bundle) -> list[Break]:
    """What was agreed in `old` and no longer holds in `new`."""
    return sorted({*_operations(old, new), *_catalogues(old, new), *_schemas(old, new)})


def _operations(old: Bundle, new: Bundle) -> Iterator[Break]:
    now = new["operations"]["operations"]
    for name, before in old["operations"]["operations"].items():
        after, where = now.get(name), f"operations/{name}"
        if after is None or (before["public"] and not after["public"]):
            yield Break(where, "is gone", READERS)
            continue
        if before["status"] != after["status"]:
            yield Break(where, f"answers {after['status']} instead of {before['status']}", READERS)
        doors = {(door["method"], door["path"]) for door in after["conveniences"]}
        for door in before["conveniences"]:
            if (door["method"], door["path"]) not in doors:
                yield Break(where, f"the door {door['method']} {door['path']} is gone", READERS)


def _catalogues(old: Bundle, new: Bundle) -> Iterator[Break]:
    for code, before in old["errors"]["errors"].items():
        after = new["errors"]["errors"].get(code)
        if after is None:
            yield Break(f"errors/{code}", "is gone", READERS)
        elif before["status"] not in {after["status"], *after.get("also", ())}:
            yield Break(f"errors/{code}", f"no longer has the status {before['status']}", READERS)
    for event in old["events"]["events"].keys() - new["events"]["events"].keys():
        yield Break(f"events/{event}", "is gone", READERS)
    for kind in ("streams", "subjects"):
        for name in old["streams"][kind].keys() - new["streams"][kind].keys():
            yield Break(f"{kind}/{name}", "is gone", READERS)


def _schemas(old: Bundle, new: Bundle) -> Iterator[Break]:
    were, are = _absolute(old["schemas"]), _absolute(new["schemas"])
    for id_, before in were.items():
        after = are.get(id_)
        if after is None:
            continue
        where = id_.removeprefix("pamspec:")
        if id_.endswith(":request"):
            yield from (Break(where, what, SERVERS) for what in _Pair(were, are).refused(before, after, ""))
        elif id_.endswith(":answer"):
            yield from (Break(where, what, READERS) for what in _Pair(were, are).missing(before, after, ""))
        elif id_ in _ON_THE_BUS:
            for name, part in {"": after, **after.get("$defs", {})}.items():
                known = before if name == "" else before.get("$defs", {}).get(name)
                if known is not None:
                    yield from (Break(where, what, READERS) for what in _Pair(are, were).refused(part, known, name))


def _absolute(schemas: Mapping[str, Schema]) -> dict[str, Any]:
    """The same with every reference naming its document."""

    def rewritten(node: Any, id_: str) -> Any:
        if isinstance(node, Mapping):
            made = {name: rewritten(below, id_) for name, below in node.items()}
            if isinstance(made.get("$ref"), str) and made["$ref"].startswith("#"):
                made["$ref"] = id_ + made["$ref"]
            return made
        return [rewritten(below, id_) for below in node] if isinstance(node, list) else node

    return {id_: rewritten(schema, id_) for id_, schema in schemas.items()}


class _Pair:
    """Two sets of schemas, walked side by side; each pair of places once."""

    def __init__(self, left: Mapping[str, Schema], right: Mapping[str, Schema]) -> None:
        self._left, self._right = left, right
        self._seen: set[tuple[str, str, str]] = set()

    def refused(self, left: Any, right: Any, path: str) -> Iterator[str]:
        """What is valid on the left and refused on the right."""
        left = _resolved(self._left, left)
        right = _resolved(self._right, right)
        if right is True or right == {} or self._again("refused", left, right):
            return
        if right is False or left is True:
            yield f"{path or 'the document'} is closed now"
            return
        place = path or "the document"
        yield from (f"{place} no longer takes {kind}" for kind in sorted(_types(left) - _types(right)))
        yield from _values(left, right, place)
        yield from _bounds(left, right, place)
        yield from (f"{place} has another {name}" for name in _CONDITIONS if _changed(name, left, right))
        for name in sorted(set(right.get("required", ())) - set(left.get("required", ()))):
            yield f"{_under(path, name)} is required now"
        yield from self._refused_members(left, right, path)
        yield from self._refused_parts(left, right, path)

    def _refused_members(self, left: Schema, right: Schema, path: str) -> Iterator[str]:
        known = right.get("properties", {})
        closed = _is_closed(right)
        for name, member in left.get("properties", {}).items():
            if name in known:
                yield from self.refused(member, known[name], _under(path, name))
            elif closed:
                yield f"{_under(path, name)} is not taken any more"
        if closed and not _is_closed(left) and "properties" in left:
            yield f"{path or 'the document'} takes no other members any more"
        if "items" in right:
            yield from self.refused(left.get("items", True), right["items"], path + "[]")

    def _refused_parts(self, left: Schema, right: Schema, path: str) -> Iterator[str]:
        for joint in ("anyOf", "oneOf"):
            if joint not in right:
                continue
            choices = left.get(joint, [left])
            for number, choice in enumerate(choices):
                if not any(not list(self._inner().refused(choice, other, path)) for other in right[joint]):
                    yield f"{path or 'the document'} no longer takes its form {number + 1} of {len(choices)}"
        for part in right.get("allOf", ()):
            if part not in left.get("allOf", ()):
                yield from self.refused(left, part, path)

    def missing(self, left: Any, right: Any, path: str) -> Iterator[str]:
        """What readers of the left rely on and the right no longer promises."""
        left = _resolved(self._left, left)
        right = _resolved(self._right, right)
        if not isinstance(left, Mapping) or not isinstance(right, Mapping) or self._again("missing", left, right):
            return
        place = path or "the document"
        yield from (f"{place} may be {kind} now" for kind in sorted(_types(right) - _types(left)))
        for name in sorted(set(left.get("required", ())) - set(right.get("required", ()))):
            yield f"{_under(path, name)} is not always there any more"
        known = right.get("properties", {})
        for name, member in left.get("properties", {}).items():
            if name in known:
                yield from self.missing(member, known[name], _under(path, name))
            elif "properties" in right:
                yield f"{_under(path, name)} is gone"
        if "items" in left and "items" in right:
            yield from self.missing(left["items"], right["items"], path + "[]")

    def _inner(self) -> _Pair:
        """A walk beside this one: what is being compared further up is not compared again."""
        inner = _Pair(self._left, self._right)
        inner._seen = set(self._seen)
        return inner

    def _again(self, walk: str, left: Any, right: Any) -> bool:
        key = (walk, repr(left), repr(right))
        seen = key in self._seen
        self._seen.add(key)
        return seen or (left == right and not _refers(left))


def _resolved(schemas: Mapping[str, Schema], node: Any) -> Any:
    """The schema that a node refers to, with what stands beside the reference."""
    while isinstance(node, Mapping) and "$ref" in node:
        id_, _, pointer = node["$ref"].partition("#")
        target: Any = schemas[id_]
        for token in filter(None, pointer.split("/")):
            target = target[token.replace("~1", "/").replace("~0", "~")]
        node = _merged(target, {name: value for name, value in node.items() if name != "$ref"})
    return node


def _merged(target: Any, beside: Schema) -> Any:
    if not isinstance(target, Mapping) or not beside:
        return target
    merged = {**target, **beside}
    if "properties" in target and "properties" in beside:
        merged["properties"] = {**target["properties"], **beside["properties"]}
    if "required" in target or "required" in beside:
        merged["required"] = [*target.get("required", ()), *beside.get("required", ())]
    return merged


def _is_closed(node: Schema) -> bool:
    return any(node.get(name, True) is False for name in ("additionalProperties", "unevaluatedProperties"))


def _refers(node: Any) -> bool:
    return "$ref" in repr(node)


def _types(node: Schema) -> frozenset[str]:
    given = node.get("type")
    if given is None:
        return _TYPES
    found = {given} if isinstance(given, str) else set(given)
    return frozenset(found | {"integer"} if "number" in found else found)


def _values(left: Schema, right: Schema, place: str) -> Iterator[str]:
    allowed = right.get("enum", [right["const"]] if "const" in right else None)
    if allowed is None:
        return
    named = left.get("enum", [left["const"]] if "const" in left else None)
    if named is None:
        yield f"{place} takes only some values now"
        return
    yield from (f"{place} no longer takes {value!r}" for value in named if value not in allowed)


def _bounds(left: Schema, right: Schema, place: str) -> Iterator[str]:
    for names, sign in ((_UPPER, 1), (_LOWER, -1)):
        for name in names:
            if name in right and (name not in left or sign * right[name] < sign * left[name]):
                yield f"{place} has a narrower {name}"
    for name in ("pattern", "format", "uniqueItems"):
        if name in right and right[name] != left.get(name) and right[name] is not False:
            yield f"{place} has another {name}"


def _changed(name: str, left: Schema, right: Schema) -> bool:
    return name in right and right[name] != left.get(name)


def _under(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
