"""A graph as a host is shown it, in pages that it can take.

Invariants: the pages of a graph that does not change, joined, are the graph; an entity whose observations do not fit
into one page is there again on the next, with those that are left; a text is cut between two characters, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from pamspec_mcp.model.bounds import cut
from pamspec_mcp.model.graph import Entity, Graph, Relation

_ENTITY, _RELATION = "e", "r"


class Position(NamedTuple):
    """Where a page begins: at an entity and an observation of it, or at a relation."""

    kind: str
    first: int
    second: int = 0

    def written(self) -> str:
        """The position as a host carries it."""
        return f"{self.kind}{self.first}.{self.second}"


def position(text: str) -> Position | None:
    """The position that a host sent back; None for anything else."""
    kind, rest = text[:1], text[1:].split(".")
    if kind not in (_ENTITY, _RELATION) or len(rest) != 2 or not all(one.isascii() and one.isdigit() for one in rest):
        return None
    if any(len(one) > 12 for one in rest):
        return None
    return Position(kind, int(rest[0]), int(rest[1]))


class _Page:
    def __init__(self, most: int) -> None:
        self._left = most
        self._most = most
        self.entities: list[dict[str, Any]] = []
        self.relations: list[dict[str, Any]] = []
        self.cut = False

    @property
    def empty(self) -> bool:
        return not self.entities and not self.relations

    def takes(self, value: object) -> bool:
        size = len(orjson.dumps(value)) + 2
        if size > self._left:
            return False
        self._left -= size
        return True

    def shortened(self, text: str) -> str:
        """As much of a text as fits where nothing else could."""
        self.cut = True
        short = cut(text, 0, max(self._left - 200, 4))
        self.takes(short)
        return short


def page(graph: Graph, shown_ids: set[str] | None, begin: Position | None, most: int) -> dict[str, Any]:
    """As much of a graph as fits into so many bytes, from there on, and where it goes on.

    `shown_ids` are the entities to show, with the relations that begin or end there; None shows all.
    """
    room = _Page(most - 200)
    entities = [one for one in graph.entities if shown_ids is None or one.object_id in shown_ids]
    onward = _entities(entities, graph.texts(), begin, room) if begin is None or begin.kind == _ENTITY else None
    if onward is None:
        relations = [one for one in graph.relations if shown_ids is None or {one.source_id, one.target_id} & shown_ids]
        names = {one.object_id: one.name for one in graph.entities}
        first = begin.first if begin is not None and begin.kind == _RELATION else 0
        onward = _relations(relations, names, first, room)
    shown: dict[str, Any] = {"entities": room.entities, "relations": room.relations}
    if room.cut:
        shown["truncated"] = True
    if onward is not None:
        shown["next_cursor"] = onward.written()
    return shown


def _entities(
    entities: Sequence[Entity], texts: Mapping[str, Sequence[str]], begin: Position | None, room: _Page
) -> Position | None:
    first, second = (begin.first, begin.second) if begin is not None else (0, 0)
    for number in range(first, len(entities)):
        skipped = second if number == first else 0
        stopped = _entity(entities[number], texts[entities[number].object_id], skipped, room)
        if stopped is not None:
            return Position(_ENTITY, number, stopped)
    return None


def _entity(entity: Entity, texts: Sequence[str], skipped: int, room: _Page) -> int | None:
    """Show an entity; the observation at which the page was full, None when it was not."""
    said: list[str] = []
    shown: dict[str, Any] = {"name": entity.name, "entityType": entity.entity_type, "observations": said}
    if not room.takes(shown):
        if not room.empty:
            return skipped
        shown["name"], shown["entityType"] = room.shortened(entity.name), room.shortened(entity.entity_type)
    room.entities.append(shown)
    for number, text in enumerate(texts[skipped:], skipped):
        if room.takes(text):
            said.append(text)
        elif len(room.entities) == 1 and not said:
            said.append(room.shortened(text))
        else:
            if not said:
                room.entities.pop()
            return number
    return None


def _relations(relations: Sequence[Relation], names: Mapping[str, str], first: int, room: _Page) -> Position | None:
    for number in range(first, len(relations)):
        one = relations[number]
        shown = {"from": names[one.source_id], "to": names[one.target_id], "relationType": one.relation_type}
        if not room.takes(shown):
            if not room.empty:
                return Position(_RELATION, number)
            shown = {name: room.shortened(text) for name, text in shown.items()}
        room.relations.append(shown)
    return None
