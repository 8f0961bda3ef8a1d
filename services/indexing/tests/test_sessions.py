"""Objects of one source session know their places in it, whatever is written to them later."""

from __future__ import annotations

import pytest

from pamspec_common.postgres import scoped
from pamspec_indexing.model import session_key
from services.indexing.tests.world import Garden
from services.write.tests.writer import PROVENANCE, Document

DOCS_SQL = "SELECT object_id, doc, session_key FROM index_.indexed_object WHERE scope_key = $1"
NEIGHBOURS_SQL = "SELECT doc, later, distance FROM index_.neighbours($1, $2, 2)"


async def turn(garden: Garden, source_ref: str | None) -> Document:
    """An observation from a place in a source."""
    source = {} if source_ref is None else {"source_ref": source_ref}
    return await garden.writer.create({"text": "said"}, provenance={**PROVENANCE, **source})


async def docs(garden: Garden) -> dict[str, int]:
    """The number of each object that is indexed under a session."""
    await garden.settled()
    async with scoped(garden.conn, [garden.key]):
        rows = await garden.conn.fetch(DOCS_SQL, garden.key)
    return {row["object_id"]: row["doc"] for row in rows if row["session_key"] is not None}


async def neighbours(garden: Garden, candidates: list[int]) -> set[tuple[int, int, int]]:
    """Pairs of the candidates that stand near one another in their session."""
    async with scoped(garden.conn, [garden.key]):
        rows = await garden.conn.fetch(NEIGHBOURS_SQL, garden.key, candidates)
    return {tuple(row) for row in rows}


async def test_neighbours_are_those_of_one_session_in_the_order_of_their_first_versions(garden: Garden) -> None:
    first = await turn(garden, "chat:7/session_3#turn-1")
    other = await turn(garden, "chat:7/session_4#turn-1")
    second = await turn(garden, "chat:7/session_3#turn-2")
    third = await turn(garden, "chat:7/session_3")
    far = await turn(garden, "chat:7/session_3#turn-4")
    again = {"canonical_content": "said better", "provenance": {**PROVENANCE, "source_ref": "chat:7/session_3"}}
    await garden.writer.ok("update", garden.writer.change(first, **again))
    known = await docs(garden)
    one, two, three, four = (known[each["object_id"]] for each in (first, second, third, far))
    everyone = [one, two, three, four, known[other["object_id"]]]
    assert await neighbours(garden, everyone) == {
        (one, two, 1), (one, three, 2), (two, three, 1), (two, four, 2), (three, four, 1),
    }  # fmt: skip
    assert await neighbours(garden, [one, three, four]) == {(one, three, 2), (three, four, 1)}
    assert await neighbours(garden, [one, four]) == set()


async def test_what_is_removed_leaves_its_session_and_its_place(garden: Garden) -> None:
    made = [await turn(garden, f"chat:9/session_1#{number}") for number in range(3)]
    before = await docs(garden)
    one, _, three = (before[each["object_id"]] for each in made)
    assert (one, three, 2) in await neighbours(garden, list(before.values()))
    await garden.writer.delete(made[1])
    assert set(await docs(garden)) == {made[0]["object_id"], made[2]["object_id"]}
    assert await neighbours(garden, list(before.values())) == {(one, three, 1)}


async def test_what_names_no_source_has_no_neighbours(garden: Garden) -> None:
    for _ in range(2):
        await turn(garden, None)
    assert await docs(garden) == {}


async def test_sessions_of_other_scopes_are_not_reached(garden: Garden) -> None:
    await turn(garden, "chat:7/session_3")
    known = await docs(garden)
    async with scoped(garden.conn, [garden.key + 1]):
        assert await garden.conn.fetch(NEIGHBOURS_SQL, garden.key, list(known.values())) == []


@pytest.mark.parametrize(
    ("private", "same"),
    [
        (b'{"provenance": {"source_ref": "chat:7/session_3#turn-9"}}', True),
        (b'{"provenance": {"source_ref": "chat:7/session_3"}, "actor": {}}', True),
        (b'{"provenance": {"source_ref": "chat:7/session_33"}}', False),
        (b'{"provenance": {"activity": "test"}}', None),
        (b"{}", None),
    ],
)
def test_a_session_is_the_source_without_its_fragment(private: bytes, same: bool | None) -> None:
    found = session_key(7, private)
    expected = session_key(7, b'{"provenance": {"source_ref": "chat:7/session_3#turn-1"}}')
    assert (None if found is None else found == expected) is same
    assert found is None or found != session_key(8, private)
