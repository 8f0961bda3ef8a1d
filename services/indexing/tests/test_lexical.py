"""The lexical index: what is found, in which order, and that nothing is found of what is gone."""

from __future__ import annotations

import pytest

from pamspec_common.analysis import sought
from pamspec_common.postgres import scoped
from services.indexing.tests.world import Garden
from services.write.tests.writer import PROVENANCE, Document

CANDIDATES_SQL = "SELECT object_id, score FROM index_.lexical_candidates($1, $2, $3, $4, $5, $6)"
COUNTS_SQL = """
SELECT (SELECT count(*) FROM index_.lexical_document WHERE scope_key = $1) AS documents,
       (SELECT count(*) FROM index_.lexical_posting WHERE scope_key = $1) AS postings,
       (SELECT count(*) FROM index_.lexical_term WHERE scope_key = $1) AS terms,
       (SELECT coalesce(sum(documents), 0) FROM index_.lexical_statistics WHERE scope_key = $1) AS counted"""
DRIFT_SQL = """
SELECT (SELECT count(*) FROM (
          SELECT term, count(*) AS documents FROM index_.lexical_posting WHERE scope_key = $1 GROUP BY term) p
        FULL JOIN (SELECT * FROM index_.lexical_term WHERE scope_key = $1) t USING (term)
        WHERE p.documents IS DISTINCT FROM t.documents) +
       (SELECT count(*) FROM (
          SELECT language, count(*) AS documents, sum(length) AS length FROM index_.lexical_document
          WHERE scope_key = $1 GROUP BY language) d
        FULL JOIN (SELECT * FROM index_.lexical_statistics WHERE scope_key = $1 AND documents > 0) s USING (language)
        WHERE d.documents IS DISTINCT FROM s.documents OR d.length IS DISTINCT FROM s.length)"""


async def search(garden: Garden, text: str, limit: int | None = 20) -> list[str]:
    """The objects that a query finds, the best first."""
    looked = sought(text)
    async with scoped(garden.conn, [garden.key]):
        rows = await garden.conn.fetch(
            CANDIDATES_SQL, garden.key, looked.terms, looked.words, looked.languages, looked.phrases, limit
        )
    return [row["object_id"] for row in rows]


async def counts(garden: Garden) -> dict[str, int]:
    """How many rows the scope has."""
    async with scoped(garden.conn, [garden.key]):
        assert await garden.conn.fetchval(DRIFT_SQL, garden.key) == 0, "statistics are those of the rows"
        row = await garden.conn.fetchrow(COUNTS_SQL, garden.key)
    assert row is not None
    return dict(row)


async def create(garden: Garden, content: object) -> Document:
    return await garden.writer.create(content)


async def test_the_rarer_word_weighs_more_and_stems_match(garden: Garden) -> None:
    common = [await create(garden, f"The depot opens at {hour}.") for hour in ("six", "seven", "eight")]
    rare = await create(garden, {"statement": "Opening hours of the greenhouse: see the depot."})
    await garden.settled()
    assert (await search(garden, "greenhouse depots"))[0] == rare["object_id"]
    assert set(await search(garden, "When do the depots open?")) == {one["object_id"] for one in (*common, rare)}
    assert await search(garden, "nothing of that") == []


AMONG_SQL = "SELECT doc, score FROM index_.lexical_candidates($1, $2, $3, $4, $5, NULL, among => $6)"


async def test_among_some_docs_scores_are_those_of_all(garden: Garden) -> None:
    """A filter narrows what is looked at, never what it is worth."""
    for hour in ("six", "seven", "eight"):
        await create(garden, f"The depot opens at {hour}; to be or not to be.")
    await create(garden, {"statement": "Opening hours of the greenhouse: see the depot."})
    await garden.settled()
    for text in ("greenhouse depots", "open six", '"depot opens"', '"to be or not to be"', "nothing of that"):
        looked = sought(text)
        asked = [garden.key, looked.terms, looked.words, looked.languages, looked.phrases]
        async with scoped(garden.conn, [garden.key]):
            whole = {row["doc"]: row["score"] for row in await garden.conn.fetch(AMONG_SQL, *asked, None)}
            for among in ([], [*whole][:1], [*whole][1:], [*whole, -1]):
                found = {row["doc"]: row["score"] for row in await garden.conn.fetch(AMONG_SQL, *asked, among)}
                assert found == {doc: whole[doc] for doc in among if doc in whole}, (text, among)


