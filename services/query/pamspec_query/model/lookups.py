"""What of a query the search index can answer: a condition that every match meets, in the index's own terms.

Invariant: a lookup never leaves a match out. It may let others in; the statement that reads the rows weighs the whole
query again. Only what must hold of every match is taken: members of the outermost `and`, and an `or` whose members all
compare one field or all compare content.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pamspec_common.documents import STATES
from pamspec_common.strict_json import canonical, dumps, parse
from pamspec_query.model.fields import Field, Pointer
from pamspec_query.model.states import States
from pamspec_query.model.where import Condition, Group, Json, Node, conjuncts

MAX_VALUES = 64
"""More alternatives than that are not looked up: each is a search of its own."""
MAX_COMBINATIONS = 192
"""The same for states: one dimension that is narrowed by half."""
_INDEX = re.compile(r"(?:0|[1-9][0-9]*)\Z")
ALONE = frozenset(
    {"object_id", "relationship_id", "version_id", "provenance_id", "source_object_id", "target_object_id"}
)
"""Fields whose own index beats every search."""
RANGED = frozenset({"observed_at", "asserted_at", "valid_from", "valid_until", "sequence"})
"""Fields with an index of their own that serves ranges."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Alternatives by kind of fact, None where nothing is asked; `docs` are JSON documents that the content holds."""

    types: Sequence[str]
    states: Sequence[str] | None = None
    actors: Sequence[str] | None = None
    schemas: Sequence[str] | None = None
    docs: Sequence[str] | None = None
    ranged: bool = False
    """Whether a range that has an index of its own narrows the query as well."""
    typed: bool = False
    """Whether types are named, not only kinds."""
    whole: bool = True
    """Whether the lookup says all that the query asks."""

    @property
    def selects(self) -> bool:
        """Whether it asks for more than types and states."""
        return any(part is not None for part in (self.actors, self.schemas, self.docs))


def lookup(
    kinds: Mapping[str, Sequence[str] | None], passing: States, where: Node | None, rest: Iterable[str]
) -> Lookup | None:
    """The lookup of a query; None where it has none, or where an index of its own serves it better.

    `kinds` holds the wanted types by kind (`o`, `r`), None for any; `rest` names what else the query narrows.
    """
    typed = any(types is not None for types in kinds.values())
    found = Lookup(types=_types(kinds), states=_states(passing), typed=typed)
    for name in rest:
        if name in ALONE:
            return None
        found = replace(found, whole=False, ranged=found.ranged or name in RANGED)
    for node in conjuncts(where):
        if isinstance(node, Condition) and node.target.name in ALONE and node.op in ("eq", "in"):
            return None
        found = _narrowed(found, node)
    return found if found.selects or not found.ranged else None


def _types(kinds: Mapping[str, Sequence[str] | None]) -> Sequence[str]:
    """The types, each behind its kind; a kind alone where all of its types are wanted."""
    return [kind + name for kind, types in kinds.items() for name in ([""] if types is None else types)]


def _states(passing: States) -> Sequence[str] | None:
    """Each combination of states that passes; None where that says little."""
    combinations = list(itertools.product(*(passing.of(dimension) for dimension in STATES)))
    return [" ".join(one) for one in combinations] if len(combinations) <= MAX_COMBINATIONS else None


def _narrowed(found: Lookup, node: Node) -> Lookup:
    if isinstance(node, Condition):
        return _by_condition(found, node)
    alternatives = _alternatives(node)
    docs = None if alternatives is None else _all_docs(alternatives)
    if docs is None or found.docs is not None:
        return replace(found, whole=False)
    return replace(found, docs=docs, whole=False)


def _alternatives(node: Group) -> list[Condition] | None:
    """The members of an `or` of content conditions; None for anything else."""
    if node.joint != "or" or not all(isinstance(member, Condition) for member in node.members):
        return None
    members = [member for member in node.members if isinstance(member, Condition)]
    return members if all(isinstance(member.target, Pointer) for member in members) else None


def _all_docs(conditions: Iterable[Condition]) -> list[str] | None:
    found: list[str] = []
    for condition in conditions:
        assert isinstance(condition.target, Pointer)
        docs = _docs(condition.target, condition)
        if docs is None:
            return None
        found += docs
    return found if len(found) <= MAX_VALUES else None


def _by_condition(found: Lookup, condition: Condition) -> Lookup:
    target = condition.target
    if isinstance(target, Pointer):
        docs = _docs(target, condition)
        if docs is None:
            return replace(found, whole=False)
        if found.docs is None:
            return replace(found, docs=docs, whole=found.whole and condition.op == "eq" and len(docs) == 1)
        return replace(found, docs=_both(found.docs, docs), whole=False)
    values = _values(condition)
    if values is not None and target.name == "actor.actor_id" and found.actors is None:
        return replace(found, actors=values)
    if values is not None and target.name == "schema_id" and found.schemas is None:
        return replace(found, schemas=values)
    if values is not None and target.name in _KIND and not found.typed:
        return replace(found, types=[_KIND[target.name] + value for value in values], typed=True)
    ranged = found.ranged or (target.name in RANGED and condition.op not in ("ne", "nin", "exists"))
    return replace(found, whole=False, ranged=ranged)


_KIND = {"object_type": "o", "relationship_type": "r"}


def _values(condition: Condition) -> list[str] | None:
    assert isinstance(condition.target, Field)
    if condition.op == "eq" and isinstance(condition.value, str):
        return [condition.value]
    if condition.op == "in" and len(condition.value) <= MAX_VALUES:
        return list(condition.value)
    return None


def _docs(pointer: Pointer, condition: Condition) -> list[str] | None:
    """The documents of which a matching content holds one."""
    op, value = condition.op, condition.value
    if op == "eq":
        values = [value]
    elif op == "in":
        values = value
    elif op == "contains" and (value.composite or value.text is None):
        values = [value if value.composite else Json(f"[{value.encoded}]")]
    else:
        return None
    if not all(_has_leaf(parse(one.encoded.encode())) for one in values):
        return None
    documents = [document for one in values for document in _placed(pointer.path, one.encoded)]
    return documents if len(documents) <= MAX_VALUES else None


def _has_leaf(value: Any) -> bool:
    """Whether a text, number, true, false or null stands in it: the index holds those alone."""
    if isinstance(value, dict):
        return any(map(_has_leaf, value.values()))
    if isinstance(value, list):
        return any(map(_has_leaf, value))
    return True


def _placed(path: Sequence[str], encoded: str) -> list[str]:
    """A value at a path; a name like `0` may be a member or a place in an array, so it makes two documents."""
    documents = [encoded]
    for name in reversed(path):
        members = [f"{{{dumps(name).decode()}:{document}}}" for document in documents]
        places = [f"[{document}]" for document in documents] if _INDEX.match(name) else []
        documents = members + places
    return documents


def _both(some: Sequence[str], others: Sequence[str]) -> Sequence[str]:
    """Documents that hold one of each; where they cannot be joined, the shorter list alone."""
    if len(some) * len(others) <= MAX_VALUES:
        joined = [_joined(parse(one.encode()), parse(other.encode())) for one in some for other in others]
        if all(one is not None for one in joined):
            return [canonical(one).decode() for one in joined]
    return min(some, others, key=len)


def _joined(some: Any, other: Any) -> Any:
    """Two objects as one; None where they both say something at one place."""
    if not isinstance(some, dict) or not isinstance(other, dict):
        return None
    joined = dict(some)
    for name, value in other.items():
        if name not in joined:
            joined[name] = value
            continue
        below = _joined(joined[name], value)
        if below is None:
            return None
        joined[name] = below
    return joined
