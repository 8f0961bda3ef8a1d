"""What a registered schema may cost: bounds that hold whatever the content is.

Invariant: at every place of any content at most `MAX_WIDTH` subschemas are evaluated, so that validation takes time in
proportion to the content. Without that, a schema of a few lines that refers to itself twice would take for ever on
content that nests a hundred deep. The bound is found once, when the schema is registered, by walking over the sets of
subschemas that can meet at one place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pamspec_common.errors import InvalidRequest

MAX_WIDTH = 128
MAX_PLACES = 2000
MAX_STEPS = 200_000
DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = Mapping[str, Any]

# Keywords by what their subschemas are about: the same place, a named or any member, an item.
_SAME = ("not", "if", "then", "else")
_SAME_LISTS = ("allOf", "anyOf", "oneOf")
_ANY_MEMBER = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ANY_ITEM = ("items", "contains", "unevaluatedItems")
_REFUSED = ("$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$recursiveAnchor", "$vocabulary")
_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,8})\Z")
_NAMES_AS_ONE = 8
"""So many names of `dependentRequired` are looked up in the time of one subschema."""
_TEXTS_AS_ONE = 4
"""So many texts that stand beside other values are compared in the time of one subschema."""
_EXACT, _DIVISION = 16, 64
"""What a comparison with a number that no register holds exactly takes, and a division by one, in subschemas."""
_OTHER = "\0"
"""Stands for every member that a schema does not name."""


def check_bounds(schema: Any, schema_id: str, where: str = "schema") -> None:
    """Raise InvalidRequest, naming the place, for a schema that could cost too much or reach outside itself."""
    _check_head(schema, schema_id, where)
    for place, keyword, value in _keywords(schema, where):
        at_root = place == where
        if keyword in _REFUSED and not (keyword == "$id" and at_root):
            raise _refusal(f"{place}.{keyword} is not offered; refer to $defs by '#/$defs/...'.", f"{place}.{keyword}")
        if keyword == "$schema" and not at_root:
            raise _refusal(f"{place}.$schema stands inside; only the whole schema names its dialect.", place)
        if keyword == "$ref" and not (isinstance(value, str) and (value == "#" or value.startswith("#/"))):
            raise _refusal(
                f"{place}.$ref leads outside of the schema; put what it refers to into $defs.", f"{place}.$ref"
            )
    _Walk(schema, where).check()


def _check_head(schema: Any, schema_id: str, where: str) -> None:
    if isinstance(schema, bool):
        return
    if schema.get("$schema", DIALECT) not in (DIALECT, f"{DIALECT}#"):
        raise _refusal(f"{where}.$schema must be {DIALECT}, or be left out.", f"{where}.$schema")
    if schema.get("$id", schema_id) != schema_id:
        raise _refusal(f"{where}.$id must be the schema_id, or be left out.", f"{where}.$id")


def _refusal(message: str, field: str) -> InvalidRequest:
    return InvalidRequest(message, details={"field": field})


def _keywords(schema: Any, place: str) -> Iterator[tuple[str, str, Any]]:
    """Every keyword of a schema and its subschemas, with where it stands; what is data in it is passed over."""
    stack = [(schema, place)]
    while stack:
        one, at = stack.pop()
        if not isinstance(one, dict):
            continue
        for keyword, value in one.items():
            yield at, keyword, value
            if keyword in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"):
                if isinstance(value, dict):
                    stack += [(below, f"{at}.{keyword}.{name}") for name, below in value.items()]
            elif keyword in (*_SAME_LISTS, "prefixItems"):
                if isinstance(value, list):
                    stack += [(below, f"{at}.{keyword}[{index}]") for index, below in enumerate(value)]
            elif keyword in (*_SAME, *_ANY_MEMBER, *_ANY_ITEM):
                stack.append((value, f"{at}.{keyword}"))


class _Walk:
    """The places that content can have, by the subschemas that meet there."""

    def __init__(self, schema: Any, where: str) -> None:
        self._root, self._where = schema, where
        self._known: dict[int, Any] = {}
        self._weights: dict[int, int] = {}
        self._closures: dict[int, Counter[int]] = {}
        self._steps = 0

    def check(self) -> None:
        """Raise InvalidRequest when too many subschemas can meet at one place, or the places have no end."""
        first = self._place(Counter({self._name(self._root): 1}))
        seen, waiting = {first}, [first]
        while waiting:
            for place in self._below(dict(waiting.pop())):
                if place not in seen:
                    seen.add(place)
                    waiting.append(place)
            if len(seen) > MAX_PLACES:
                raise self._intricate()

    def _step(self, count: int) -> None:
        self._steps += count
        if self._steps > MAX_STEPS:
            raise self._intricate()

    def _intricate(self) -> InvalidRequest:
        return _refusal(f"{self._where} is too intricate: it tells too many kinds of places apart.", self._where)

    def _name(self, schema: Any) -> int:
        self._known[id(schema)] = schema
        return id(schema)

    def _place(self, met: Counter[int]) -> frozenset[tuple[int, int]]:
        """A place as the subschemas that are evaluated there and how often; InvalidRequest when they are too many."""
        width = sum(self._weight(name, ()) * times for name, times in met.items())
        if width > MAX_WIDTH:
            raise _refusal(
                f"{self._where} evaluates more than {MAX_WIDTH} subschemas at one place; join them, or let no"
                " reference be reached in several ways.",
                self._where,
            )
        return frozenset(met.items())

    def _weight(self, name: int, path: tuple[int, ...]) -> int:
        """How many subschemas are evaluated where this one is, itself included."""
        held = self._weights.get(name)
        if held is not None:
            return held
        if len(path) > MAX_WIDTH:
            return MAX_WIDTH + 1
        if name in path:
            raise _refusal(f"{self._where} refers to itself without going deeper into the content.", self._where)
        schema = self._known[name]
        weight = 1 + sum(self._weight(below, (*path, name)) for below in self._same(schema))
        if isinstance(schema, dict):
            weight += _comparisons(schema)
            weight += len(_dict(schema.get("dependentRequired"))) // _NAMES_AS_ONE
            if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
                weight *= 2
        self._weights[name] = weight = min(weight, MAX_WIDTH + 1)
        return weight

    def _same(self, schema: Any) -> list[int]:
        """The subschemas about the same place."""
        if not isinstance(schema, dict):
            return []
        found = [schema[keyword] for keyword in _SAME if keyword in schema]
        for keyword in _SAME_LISTS:
            found += _list(schema.get(keyword))
        found += _dict(schema.get("dependentSchemas")).values()
        if "$ref" in schema:
            found.append(self._target(schema["$ref"]))
        return [self._name(one) for one in found]

    def _target(self, reference: str) -> Any:
        found = self._root
        for step in reference[2:].split("/") if reference != "#" else ():
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and _INDEX.match(name) and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise _refusal(f"{self._where} refers to something that it does not hold.", self._where)
        return found

    def _closure(self, name: int) -> Counter[int]:
        """All that is evaluated at the place of a subschema, with how often."""
        held = self._closures.get(name)
        if held is None:
            held = Counter({name: 1})
            for below in self._same(self._known[name]):
                held.update(self._closure(below))
            self._closures[name] = held
        return held

    def _below(self, place: dict[int, int]) -> Iterator[frozenset[tuple[int, int]]]:
        """The places one level deeper."""
        met: Counter[int] = Counter()
        for name, times in place.items():
            for one, count in self._closure(name).items():
                met[one] += count * times
        schemas = [(self._known[name], times) for name, times in met.items() if isinstance(self._known[name], dict)]
        if not schemas:
            return
        yield from self._members(schemas)
        yield from self._items(schemas)

    def _members(self, schemas: list[tuple[Schema, int]]) -> Iterator[frozenset[tuple[int, int]]]:
        names = {_OTHER}
        for schema, _ in schemas:
            names.update(_dict(schema.get("properties")))
        for name in names:
            self._step(len(schemas))
            met: Counter[int] = Counter()
            for schema, times in schemas:
                named = _dict(schema.get("properties"))
                found = [named[name]] if name in named else []
                found += _dict(schema.get("patternProperties")).values()
                found += [schema[keyword] for keyword in _ANY_MEMBER if keyword in schema]
                for one in found:
                    met[self._name(one)] += times
            if met:
                yield self._place(met)

    def _items(self, schemas: list[tuple[Schema, int]]) -> Iterator[frozenset[tuple[int, int]]]:
        longest = max((len(_list(schema.get("prefixItems"))) for schema, _ in schemas), default=0)
        for index in range(longest + 1):
            self._step(len(schemas))
            met: Counter[int] = Counter()
            for schema, times in schemas:
                found = _list(schema.get("prefixItems"))[index : index + 1]
                found += [schema[keyword] for keyword in _ANY_ITEM if keyword in schema]
                for one in found:
                    met[self._name(one)] += times
            if met:
                yield self._place(met)


def _comparisons(schema: Schema) -> int:
    """What a schema's own values cost to compare, in subschemas; texts alone are looked up and cost nothing."""
    values = [*_list(schema.get("enum")), *([schema["const"]] if "const" in schema else [])]
    cost = sum(_comparison(value) for value in values)
    texts = sum(isinstance(value, str) for value in values)
    if texts < len(values):
        cost += texts // _TEXTS_AS_ONE
    step = schema.get("multipleOf", 1)
    if _is_number(step) and not _is_plain(step):
        cost += _DIVISION
    return cost


def _comparison(value: Any) -> int:
    if _is_number(value):
        return 1 if _is_plain(value) else _EXACT
    return int(isinstance(value, dict | list))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_plain(value: Any) -> bool:
    """An integer that a register holds; every other number is compared digit by digit."""
    return isinstance(value, int) and abs(value) < 2**53


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