@pytest.mark.parametrize(
    ("content", "queries"),
    [
        ("Das Gewächshaus wurde von den Gärtnern nicht gegossen", ["Gärtner", "GEWÄCHSHAUS", "gewachshaus"]),
        ("Les jardiniers n'ont pas arrosé l'orangerie hier", ["orangerie", "jardinier", "arrosés"]),
        ("Рабочие не открыли новую теплицу вчера", ["теплица", "открыл"]),
        ("東京タワーの水道を直した", ["東京", "水道", "水", "東京タワー"]),
        ("서울에서 온실을 열었다", ["서울", "온실"]),
        ("See INC-2024-00017 in foo_bar.baz", ["INC-2024-00017", "00017", "inc-2024-00017", "foo_bar.baz", "baz"]),
        ("mail mira@example.org about HTTPServer2", ["mira@example.org", "mira", "httpserver2", "server"]),
        ("C:\\x\\y.py and foo/bar (((", ["C:\\x\\y.py", "foo/bar", "y.py"]),
        ("a\u0000b with NUL", ["NUL", "a\u0000b"]),
        ("To be or not to be", ['"to be or not to be"', "to be or not to be", 'what is "or not to"']),
        ({"list": [{"deep": "marigold"}, 7, None]}, ["marigold"]),
    ],
)
async def test_words_of_any_script_and_codes_are_found(garden: Garden, content: object, queries: list[str]) -> None:
    found = await create(garden, content)
    await create(garden, "Something else that is in nobody's question")
    await garden.settled()
    for query in queries:
        assert await search(garden, query) == [found["object_id"]], query


@pytest.mark.parametrize(
    "query", ["(((", "AND OR NOT", ":*", "&/!", '"', '""', "*", "%00", "\x00", " ", "'; DROP", "\ud800"]
)
async def test_a_query_is_taken_literally(garden: Garden, query: str) -> None:
    """M068, M016, M050: no operator, no error, and nothing but what is meant."""
    await create(garden, "The depot opens at six.")
    await garden.settled()
    assert await search(garden, query) == []


async def test_a_phrase_must_occur_as_it_stands(garden: Garden) -> None:
    right = await create(garden, "The red barn door is open")
    await create(garden, "The door of the red barn is open")
    await create(garden, "A barn with a red door")
    await garden.settled()
    assert await search(garden, '"red barn door"') == [right["object_id"]]
    assert await search(garden, '"the red barn door" "is open"') == [right["object_id"]]
    assert await search(garden, '"red barn gate"') == []
    for question in ('who saw that "red barn door"?', 'a door "barn door" barn red'):
        found = await search(garden, question)
        assert (found[0], len(found)) == (right["object_id"], 3), "in a question it counts, and loses nothing"
    assert len(await search(garden, "red barn door")) == 3


async def test_every_change_takes_effect(garden: Garden) -> None:
    """Update, states, redaction by paths and whole, restore, deletion: what is found is the current content alone."""
    writer = garden.writer
    made = await create(garden, {"a": "marigold", "b": "lavender"})
    other = await create(garden, "a sibling with lavender")
    await garden.settled()
    changed = await writer.update(made, {"a": "tulip", "b": "lavender"})
    await garden.settled()
    assert (await search(garden, "marigold"), await search(garden, "tulip")) == ([], [made["object_id"]])
    before = await counts(garden)
    move = {"dimension": "lifecycle", "target_state": "archived", "policy_basis": "test"}
    moved = await writer.ok("transition", writer.change(changed, **move))
    await garden.settled()
    assert await counts(garden) == before
    assert (await garden.objects())[0][1] in {moved["version_id"], other["version_id"]}
    cut = {"policy_basis": "test", "provenance": PROVENANCE}
    parted = await writer.ok("redact", writer.change(moved, redaction_target={"paths": ["/a"]}, **cut))
    await garden.settled()
    assert await search(garden, "tulip") == []
    assert set(await search(garden, "lavender")) == {made["object_id"], other["object_id"]}
    await writer.ok("delete", writer.change(parted, policy_basis="test"))
    await garden.settled()
    assert await search(garden, "lavender") == [other["object_id"]]
    assert (await counts(garden))["documents"] == 1
    await writer.delete(other)
    await garden.settled()
    assert await counts(garden) == {"documents": 0, "postings": 0, "terms": 0, "counted": 0}


