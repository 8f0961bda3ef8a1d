"""The nine tools, by the names, arguments and answers that desktop hosts know from their own memory file."""

from __future__ import annotations

from typing import Any, NamedTuple

_NAME = {"type": "string", "minLength": 1, "maxLength": 1000}
_TEXT = {"type": "string", "maxLength": 1_000_000}
_NAMES = {"type": "array", "maxItems": 1000, "items": _NAME}
_TEXTS = {"type": "array", "maxItems": 1000, "items": _TEXT}
_CURSOR = {"type": "string", "description": "next_cursor of the answer before, to go on with a large one."}
_ENTITY = {
    "type": "object",
    "properties": {
        "name": {**_NAME, "description": "The name of the entity."},
        "entityType": {**_NAME, "description": "The type of the entity."},
        "observations": {**_TEXTS, "description": "What is known of it."},
    },
    "required": ["name", "entityType", "observations"],
}
_RELATION = {
    "type": "object",
    "properties": {
        "from": {**_NAME, "description": "The name of the entity where the relation starts."},
        "to": {**_NAME, "description": "The name of the entity where the relation ends."},
        "relationType": {**_NAME, "description": "The type of the relation, in active voice."},
    },
    "required": ["from", "to", "relationType"],
}
_GRAPH = {
    "entities": {"type": "array", "items": _ENTITY},
    "relations": {"type": "array", "items": _RELATION},
    "next_cursor": {"type": "string"},
    "truncated": {"type": "boolean", "description": "Whether a single text was too large to be shown whole."},
}
_DONE = {"success": {"type": "boolean"}, "message": {"type": "string"}}


class GraphTool(NamedTuple):
    """What a host is told of a tool."""

    summary: str
    arguments: dict[str, Any]
    answer: dict[str, Any]
    reads_only: bool = False
    destroys: bool = False


def _lists(name: str, items: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "array", "maxItems": 1000, "items": items}},
        "required": [name],
        "additionalProperties": False,
    }


def _about(entity: str, texts: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {entity: {**_NAME, "description": "The name of the entity."}, texts: _TEXTS},
        "required": [entity, texts],
    }


TOOLS: dict[str, GraphTool] = {
    "create_entities": GraphTool(
        "Create entities in the knowledge graph; those that are there are left as they are.",
        _lists("entities", _ENTITY),
        {"entities": _GRAPH["entities"]},
    ),
    "create_relations": GraphTool(
        "Create relations between entities; those that are there are left as they are.",
        _lists("relations", _RELATION),
        {"relations": _GRAPH["relations"]},
    ),
    "add_observations": GraphTool(
        "Add observations to entities; those that are there are left as they are.",
        _lists("observations", _about("entityName", "contents")),
        {
            "results": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"entityName": {"type": "string"}, "addedObservations": _TEXTS},
                },
            }
        },
    ),
    "delete_entities": GraphTool(
        "Delete entities with their observations and relations, for good.",
        _lists("entityNames", _NAME),
        _DONE,
        destroys=True,
    ),
    "delete_observations": GraphTool(
        "Delete observations of entities, for good.",
        _lists("deletions", _about("entityName", "observations")),
        _DONE,
        destroys=True,
    ),
    "delete_relations": GraphTool("Delete relations, for good.", _lists("relations", _RELATION), _DONE, destroys=True),
    "read_graph": GraphTool(
        "Read the whole knowledge graph.",
        {"type": "object", "properties": {"cursor": _CURSOR}, "additionalProperties": False},
        _GRAPH,
        reads_only=True,
    ),
    "search_nodes": GraphTool(
        "Find entities whose name, type or an observation contains a text.",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "maxLength": 10_000, "description": "The text to look for."},
                "cursor": _CURSOR,
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        _GRAPH,
        reads_only=True,
    ),
    "open_nodes": GraphTool(
        "Get entities by their names, with their relations.",
        {
            "type": "object",
            "properties": {"names": _NAMES, "cursor": _CURSOR},
            "required": ["names"],
            "additionalProperties": False,
        },
        _GRAPH,
        reads_only=True,
    ),
}
