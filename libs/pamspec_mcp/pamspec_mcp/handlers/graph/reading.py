"""The graph as it is now, found through the operation `query`.

Invariant: what a caller may not see is not part of its graph, and what is not trusted any more (archived, rejected,
erased) of nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pamspec_common.operating import Caller, document
from pamspec_mcp.model.graph import Entity, Graph, Observation, Relation, graph_of, parts_of

_PAGE = 1000
_TYPES = ["entity", "observation"]
_FIELDS = [
    "object_id",
    "relationship_id",
    "version_id",
    "object_type",
    "relationship_type",
    "canonical_content",
    "source_object_id",
    "target_object_id",
]

Where = dict[str, Any]


class Place:
    """A scope, as one caller."""

    def __init__(self, caller: Caller, scope_id: str) -> None:
        self.caller, self.scope_id = caller, scope_id

    async def ask(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The document of an operation in this scope. Refused when it is none."""
        return await document(self.caller, operation, {"scope_id": self.scope_id, **arguments})


async def found(place: Place, where: Where) -> list[dict[str, Any]]:
    """All versions that match, in the order of the ledger, of one moment."""
    asked: dict[str, Any] = {
        "query": {"kind": "structured", "trust": "working", "where": where},
        "ordering": {"by": [{"field": "ledger_sequence", "direction": "asc"}]},
        "fields": _FIELDS,
    }
    versions: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page: dict[str, Any] = {"limit": _PAGE, **({"cursor": cursor} if cursor else {})}
        answer = await place.ask("query", {**asked, "pagination": page})
        versions += [item["projection"] for item in answer["items"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            return versions


async def whole(place: Place) -> Graph:
    """Everything."""
    where = {
        "or": [
            {"field": "object_type", "op": "in", "value": _TYPES},
            {"field": "source_object_id", "op": "exists", "value": True},
        ]
    }
    return graph_of(await found(place, where))


async def named(place: Place, names: Iterable[str]) -> dict[str, Entity]:
    """The entities of these names; of several of one name the first."""
    wanted = list(dict.fromkeys(names))
    entities: dict[str, Entity] = {}
    for chunk in _chunks(wanted):
        where = both(_is("object_type", "entity"), _in("content:/name", chunk))
        for entity in graph_of(await found(place, where)).entities:
            entities.setdefault(entity.name, entity)
    return entities


async def around(place: Place, names: Iterable[str]) -> Graph:
    """The entities of these names with their observations, the relations there, and the other ends of these."""
    own = [one.object_id for one in (await named(place, names)).values()]
    versions: list[dict[str, Any]] = []
    for chunk in _chunks(own):
        about = both(_is("object_type", "observation"), _in("content:/entity_id", chunk))
        ends = {"or": [_in("source_object_id", chunk), _in("target_object_id", chunk)]}
        versions += await found(place, {"or": [_in("object_id", chunk), about, ends]})
    joined = [one for one in versions if "relationship_id" in one]
    ends_of = dict.fromkeys(one[end] for one in joined for end in ("source_object_id", "target_object_id"))
    others = [one for one in ends_of if one not in set(own)]
    for chunk in _chunks(others):
        versions += await found(place, _in("object_id", chunk))
    return graph_of(_once(versions))


async def about(place: Place, entity_ids: Sequence[str]) -> list[Observation | Relation]:
    """The observations and relations of entities, whether or not these are there."""
    versions: list[dict[str, Any]] = []
    for chunk in _chunks(entity_ids):
        said = both(_is("object_type", "observation"), _in("content:/entity_id", chunk))
        versions += await found(place, {"or": [said, _in("source_object_id", chunk), _in("target_object_id", chunk)]})
    return parts_of(_once(versions))


def _once(versions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    seen = {one.get("relationship_id") or one["object_id"]: one for one in versions}
    return list(seen.values())


def both(*conditions: Where) -> Where:
    """All of the conditions."""
    return {"and": list(conditions)}


def _is(field: str, value: str) -> Where:
    return {"field": field, "op": "eq", "value": value}


def _in(field: str, values: Sequence[str]) -> Where:
    return {"field": field, "op": "in", "value": list(values)}


def _chunks(values: Sequence[str]) -> list[Sequence[str]]:
    return [values[start : start + _PAGE] for start in range(0, len(values), _PAGE)]
