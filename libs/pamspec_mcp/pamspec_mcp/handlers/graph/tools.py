"""Calls of the nine tools: arguments are checked as a whole before anything is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any

import mcp_types as types
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator

from pamspec_common import contracts, strict_json
from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest, ObjectNotFound
from pamspec_common.operating import Caller, Refused
from pamspec_mcp.handlers import results
from pamspec_mcp.handlers.graph import erasing, reading, writing
from pamspec_mcp.handlers.graph.reading import Place
from pamspec_mcp.handlers.graph.writing import New, Unknown
from pamspec_mcp.model import graph_pages
from pamspec_mcp.model.bounds import Bounds
from pamspec_mcp.model.graph import Graph
from pamspec_mcp.model.graph_tools import TOOLS

Arguments = Mapping[str, Any]


@cache
def listed() -> tuple[types.Tool, ...]:
    """The tools."""
    return tuple(
        types.Tool(
            name=name,
            description=one.summary,
            input_schema=one.arguments,
            output_schema={"type": "object", "properties": {**one.answer, "error": {"type": "object"}}},
            annotations=types.ToolAnnotations(
                read_only_hint=one.reads_only,
                destructive_hint=one.destroys,
                idempotent_hint=True,
                open_world_hint=False,
            ),
        )
        for name, one in TOOLS.items()
    )


async def call(caller: Caller, scope_id: str, name: str, arguments: Arguments, bounds: Bounds) -> types.CallToolResult:
    """The result of a tool; refusals are results."""
    broken = best_match(_validator(name).iter_errors(dict(arguments)))
    if broken is not None:
        message = f"{broken.json_path} breaks the rule {broken.validator}; see the tool's schema."
        return results.refused(InvalidRequest(message, details={"field": broken.json_path}))
    place = Place(caller, scope_id)
    try:
        answer = (
            await _READERS[name](place, arguments, bounds)
            if name in _READERS
            else await _WRITERS[name](place, arguments)
        )
    except Unknown as unknown:
        message = "No entity has a name that is given; create it first. details.indexes says where."
        return results.refused(ObjectNotFound(message, details={"indexes": unknown.places[:100]}))
    except _BadCursor:
        return results.refused(InvalidRequest("Send next_cursor as it came.", details={"field": "cursor"}))
    except Refused as refused:
        return results.result(Answer(400, strict_json.dumps({"error": refused.error})))
    return results.result(Answer(200, _fitting(answer, bounds)))


def _fitting(answer: dict[str, Any], bounds: Bounds) -> bytes:
    """The answer; one that tells of more than fits tells of the first and says so. Pages of a graph fit as they are."""
    while not bounds.holds(body := strict_json.dumps(answer)):
        name, told = next((name, one) for name, one in answer.items() if isinstance(one, list))
        if len(told) <= 1:
            return strict_json.dumps({name: [], "truncated": True})
        answer = {name: told[: len(told) // 2], "truncated": True}
    return body


@cache
def _validator(name: str) -> Validator:
    return contracts.validator_of(TOOLS[name].arguments)


class _BadCursor(ValueError):
    """This is no position in a graph."""


async def _create_entities(place: Place, arguments: Arguments) -> dict[str, Any]:
    wanted: dict[str, dict[str, Any]] = {}
    for one in arguments["entities"]:
        wanted.setdefault(one["name"], one)
    new = [New(name, one["entityType"], list(dict.fromkeys(one["observations"]))) for name, one in wanted.items()]
    made = set(await writing.create(place, new))
    return {"entities": [one for name, one in wanted.items() if name in made]}


async def _create_relations(place: Place, arguments: Arguments) -> dict[str, Any]:
    added = await writing.relate(place, _triples(arguments))
    return {"relations": [{"from": one[0], "to": one[1], "relationType": one[2]} for one in added]}


async def _add_observations(place: Place, arguments: Arguments) -> dict[str, Any]:
    wanted: dict[str, list[str]] = {}
    for one in arguments["observations"]:
        wanted.setdefault(one["entityName"], []).extend(one["contents"])
    added = await writing.observe(place, wanted)
    return {"results": [{"entityName": name, "addedObservations": texts} for name, texts in added.items()]}


async def _delete_entities(place: Place, arguments: Arguments) -> dict[str, Any]:
    await erasing.delete_entities(place, arguments["entityNames"])
    return _done("Entities")


async def _delete_observations(place: Place, arguments: Arguments) -> dict[str, Any]:
    for one in arguments["deletions"]:
        await erasing.delete_observations(place, one["entityName"], one["observations"])
    return _done("Observations")


async def _delete_relations(place: Place, arguments: Arguments) -> dict[str, Any]:
    await erasing.delete_relations(place, _triples(arguments))
    return _done("Relations")


def _done(what: str) -> dict[str, Any]:
    return {"success": True, "message": f"{what} deleted successfully"}


def _triples(arguments: Arguments) -> list[tuple[str, str, str]]:
    return [(one["from"], one["to"], one["relationType"]) for one in arguments["relations"]]


async def _read_graph(place: Place, arguments: Arguments, bounds: Bounds) -> dict[str, Any]:
    return _page(await reading.whole(place), None, arguments, bounds)


async def _search_nodes(place: Place, arguments: Arguments, bounds: Bounds) -> dict[str, Any]:
    graph = await reading.whole(place)
    return _page(graph, graph.matching(arguments["query"]), arguments, bounds)


async def _open_nodes(place: Place, arguments: Arguments, bounds: Bounds) -> dict[str, Any]:
    wanted = set(arguments["names"])
    graph = await reading.around(place, wanted)
    return _page(graph, {one.object_id for one in graph.entities if one.name in wanted}, arguments, bounds)


def _page(graph: Graph, shown: set[str] | None, arguments: Arguments, bounds: Bounds) -> dict[str, Any]:
    written = arguments.get("cursor")
    begin = graph_pages.position(written) if written is not None else None
    if written is not None and begin is None:
        raise _BadCursor
    return graph_pages.page(graph, shown, begin, bounds.document_bytes)


_WRITERS: dict[str, Callable[[Place, Arguments], Awaitable[dict[str, Any]]]] = {
    "create_entities": _create_entities,
    "create_relations": _create_relations,
    "add_observations": _add_observations,
    "delete_entities": _delete_entities,
    "delete_observations": _delete_observations,
    "delete_relations": _delete_relations,
}
_READERS: dict[str, Callable[[Place, Arguments, Bounds], Awaitable[dict[str, Any]]]] = {
    "read_graph": _read_graph,
    "search_nodes": _search_nodes,
    "open_nodes": _open_nodes,
}
