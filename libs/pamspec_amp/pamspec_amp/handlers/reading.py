"""Cells read, listed and searched for.

Invariant: what an agent may not read is in no answer and in no count, and takes no place of what it may (A45).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pamspec_amp.handlers.place import Place
from pamspec_amp.model import bodies
from pamspec_amp.model.bodies import Query
from pamspec_amp.model.cells import Cell, Usage, cell_in, decay_score, rank, shown
from pamspec_amp.model.errors import AccessDenied
from pamspec_common.instants import wire

_PAGE = 200
_RANKED = 200
_MOST_RANKED = 1000
"""A search ranks as many cells as are likest the query, of those that may be read."""
_NONE = Usage()
_LIVE = ["active"]
_STATES: Mapping[str, Mapping[str, Any]] = {
    "active": {"lifecycle_state": _LIVE, "retention_state": ["retained", "legal_hold"]},
    "stale": {"lifecycle_state": _LIVE, "retention_state": ["expired", "pending_deletion"]},
    "archived": {"lifecycle_state": ["archived", "superseded", "deprecated"], "retention_state": "any"},
}
_ANY = {"lifecycle_state": "any", "retention_state": "any"}


async def get(place: Place, named: str) -> dict[str, Any]:
    """A cell by its id; it counts as read (A14)."""
    cell = await place.cell(named, "read")
    # Only what the agent may read is read by its id, so that nobody else's attempts keep a cell from decaying.
    answer = await place.tell("read", {"object_id": cell.object_id})
    now = cell_in(answer["envelope"])
    if now is None or not place.cells({"items": [{"projection": answer["envelope"]}]}):
        raise AccessDenied
    noted = (await place.usage([now])).get(now.object_id, _NONE)
    return shown(now, Usage(noted.reads + 1, wire(datetime.now(UTC))))


async def one(place: Place, cell: Cell) -> dict[str, Any]:
    """A cell as it is shown to who changed it; that is no read."""
    return shown(cell, (await place.usage([cell])).get(cell.object_id, _NONE))


async def listed(place: Place, query: Query) -> dict[str, Any]:
    """A page of the cells of a status (A17)."""
    limit, offset = bodies.page_of(query)
    owner, kind, status = bodies.owner_of(query), bodies.type_of(query), bodies.status_of(query)
    where = _narrowed(owner, None if kind is None else [kind])
    found: list[Cell] = []
    if status in _STATES:
        found = await _walked(place, place.query(where, _STATES[status]), offset + limit + 1)
    cells = found[offset : offset + limit]
    usage = await place.usage(cells)
    return {
        "results": [shown(cell, usage.get(cell.object_id, _NONE)) for cell in cells],
        "returned": len(cells),
        "has_more": len(found) > offset + limit,
        "offset": offset,
        "limit": limit,
    }


async def _walked(place: Place, asked: Mapping[str, Any], most: int) -> list[Cell]:
    """The first cells of a query, of one moment."""
    found: list[Cell] = []
    cursor: str | None = None
    while True:
        page: dict[str, Any] = {"limit": min(_PAGE, most), **({"cursor": cursor} if cursor else {})}
        answer = await place.tell("query", {**asked, "pagination": page})
        found += place.cells(answer)
        cursor = answer["next_cursor"]
        if cursor is None or len(found) >= most:
            return found


async def search(place: Place, body: Mapping[str, Any], space: str | None) -> dict[str, Any]:
    """The cells that a text means, best first: 0.7 similarity + 0.3 decay score (A18)."""
    limit, offset = body.get("limit", 10), body.get("offset", 0)
    statuses = list(_LIVE if body.get("status") is None else body["status"])
    if body.get("include_stale"):
        statuses.append("stale")
    where = _narrowed(body.get("owner_id"), body.get("types"))
    likest = await _likest(place, where, body["query"], set(statuses), space)
    usage = await place.usage([cell for cell, _ in likest])
    now = datetime.now(UTC)
    ranked = sorted(
        likest,
        key=lambda one: (-rank(one[1], decay_score(one[0], usage.get(one[0].object_id, _NONE), now)), one[0].cell_id),
    )
    cells = [cell for cell, _ in ranked[offset : offset + limit]]
    return {
        "results": [shown(cell, usage.get(cell.object_id, _NONE)) for cell in cells],
        "returned": len(cells),
        "has_more": len(ranked) > offset + limit,
        "offset": offset,
        "limit": limit,
        "query": body["query"],
    }


async def _likest(
    place: Place, where: Sequence[Mapping[str, Any]], text: str, statuses: set[str], space: str | None
) -> list[tuple[Cell, float]]:
    """Cells with how alike they are to the text, the likest first."""
    states = {
        "lifecycle_state": sorted(
            {one for name in statuses & _STATES.keys() for one in _STATES[name]["lifecycle_state"]}
        )
    }
    if not states["lifecycle_state"]:
        return []
    asked = place.query(where, {**_ANY, **states})
    modes = {"kind": "semantic"} if space else {"kind": "hybrid", "modes": ["lexical"]}
    asked["query"] |= {**modes, "text": text}
    if space:
        asked["embedding_space_id"] = space
    found: list[tuple[Cell, float]] = []
    cursor: str | None = None
    while len(found) < _MOST_RANKED:
        page: dict[str, Any] = {"limit": _RANKED, **({"cursor": cursor} if cursor else {})}
        answer = await place.tell("query", {**asked, "pagination": page})
        for item in answer["items"]:
            cells = place.cells({"items": [item]})
            if cells and cells[0].status in statuses:
                found.append((cells[0], float(item["semantic_score"] if space else item["score"])))
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    return found[:_MOST_RANKED]


def _narrowed(owner: str | None, types: Sequence[str] | None) -> list[dict[str, Any]]:
    where: list[dict[str, Any]] = []
    if owner is not None:
        where.append({"field": "content:/identity/owner_id", "op": "eq", "value": owner})
    if types is not None:
        where.append({"field": "content:/type", "op": "in", "value": list(types)})
    return where
