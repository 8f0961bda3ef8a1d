"""RELATIONSHIP (18.9), traversal: every step is decided, and every walk ends."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from pamspec_conformance.case import CaseList
from pamspec_conformance.cases.relationship import edge
from pamspec_conformance.trial import Made, Trial

LIST = CaseList("RELATIONSHIP")
case = LIST.case


async def _reached(t: Trial, start: Made, depth: int, **members: Any) -> set[str]:
    traverse = {"from": [start["object_id"]], "depth": depth, **members}
    query = {"kind": "structured", "trust": "working", "filters": {"object_type": ["claim"]}}
    answer = await t.ok("query", query=query, traverse=traverse)
    return {item["envelope"].get("object_id") for item in answer["items"]} - {start["object_id"]}


async def _chain(t: Trial, length: int) -> list[Made]:
    made = [await t.claim({"n": number}) for number in range(length)]
    for source, target in pairwise(made):
        await t.ok("relate", **edge(source, target))
    return made


@case("P224", "P151", "P120")
async def walks_to_its_depth_and_direction(t: Trial) -> None:
    """A traversal reaches what lies within its depth, along its direction and labels."""
    a, b, c, d = await _chain(t, 4)
    t.same(await _reached(t, a, 1), {b["object_id"]}, "within one step")
    t.same(await _reached(t, a, 2), {b["object_id"], c["object_id"]}, "within two steps")
    t.same(await _reached(t, d, 1, direction="incoming"), {c["object_id"]}, "against the direction")
    t.same(await _reached(t, a, 3, relationship_types=["contradicts"]), set(), "along another label")


@case("P224", "P151")
async def cycles_end(t: Trial) -> None:
    """Relationships may form a cycle; a traversal of it ends and answers each object once."""
    made = await _chain(t, 3)
    await t.ok("relate", **edge(made[2], made[0]))
    t.same(await _reached(t, made[0], 8), {made[1]["object_id"], made[2]["object_id"]}, "reached")


@case("P224", "P183", "P76")
async def hidden_objects_are_no_way_through(t: Trial) -> None:
    """What is deleted is neither answered nor a step to what lies behind it."""
    a, b, _ = await _chain(t, 3)
    await t.delete(b)
    t.same(await _reached(t, a, 3), set(), "reached through a deleted object")


@case("P224", "P120")
async def depths_are_bounded(t: Trial) -> None:
    """A traversal without a depth limit that the service knows is invalid_request, never endless."""
    a, *_ = await _chain(t, 2)
    query = {"kind": "structured", "trust": "working"}
    for depth in (0, 1000):
        traverse = {"from": [a["object_id"]], "depth": depth}
        await t.refused("invalid_request", "query", query=query, traverse=traverse)


@case("P123", "P147")
async def filters_by_relationship_type(t: Trial) -> None:
    """A filter on relationship_type answers the relationships of that label."""
    a, b, c = [await t.claim({"n": number}) for number in range(3)]
    wanted = await t.ok("relate", **edge(a, b, "contradicts", validation_state="corroborated"))
    await t.ok("relate", **edge(a, c, "supports", validation_state="corroborated"))
    answer = await t.ok("query", query={"kind": "structured", "filters": {"relationship_type": ["contradicts"]}})
    found = [item["envelope"].get("relationship_id") for item in answer["items"]]
    t.same(found, [wanted["relationship_id"]], "found by label")
