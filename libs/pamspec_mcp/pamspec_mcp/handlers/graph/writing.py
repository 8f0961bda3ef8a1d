"""Writers of the graph, any number at once.

Invariants: what is said twice, by whomever, is there once; nothing that one writer added is lost to another, for nobody
rewrites what somebody else wrote; nothing is added to an entity that was deleted meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pamspec_common.operating import Refused
from pamspec_mcp.handlers.graph import erasing, reading
from pamspec_mcp.handlers.graph.reading import Place
from pamspec_mcp.model import graph as model

_BATCH = 500
_PROBES = 16
_ROUNDS = 64
_THERE = frozenset(("version_conflict", "relationship_conflict"))
_GONE = frozenset(("object_deleted", "object_redacted"))


class Unknown(Exception):
    """Entities that are named are not there; where in the arguments they are named."""

    def __init__(self, places: Sequence[int]) -> None:
        super().__init__()
        self.places = list(places)


class New(NamedTuple):
    """An entity that somebody wants to be there."""

    name: str
    entity_type: str
    texts: list[str]


async def create(place: Place, wanted: Sequence[New]) -> list[str]:
    """Make entities with their observations, in their order; the names of those that were not there."""
    there = await reading.named(place, [one.name for one in wanted])
    missing = [one for one in wanted if one.name not in there]
    made: list[str] = []
    for group in _groups(missing):
        try:
            items = [item for one in group for item in _documents(one, 0)]
            await place.ask("batch", {"items": items, "atomic": True})
        except Refused as refusal:
            if refusal.error.get("code") not in _THERE | _GONE:
                raise
            # Somebody was faster, or a name was used before: each by itself.
            made += [one.name for one in group if await _create(place, one)]
        else:
            made += [one.name for one in group]
    for one in missing:
        if one.name in made and len(one.texts) >= _BATCH:
            await observe(place, {one.name: one.texts[_BATCH - 1 :]})
    return made


def _groups(wanted: Sequence[New]) -> list[list[New]]:
    """The same in order, as many together as one batch takes."""
    groups: list[list[New]] = []
    room = 0
    for one in wanted:
        size = min(len(one.texts) + 1, _BATCH)
        if size > room:
            groups.append([])
            room = _BATCH
        groups[-1].append(one)
        room -= size
    return groups


def _documents(new: New, generation: int) -> list[dict[str, Any]]:
    """The creates of an entity and of what fits beside it."""
    entity = model.entity_id(new.name, generation)
    said = [model.observation_document(entity, new.name, text) for text in new.texts[: _BATCH - 1]]
    return [model.entity_document(new.name, new.entity_type, generation), *said]


async def _create(place: Place, new: New) -> bool:
    """Make one entity, all or nothing; False when it is there."""
    generation = 0
    for _ in range(_ROUNDS):
        try:
            await place.ask("batch", {"items": _documents(new, generation), "atomic": True})
        except Refused as refusal:
            if refusal.error.get("code") not in _THERE | _GONE:
                raise
            usable = await _usable_generation(place, partial(model.entity_id, new.name), generation)
            if usable == generation:
                return False
            generation = usable
        else:
            return True
    raise Refused({"code": "version_conflict", "message": "Too many writers; try again.", "retryable": True})


async def _usable_generation(place: Place, id_of: Callable[[int], str], generation: int) -> int:
    """The first generation from that one on whose id is not that of something deleted: free, or there."""

    async def gone(one: int) -> bool:
        try:
            await place.ask("read", {"object_id": id_of(one), "fields": ["version_id"]})
        except Refused as refusal:
            return refusal.error.get("code") in _GONE
        return False

    count = 1
    for _ in range(_ROUNDS):
        numbers = range(generation, generation + count)
        deleted = await asyncio.gather(*(gone(one) for one in numbers))
        if not all(deleted):
            return numbers[deleted.index(False)]
        generation, count = generation + count, _PROBES
    message = "This was deleted and made again too often; use another name or text."
    raise Refused({"code": "version_conflict", "message": message, "retryable": False})


async def observe(place: Place, wanted: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Add observations by the name of their entity; those of each that were not there. Unknown for a missing entity."""
    names = list(wanted)
    entities = await reading.named(place, names)
    missing = [number for number, name in enumerate(names) if name not in entities]
    if missing:
        raise Unknown(missing)
    added = await asyncio.gather(
        *(_observe(place, entities[name].object_id, name, texts) for name, texts in wanted.items())
    )
    still = await reading.named(place, names)
    for name in names:
        if name not in still:
            # Somebody deleted it meanwhile: what was just added goes with it.
            await erasing.delete_about(place, [entities[name].object_id])
    gone = [number for number, name in enumerate(names) if name not in still]
    if gone:
        raise Unknown(gone)
    return dict(zip(names, added, strict=True))


async def _observe(place: Place, entity: str, name: str, texts: Sequence[str]) -> list[str]:
    """The texts that were added."""
    waiting = dict.fromkeys(texts, 0)
    added: set[str] = set()
    for _ in range(_ROUNDS):
        if not waiting:
            break
        asked = list(waiting.items())[:_BATCH]
        items = [model.observation_document(entity, name, text, generation) for text, generation in asked]
        results = (await place.ask("batch", {"items": items}))["results"]
        for (text, generation), result in zip(asked, results, strict=True):
            code = result["error"]["code"] if "error" in result else None
            if code is not None and code not in _THERE | _GONE:
                raise Refused(result["error"])
            if code is not None:
                id_of = partial(model.observation_id, entity, text)
                waiting[text] = await _usable_generation(place, id_of, generation)
            if waiting[text] == generation:
                del waiting[text]
            if code is None:
                added.add(text)
    return [text for text in dict.fromkeys(texts) if text in added]


async def relate(place: Place, wanted: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Add relations by the names of their ends and their type; those that were not there. Unknown for a missing end."""
    triples = list(dict.fromkeys(wanted))
    entities = await reading.named(place, [name for triple in triples for name in triple[:2]])
    missing = [number for number, triple in enumerate(triples) if not entities.keys() >= set(triple[:2])]
    if missing:
        raise Unknown(missing)
    added: list[tuple[str, str, str]] = []
    for start in range(0, len(triples), _BATCH):
        chunk = triples[start : start + _BATCH]
        items = [
            model.relation_document(entities[source].object_id, entities[target].object_id, kind)
            for source, target, kind in chunk
        ]
        results = (await place.ask("batch", {"items": items}))["results"]
        for number, (triple, result) in enumerate(zip(chunk, results, strict=True), start):
            code = result["error"]["code"] if "error" in result else None
            if code in _GONE:
                raise Unknown([number])
            if code is None:
                added.append(triple)
            elif code not in _THERE:
                raise Refused(result["error"])
    return added
