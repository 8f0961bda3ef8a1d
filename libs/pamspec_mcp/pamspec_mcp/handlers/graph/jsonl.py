"""The memory.jsonl of desktop hosts: a line for each entity and each relation.

Invariants: taking a file in twice adds nothing the second time; a line that is none is told by its number, and keeps no
other from being taken in.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple

from pamspec_mcp.handlers.graph import reading, writing
from pamspec_mcp.handlers.graph.reading import Place
from pamspec_mcp.handlers.graph.writing import New, Unknown

_TOGETHER = 200


class Taken(NamedTuple):
    """What became of a file."""

    entities: int
    observations: int
    relations: int
    bad_lines: list[int]
    """Lines that are neither an entity nor a relation, and relations of which an end is nowhere; from 1."""


class _Line(NamedTuple):
    number: int
    document: dict[str, Any]


async def take_in(place: Place, lines: Iterable[str]) -> Taken:
    """Add what a file says to the graph of a scope. Refused when the scope does not take it."""
    entities, relations, bad = _parsed(lines)
    made = observed = related = 0
    for start in range(0, len(entities), _TOGETHER):
        wanted: dict[str, New] = {}
        for line in entities[start : start + _TOGETHER]:
            name, texts = line.document["name"], line.document["observations"]
            known = wanted.setdefault(name, New(name, line.document["entityType"], []))
            known.texts.extend(text for text in texts if text not in known.texts)
        new = set(await writing.create(place, list(wanted.values())))
        made += len(new)
        observed += sum(len(wanted[name].texts) for name in new)
        known_before = {name: one.texts for name, one in wanted.items() if name not in new and one.texts}
        if known_before:
            observed += sum(map(len, (await writing.observe(place, known_before)).values()))
    for start in range(0, len(relations), _TOGETHER):
        count, unknown = await _relate(place, relations[start : start + _TOGETHER])
        related += count
        bad += unknown
    return Taken(made, observed, related, sorted(bad))


def _parsed(lines: Iterable[str]) -> tuple[list[_Line], list[_Line], list[int]]:
    entities: list[_Line] = []
    relations: list[_Line] = []
    bad: list[int] = []
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if _is_entity(document):
            entities.append(_Line(number, document))
        elif _is_relation(document):
            relations.append(_Line(number, document))
        else:
            bad.append(number)
    return entities, relations, bad


def _is_entity(document: object) -> bool:
    if not isinstance(document, dict) or document.get("type") != "entity":
        return False
    texts = document.get("observations")
    return (
        _named(document, "name", "entityType")
        and isinstance(texts, list)
        and all(isinstance(one, str) for one in texts)
    )


def _is_relation(document: object) -> bool:
    return isinstance(document, dict) and document.get("type") == "relation" and _named(document, *_ENDS)


def _named(document: dict[str, Any], *members: str) -> bool:
    return all(isinstance(document.get(one), str) and document[one] for one in members)


_ENDS = ("from", "to", "relationType")


async def _relate(place: Place, lines: list[_Line]) -> tuple[int, list[int]]:
    """How many relations were added, and the lines of which an end is nowhere."""
    unknown: list[int] = []
    while lines:
        try:
            triples = [(one.document["from"], one.document["to"], one.document["relationType"]) for one in lines]
            return len(await writing.relate(place, triples)), unknown
        except Unknown as missing:
            unique = list(dict.fromkeys(triples))
            gone = {unique[number] for number in missing.places}
            unknown += [one.number for one, triple in zip(lines, triples, strict=True) if triple in gone]
            lines = [one for one, triple in zip(lines, triples, strict=True) if triple not in gone]
    return 0, unknown


async def written(place: Place) -> AsyncIterator[str]:
    """The graph of a scope as the lines of such a file."""
    graph = await reading.whole(place)
    texts, names = graph.texts(), {one.object_id: one.name for one in graph.entities}
    for entity in graph.entities:
        said = texts[entity.object_id]
        document = {"type": "entity", "name": entity.name, "entityType": entity.entity_type, "observations": said}
        yield json.dumps(document, ensure_ascii=False)
    for one in graph.relations:
        ends = {"from": names[one.source_id], "to": names[one.target_id], "relationType": one.relation_type}
        yield json.dumps({"type": "relation", **ends}, ensure_ascii=False)
