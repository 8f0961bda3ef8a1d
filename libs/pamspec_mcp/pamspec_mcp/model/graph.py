"""The knowledge graph that desktop hosts know, as objects and relationships of a scope.

An entity is an object of the type `entity`, an observation one of the type `observation` that names its entity, a
relation a relationship between two entities. Invariant: what two writers say alike has one id. The id of an entity is
made of its name, that of an observation of its entity and text, and a generation: an id whose object was deleted is
never used again, so the next one is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_RELATION = "relation:"
PROVENANCE: Mapping[str, Any] = {"activity": "told through the knowledge graph"}
POLICY_BASIS = "deleted through the knowledge graph"


class Entity(NamedTuple):
    """A node, as it is kept."""

    object_id: str
    version_id: str
    name: str
    entity_type: str


class Observation(NamedTuple):
    """A sentence about a node."""

    object_id: str
    version_id: str
    entity_id: str
    text: str


class Relation(NamedTuple):
    """An edge between two nodes."""

    relationship_id: str
    version_id: str
    source_id: str
    target_id: str
    relation_type: str


class Graph(NamedTuple):
    """A graph, each part in the order of the ledger; every end of what it has is in it."""

    entities: tuple[Entity, ...]
    observations: tuple[Observation, ...]
    relations: tuple[Relation, ...]

    def texts(self) -> dict[str, list[str]]:
        """What is said of each entity, by its id."""
        said: dict[str, list[str]] = {one.object_id: [] for one in self.entities}
        for one in self.observations:
            said[one.entity_id].append(one.text)
        return said

    def matching(self, text: str) -> set[str]:
        """The ids of the entities whose name, type or an observation contains the text, whatever its case."""
        wanted = text.casefold()
        found = {one.object_id for one in self.entities if wanted in f"{one.name}\n{one.entity_type}".casefold()}
        return found | {one.entity_id for one in self.observations if wanted in one.text.casefold()}


def entity_id(name: str, generation: int = 0) -> str:
    """The id of an entity of that name."""
    return f"entity:{_digest(name)}:{generation}"


def observation_id(entity: str, text: str, generation: int = 0) -> str:
    """The id of an observation of an entity."""
    return f"observation:{_digest(entity, text)}:{generation}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def relationship_type(relation_type: str) -> str:
    """The type of a relation's relationship: a word as it is, of anything else a digest.

    A type outlives what is deleted, so a text stands in the content alone, which is erased.
    """
    return relation_type if _WORD.fullmatch(relation_type) else _RELATION + _digest(relation_type)


def entity_document(name: str, entity_type: str, generation: int = 0) -> dict[str, Any]:
    """The create of an entity."""
    return {
        "operation": "create",
        "object_type": "entity",
        "object_id": entity_id(name, generation),
        "canonical_content": {"name": name, "entity_type": entity_type},
        "provenance": dict(PROVENANCE),
    }


def observation_document(entity: str, name: str, text: str, generation: int = 0) -> dict[str, Any]:
    """The create of an observation."""
    return {
        "operation": "create",
        "object_type": "observation",
        "object_id": observation_id(entity, text, generation),
        "canonical_content": {"entity_id": entity, "entity": name, "text": text},
        "provenance": dict(PROVENANCE),
    }


def relation_document(source_id: str, target_id: str, relation_type: str) -> dict[str, Any]:
    """The relate of a relation."""
    return {
        "operation": "relate",
        "source_object_id": source_id,
        "target_object_id": target_id,
        "relationship_type": relationship_type(relation_type),
        "directionality": "directed",
        "canonical_content": {"relation_type": relation_type},
        "provenance": dict(PROVENANCE),
    }


def deletion(part: Entity | Observation | Relation) -> dict[str, Any]:
    """The delete of a part of the graph, as it was seen."""
    named = {"relationship_id": part.relationship_id} if isinstance(part, Relation) else {"object_id": part.object_id}
    return {
        "operation": "delete",
        **named,
        "expected_version_id": part.version_id,
        "policy_basis": POLICY_BASIS,
    }


def graph_of(versions: Iterable[Mapping[str, Any]]) -> Graph:
    """The graph that these versions make, given in the order of the ledger; what has no entity is not part of it."""
    seen = list(versions)
    entities = {one.object_id: one for one in map(_entity, seen) if one is not None}
    parts = parts_of(seen)
    return Graph(
        tuple(entities.values()),
        tuple(one for one in parts if isinstance(one, Observation) and one.entity_id in entities),
        tuple(one for one in parts if isinstance(one, Relation) and {one.source_id, one.target_id} <= entities.keys()),
    )


def parts_of(versions: Iterable[Mapping[str, Any]]) -> list[Observation | Relation]:
    """The observations and relations among these versions."""
    parts = (_relation(one) or _observation(one) for one in versions)
    return [one for one in parts if one is not None]


def _entity(version: Mapping[str, Any]) -> Entity | None:
    said = _content(version)
    name, kind = said.get("name"), said.get("entity_type")
    if version.get("object_type") != "entity" or not isinstance(name, str):
        return None
    return Entity(version["object_id"], version["version_id"], name, kind if isinstance(kind, str) else "entity")


def _observation(version: Mapping[str, Any]) -> Observation | None:
    said = _content(version)
    about, text = said.get("entity_id"), said.get("text")
    if version.get("object_type") != "observation" or not isinstance(about, str) or not isinstance(text, str):
        return None
    return Observation(version["object_id"], version["version_id"], about, text)


def _relation(version: Mapping[str, Any]) -> Relation | None:
    if "relationship_id" not in version:
        return None
    told = _content(version).get("relation_type")
    kind = told if isinstance(told, str) else version["relationship_type"]
    ends = version["source_object_id"], version["target_object_id"]
    return Relation(version["relationship_id"], version["version_id"], *ends, kind)


def _content(version: Mapping[str, Any]) -> Mapping[str, Any]:
    content = version.get("canonical_content")
    return content if isinstance(content, Mapping) else {}
