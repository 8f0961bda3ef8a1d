"""STRUCTURED-QUERY (18.7): stable order, pages and repeatability."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import Made, Trial

LIST = CaseList("STRUCTURED-QUERY")
case = LIST.case


async def _pages(t: Trial, limit: int, **members: Any) -> list[list[str]]:
    got: list[list[str]] = []
    cursor: str | None = None
    while len(got) < 100:
        page: dict[str, Any] = {"limit": limit, **({"cursor": cursor} if cursor else {})}
        answer = await t.ok("query", **{"query": {"kind": "structured"}, **members}, pagination=page)
        got.append([item["envelope"]["object_id"] for item in answer["items"]])
        cursor = answer["next_cursor"]
        if cursor is None:
            return got
    return got


async def _many(t: Trial, count: int) -> list[Made]:
    await t.scope()
    return list(await asyncio.gather(*(t.claim({"n": number, "half": number // 2}) for number in range(count))))


@case("P156", "P222", "P153")
async def equal_queries_have_equal_bytes(t: Trial) -> None:
    """The same query on the same state answers the same bytes, cursors included."""
    await _many(t, 12)
    for members in (
        {"query": {"kind": "structured"}},
        {"query": {"kind": "structured"}, "pagination": {"limit": 5}},
        {"query": {"kind": "structured"}, "ordering": {"by": [{"field": "committed_at"}]}, "pagination": {"limit": 3}},
        {"query": {"kind": "temporal", "temporal_basis": "recorded_at", "range": {"from": "2000-01-01T00:00:00Z"}}},
    ):
        bodies = {(await t.send("query", **members)).body for _ in range(3)}
        t.same(len(bodies), 1, "different answers to one query")


@case("P222", "P153")
async def pages_hold_each_item_once(t: Trial) -> None:
    """Pages of any size bring every item once, in the order of one large page."""
    due = {made["object_id"] for made in await _many(t, 7)}
    whole = await t.found(pagination={"limit": 1000})
    t.same(set(whole), due, "items of one page")
    for limit in (1, 2, 3, 7):
        pages = await _pages(t, limit)
        t.same([item for page in pages for item in page], whole, f"items of pages of {limit}")
        t.check(all(len(page) <= limit for page in pages), f"a page has more than {limit} items")


@case("P222", "P153")
async def orderings_are_kept_and_ties_broken(t: Trial) -> None:
    """Items come in the order asked for, both ways, and pages keep it."""
    made = await _many(t, 6)
    times = {one["object_id"]: one["envelope"]["committed_at"] for one in made}
    for direction in ("asc", "desc"):
        ordering = {"by": [{"field": "committed_at", "direction": direction}], "tie_break": ["object_id"]}
        whole = await t.found(ordering=ordering)
        found = [times[object_id] for object_id in whole]
        t.same(found, sorted(found, reverse=direction == "desc"), f"times in order {direction}")
        pages = await _pages(t, 2, ordering=ordering)
        t.same([item for page in pages for item in page], whole, f"pages in order {direction}")


@case("P222", "P164", "P153")
async def pages_stand_still_while_writers_write(t: Trial) -> None:
    """Objects that are made, changed and archived between two pages neither shift items nor repeat them."""
    made = await _many(t, 9)
    whole = await t.found(pagination={"limit": 1000})
    answer = await t.ok("query", query={"kind": "structured"}, pagination={"limit": 3})
    got = [item["envelope"]["object_id"] for item in answer["items"]]
    by_id: Mapping[str, Made] = {one["object_id"]: one for one in made}
    while answer["next_cursor"] is not None and len(got) < 50:
        await t.claim({"new": True})
        await t.update(by_id[got[-1]], {"changed": True})
        following = [one for one in whole if one not in got]
        if following:
            by_id[following[-1]] = await t.update(by_id[following[-1]], {"changed": True})  # type: ignore[index]
        page = {"limit": 3, "cursor": answer["next_cursor"]}
        answer = await t.ok("query", query={"kind": "structured"}, pagination=page)
        got += [item["envelope"]["object_id"] for item in answer["items"]]
    t.same(got, whole, "items over pages")


@case("P222", "P168")
async def a_cursor_belongs_to_its_query(t: Trial) -> None:
    """A cursor of another query, of another scope, or that was edited is invalid_request."""
    await _many(t, 4)
    answer = await t.ok("query", query={"kind": "structured"}, pagination={"limit": 2})
    cursor = answer["next_cursor"]
    t.check(isinstance(cursor, str), "there is no cursor")
    page = {"limit": 2, "cursor": cursor}
    await t.refused("invalid_request", "query", query={"kind": "structured", "trust": "all"}, pagination=page)
    elsewhere = await t.new_scope()
    await t.refused("invalid_request", "query", scope_id=elsewhere, query={"kind": "structured"}, pagination=page)
    turned = cursor[:-4] + ("AAAA" if cursor[-4:] != "AAAA" else "BBBB")
    edited = {"limit": 2, "cursor": turned}
    await t.refused("invalid_request", "query", query={"kind": "structured"}, pagination=edited)


@case("P164", "P163")
async def answers_name_their_position(t: Trial) -> None:
    """A query right after a write is of a state that has it, and a floor that is not reached is never answered."""
    made = await t.claim()
    sequence = made["ledger_sequence"]
    t.same(await t.found(min_sequence=sequence), [made["object_id"]], "found at the floor")
    await t.refused("service_unavailable", "query", query={"kind": "structured"}, min_sequence=sequence + 5)


@case("P222", "P164")
async def queries_at_a_snapshot_repeat(t: Trial) -> None:
    """A query bound to a sealed snapshot answers the same bytes after later writes."""
    made = await _many(t, 5)
    sealed = await t.seal()
    asked: dict[str, Any] = {
        "query": {"kind": "structured"},
        "snapshot_id": sealed["snapshot_id"],
        "pagination": {"limit": 1000},
    }
    first = await t.send("query", **asked)
    t.check(first.refusal is None, "the query at the snapshot is refused")
    t.same(len(first.document["items"]), 5, "items")
    await t.update(made[0], {"changed": True})
    await t.claim({"new": True})
    t.same((await t.send("query", **asked)).body, first.body, "the answer after later writes")
    await t.refused("snapshot_not_found", "query", query={"kind": "structured"}, snapshot_id="snap:none")
