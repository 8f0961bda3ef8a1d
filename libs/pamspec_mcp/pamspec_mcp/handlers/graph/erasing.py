"""What is deleted from a graph, with what hangs on it.

Invariant: what somebody adds to a node while it is deleted is deleted with it; a part that somebody changed meanwhile
is looked at again, and one that may not be deleted (a legal hold, a right) is told of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pamspec_common.operating import Refused
from pamspec_mcp.handlers.graph import reading
from pamspec_mcp.handlers.graph.reading import Place
from pamspec_mcp.model import graph as model
from pamspec_mcp.model.graph import Entity, Observation, Relation

_BATCH = 500
_ROUNDS = 64
_MOVED = frozenset(("version_conflict", "object_not_found", "object_deleted", "object_redacted"))

Part = Entity | Observation | Relation


async def delete_entities(place: Place, names: Iterable[str]) -> None:
    """Delete the entities of these names with their observations and relations; one that is not there is no error."""
    wanted = set(names)
    ids: set[str] = set()
    for _ in range(_ROUNDS):
        found = await reading.around(place, wanted)
        entities = [one for one in found.entities if one.name in wanted]
        ids |= {one.object_id for one in entities}
        # The nodes first: from now on nothing can be joined to them.
        await delete_parts(place, entities)
        if not entities:
            break
    await delete_about(place, ids)


async def delete_about(place: Place, entity_ids: Iterable[str]) -> None:
    """Delete the observations and relations of entities that are gone."""
    ids = sorted(entity_ids)
    for _ in range(_ROUNDS):
        parts = await reading.about(place, ids)
        if not parts:
            return
        await delete_parts(place, parts)


async def delete_observations(place: Place, name: str, texts: Sequence[str]) -> None:
    """Delete what is said of an entity, word for word; what is not there is no error."""
    wanted = set(texts)
    for _ in range(_ROUNDS):
        entity = (await reading.named(place, [name])).get(name)
        if entity is None:
            return
        about = await reading.about(place, [entity.object_id])
        parts = [one for one in about if isinstance(one, Observation) and one.text in wanted]
        if not parts:
            return
        await delete_parts(place, parts)


async def delete_relations(place: Place, wanted: Iterable[tuple[str, str, str]]) -> None:
    """Delete relations by the names of their ends and their type; one that is not there is no error."""
    triples = set(wanted)
    for _ in range(_ROUNDS):
        graph = await reading.around(place, {one for triple in triples for one in triple[:2]})
        names = {one.object_id: one.name for one in graph.entities}
        parts = [
            one for one in graph.relations if (names[one.source_id], names[one.target_id], one.relation_type) in triples
        ]
        if not parts:
            return
        await delete_parts(place, parts)


async def delete_parts(place: Place, parts: Sequence[Part]) -> None:
    """Delete parts as they were seen; what was changed or deleted meanwhile is left to the next look."""
    for start in range(0, len(parts), _BATCH):
        items = [model.deletion(one) for one in parts[start : start + _BATCH]]
        for result in (await place.ask("batch", {"items": items}))["results"]:
            if "error" in result and result["error"]["code"] not in _MOVED:
                raise Refused(result["error"])