async def test_a_long_text_is_indexed_and_a_longer_one_says_that_it_was_cut(garden: Garden) -> None:
    """M054: 200 KB are indexed; what is beyond the bound is not found, and nothing stands still."""
    long = await create(garden, "word " * 40_000 + "marigold")
    longer = await create(garden, "word " * 60_000 + "lavender")
    await garden.settled()
    assert await search(garden, "marigold") == [long["object_id"]]
    assert await search(garden, "lavender") == []
    assert set(await search(garden, "word " * 40_000)) == {long["object_id"], longer["object_id"]}
    async with scoped(garden.conn, [garden.key]):
        cut = await garden.conn.fetch("SELECT truncated FROM index_.lexical_document ORDER BY doc")
    assert [row["truncated"] for row in cut] == [False, True]


async def test_a_content_that_cannot_be_read_holds_nothing_up(garden: Garden) -> None:
    """It has no texts; its neighbours are found, and nothing is tried for ever."""
    await create(garden, "a sibling")
    broken = await create(garden, "to be damaged")
    await garden.settled()
    damage = "UPDATE core.version_private SET content = '{\"a\":' WHERE scope_key = $1 AND ledger_seq = $2"
    await garden.writer.admin.execute(damage, garden.key, broken["ledger_sequence"])
    await garden.take_again(broken["object_id"])
    assert await search(garden, "damaged") == []
    found = await create(garden, "marigold")
    await garden.settled()
    assert await search(garden, "marigold") == [found["object_id"]]


async def test_a_deleted_scope_is_cleared_away(garden: Garden) -> None:
    await create(garden, "marigold")
    await garden.settled()
    assert (await counts(garden))["documents"] == 1
    await garden.writer.ok("delete_scope", {"scope_id": garden.writer.scope, "policy_basis": "test"})
    await garden.until_cleared()
    assert await garden.objects() == []
    assert (await counts(garden))["documents"] == 0


async def test_a_scope_finds_nothing_of_another(garden: Garden) -> None:
    await create(garden, "marigold")
    await garden.settled()
    looked = sought("marigold")
    async with scoped(garden.conn, [garden.key + 1]):
        rows = await garden.conn.fetch(
            CANDIDATES_SQL, garden.key, looked.terms, looked.words, looked.languages, looked.phrases, None
        )
    assert rows == []


async def test_frequent_words_count_for_the_best_alone_and_the_order_stays(garden: Garden) -> None:
    """With a budget below the number of postings the best is the same as without."""
    for n in range(30):
        await create(garden, f"the plot {n} has soil" + (" and a fountain" if n % 10 == 0 else ""))
    await garden.settled()
    looked = sought("plot soil fountain 20")
    sql = CANDIDATES_SQL.replace("$6)", "$6, $7)")
    given = garden.key, looked.terms, looked.words, looked.languages, looked.phrases
    async with scoped(garden.conn, [garden.key]):
        exact = await garden.conn.fetch(sql, *given, 3, 40_000)
        bounded = await garden.conn.fetch(sql, *given, 3, 10)
    assert [row["object_id"] for row in bounded] == [row["object_id"] for row in exact]
    assert [round(row["score"], 9) for row in bounded] == [round(row["score"], 9) for row in exact]
