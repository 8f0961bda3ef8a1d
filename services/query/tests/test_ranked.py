"""Ranked queries at the door: filters and rights before ranks, current versions alone, stable pages, disclosure."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from pamspec_cli.servers.databases import Database
from pamspec_query.model.ranking import MAX_RANKED, PARAMETERS
from services.query.tests.asking import SCOPE, eq, flat, item_name, names, walk
from services.query.tests.door import Conn, Door, limited
from services.query.tests.indexed import LEXICAL, index, lexical
from services.query.tests.seeds import Scope


async def test_what_is_most_like_it_comes_first(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:a", {"text": "The depot opens at six."})
    scope.put("obj:b", {"text": "Rain on the roof of the depot, and rain again."})
    scope.put("obj:c", {"text": "Nothing about weather."})
    scope.put("obj:d", {"text": "Rain."})
    await scope.flush(seeding)
    await index(seeding, scope)
    assert set(await names(door, lexical("raining"))) == {"b", "d"}
    assert (await names(door, lexical("rain depot")))[0] == "b"
    assert await names(door, lexical("snow")) == []


async def test_the_answer_says_what_it_was_read_from(seeding: Conn, door: Door) -> None:
    """P148, P149, K3: index, watermark, filters, tie-break, and that no stable index state has a name."""
    scope = Scope(SCOPE)
    scope.put("obj:a", {"text": "rain"}, object_type="claim")
    await scope.flush(seeding)
    await index(seeding, scope)
    scope.put("obj:b", {"text": "rain"}, object_type="claim")
    await scope.flush(seeding)
    where = {"field": "content:/text", "op": "exists", "value": True}
    answer = await door(
        "query",
        scope_id=SCOPE,
        query=lexical("rain", filters={"object_type": ["claim"]}, where=where),
        explain_ranking=True,
        count="bounded",
    )
    found = orjson.loads(answer.body)
    assert [item_name(item) for item in found["items"]] == ["a"], "what is not indexed yet is not found"
    assert answer.headers["Pamspec-As-Of-Sequence"] == "2"
    said = found["index"]
    assert (said["watermark"], said["index_id"], said["embedding_space_id"]) == (1, LEXICAL, None)
    assert (said["index_snapshot_id"], said["approximate"], said["text_clamped"]) == (None, False, False)
    assert said["tie_break"] == ["score", "ledger_sequence"]
    assert said["filters_applied"] == {
        "lifecycle_state": ["active"],
        "availability_state": ["available"],
        "retention_state": ["retained"],
        "validation_state": ["corroborated"],
        "object_type": ["claim"],
        "where": ["content:/text"],
    }
    told = found["items"][0]["explanation"]
    assert told["lists"]["lexical"]["rank"] == 1
    assert told["fused"] == 1.0
    assert found["items"][0]["score"] == 1.0
    assert found["count"] == {"exact": True, "value": 1}


async def test_only_current_versions_are_found(seeding: Conn, door: Door) -> None:
    """A candidate whose head moved on, or was erased, is no item and counts for nothing (P25, M036)."""
    scope = Scope(SCOPE)
    for name in ("moved", "deleted", "redacted", "kept"):
        scope.put(f"obj:{name}", {"text": "zebra rain"})
    await scope.flush(seeding)
    await index(seeding, scope)
    scope.put("obj:moved", {"text": "nothing of it"})
    scope.put("obj:deleted", availability_state="deleted")
    scope.put("obj:redacted", {}, availability_state="redacted")
    await scope.flush(seeding)
    for trust in ("trusted", "working", "all"):
        found = await door.ok("query", scope_id=SCOPE, query=lexical("zebra", trust=trust), count="bounded")
        assert [item_name(item) for item in found["items"]] == ["kept"], trust
        assert found["count"]["value"] == 1
    await index(seeding, scope)
    assert await names(door, lexical("zebra", trust="all")) == ["kept"]
    assert await names(door, lexical("nothing")) == ["moved"]


async def test_filters_come_before_ranks(seeding: Conn, door: Door) -> None:
    """A filter that keeps 1 % still finds all that it keeps, however low they stand, and counts nothing else."""
    scope = Scope(SCOPE)
    many = 100 * 12
    for number in range(many):
        rare = number % 100 == 0
        scope.put(f"obj:{number}", {"text": "rain" if rare else "rain rain rain", "n": number, "rare": rare})
    await scope.flush(seeding)
    await index(seeding, scope)
    kept = {str(number) for number in range(0, many, 100)}
    one_of = {"field": "content:/n", "op": "in", "value": [*range(0, many, 100)]}
    for where in (eq("content:/rare", True), one_of):
        found = await door.ok("query", scope_id=SCOPE, query=lexical("rain", where=where), count="bounded")
        assert {item_name(item) for item in found["items"]} == kept
        assert found["count"] == {"exact": True, "value": len(kept)}
        assert found["index"]["lists"][0]["complete"] is True
    whole = await door.ok("query", scope_id=SCOPE, query=lexical("rain"), count="bounded")
    assert whole["index"]["lists"][0]["complete"] is False
    assert whole["count"] == {"exact": False, "value": PARAMETERS.depth}


async def test_a_filter_that_keeps_a_fifth_ranks_as_an_exact_query_does(seeding: Conn, door: Door) -> None:
    """The index is asked for more, as many as should do; the best of what is kept are the same."""
    scope = Scope(SCOPE)
    for number in range(1_500):
        scope.put(f"obj:{number}", {"text": "rain " * (1 + number % 7), "fifth": number % 5 == 0})
    await scope.flush(seeding)
    await index(seeding, scope)
    query = lexical("rain", where=eq("content:/fifth", True))
    pages = [
        await door.ok("query", scope_id=SCOPE, query=query, exact=exact, count="bounded", pagination={"limit": 100})
        for exact in (False, True)
    ]
    assert flat(pages[:1]) == flat(pages[1:])
    assert [page["count"]["value"] for page in pages] == [PARAMETERS.depth] * 2
    assert all(page["index"]["lists"][0]["complete"] is False for page in pages)


async def test_rights_come_before_ranks(seeding: Conn, door: Door) -> None:
    """What a grant does not name leaves no trace: no item, no count, no other score (P122, P150)."""
    scope = Scope(SCOPE)
    for number in range(30):
        scope.put(f"obj:{number}", {"text": "rain " * (1 + number % 3)}, object_type="claim" if number % 2 else "task")
    await scope.flush(seeding)
    await index(seeding, scope)
    query = lexical("rain", filters={"object_type": ["claim"]})
    narrowed = await door.ok("query", scope_id=SCOPE, query=query, count="bounded")
    assert narrowed["count"] == {"exact": True, "value": 15}
    stranger = door.as_("agent:stranger", tenant_id="tenant:other")
    refused = await stranger.refused("query", scope_id=SCOPE, query=query)
    unknown = await stranger.refused("query", scope_id="workspace:none", query=query)
    assert (
        (refused["code"], refused["message"])
        == (unknown["code"], unknown["message"])
        == ("scope_not_found", refused["message"])
    )


async def test_another_scope_adds_nothing(seeding: Conn, door: Door) -> None:
    scope, other = Scope(SCOPE), Scope("workspace:b")
    for one in (scope, other):
        one.put("obj:x", {"text": "rain"})
        await one.flush(seeding)
        await index(seeding, one)
    other.put("obj:only", {"text": "rain zebra"})
    await other.flush(seeding)
    await index(seeding, other)
    assert await names(door, lexical("zebra")) == []
    assert await names(door, lexical("rain")) == ["x"]


@pytest.mark.parametrize("explain", [False, True])
async def test_pages_stand_still_while_writers_write(seeding: Conn, door: Door, explain: bool) -> None:
    """M060, M061, P153: each once, in one order, whatever is written, indexed or erased meanwhile."""
    scope = Scope(SCOPE)
    for number in range(60):
        scope.put(f"obj:{number}", {"text": "rain " * (1 + number % 5)})
    await scope.flush(seeding)
    await index(seeding, scope)
    call: dict[str, Any] = {"query": lexical("rain"), "explain_ranking": explain}
    whole = flat(await walk(door, 100, **call))
    assert len(whole) == 60
    for limit in (1, 7, 59, 60):
        assert flat(await walk(door, limit, **call)) == whole
    first = await door.ok("query", scope_id=SCOPE, pagination={"limit": 20}, **call)
    for number in range(60, 90):
        scope.put(f"obj:{number}", {"text": "rain " * 9})
    scope.put(f"obj:{whole[25]}", {"text": "sun"})
    scope.put(f"obj:{whole[30]}", availability_state="deleted")
    await scope.flush(seeding)
    await index(seeding, scope)
    second = await door.ok("query", scope_id=SCOPE, pagination={"limit": 100, "cursor": first["next_cursor"]}, **call)
    found = [item_name(item) for item in [*first["items"], *second["items"]]]
    assert found == [name for name in whole if name != whole[30]], "an erased one is left out, an updated one as it was"
    assert second["index"] == first["index"]
    assert all("explanation" in item for item in second["items"]) is explain


async def test_a_cursor_fits_and_belongs_to_its_query(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for number in range(MAX_RANKED + 50):
        scope.put(f"obj:{number}", {"text": f"rain {'x' * (number % 7)}", "n": number})
    await scope.flush(seeding)
    await index(seeding, scope)
    for explain in (False, True):
        call: dict[str, Any] = {"scope_id": SCOPE, "query": lexical("rain"), "explain_ranking": explain}
        found = await door.ok("query", pagination={"limit": 1}, **call)
        assert len(found["next_cursor"]) < 16_384
        other = {**call, "query": lexical("rains")}
        wrong = await door.refused("query", pagination={"limit": 1, "cursor": found["next_cursor"]}, **other)
        assert wrong["code"] == "invalid_request"
    plain = {"scope_id": SCOPE, "query": {"kind": "structured"}}
    assert (await door.refused("query", pagination={"limit": 1, "cursor": found["next_cursor"]}, **plain))["code"] == (
        "invalid_request"
    )


async def test_a_cursor_does_not_grow_with_its_request(seeding: Conn, door: Door) -> None:
    """Filters as long as a request may hold: pages go on and say the same, and nobody waits for them."""
    scope = Scope(SCOPE)
    for number in range(5):
        scope.put(f"obj:{number}", {"text": "rain"}, object_type="claim")
    await scope.flush(seeding)
    await index(seeding, scope)
    chance = random.Random(7)
    types = ["claim", *(f"org.example.{chance.getrandbits(512):x}" for _ in range(999))]
    call: dict[str, Any] = {"query": lexical("rain", filters={"object_type": types}), "explain_ranking": True}
    seen: list[tuple[str, Any]] = []
    cursor: dict[str, str] = {}
    for _ in range(5):
        found = await door.ok("query", scope_id=SCOPE, pagination={"limit": 1, **cursor}, **call)
        assert found["index"]["filters_applied"]["object_type"] == sorted(types)
        seen.append((item_name(found["items"][0]), found["index"]))
        if found["next_cursor"] is not None:
            assert len(found["next_cursor"]) < 1000
            cursor = {"cursor": found["next_cursor"]}
    assert {name for name, _ in seen} == {str(number) for number in range(5)}
    assert all(said == seen[0][1] for _, said in seen)


async def test_neighbours_of_a_session_give_context(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for name in ("lone", "said", "next"):
        scope.put(f"obj:{name}", {"text": "rain"})
    await scope.flush(seeding)
    await index(seeding, scope, said=7, next=7)
    found = await door.ok("query", scope_id=SCOPE, query=lexical("rain"), explain_ranking=True)
    assert [item_name(item) for item in found["items"]] == ["next", "said", "lone"]
    context = {item_name(item): item["explanation"]["context"] for item in found["items"]}
    assert context["lone"] == 0
    assert context["said"] > 0


async def test_signals_of_a_profile(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:good", {"text": "rain"}, private={"quality_signals": {"assessed_confidence": 1}})
    scope.put("obj:bad", {"text": "rain"}, private={"quality_signals": {"contradiction_score": 1}})
    scope.put("obj:plain", {"text": "rain"})
    await scope.flush(seeding)
    await index(seeding, scope)
    found = await door.ok(
        "query", scope_id=SCOPE, query=lexical("rain"), ordering={"profile": "quality"}, explain_ranking=True
    )
    assert [item_name(item) for item in found["items"]] == ["good", "plain", "bad"]
    assert found["items"][0]["explanation"]["signals"]["quality"]["value"] == 1.0
    assert found["index"]["ordering_profile"] == "quality"
    tied = {"tie_break": ["semantic_score", "object_id"]}
    assert await names(door, lexical("rain"), ordering=tied) == ["bad", "good", "plain"]


async def test_relationships_are_found_by_their_words(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:source", {"text": "roof"})
    scope.put("obj:target", {"text": "sky"})
    scope.put("rel:1", {"why": "rain falls"}, kind="r", object_type="falls_on")
    await scope.flush(seeding)
    await index(seeding, scope)
    assert await names(door, lexical("rain")) == [], "objects alone, unless relationships are asked for"
    assert await names(door, lexical("rain", filters={"relationship_type": ["falls_on"]})) == ["1"]


async def test_what_a_traversal_reaches(seeding: Conn, door: Door) -> None:
    """P151: without the mode graph it narrows; with it, it is one more list."""
    scope = Scope(SCOPE)
    for name in ("source", "target", "far"):
        scope.put(f"obj:{name}", {"text": "rain"})
    scope.put("rel:1", {"why": "x"}, kind="r", object_type="near")
    await scope.flush(seeding)
    await index(seeding, scope)
    traverse = {"from": ["obj:source"]}
    assert await names(door, lexical("rain"), traverse=traverse) == ["target"]
    both = {"kind": "hybrid", "text": "rain", "modes": ["lexical", "graph"]}
    found = await door.ok("query", scope_id=SCOPE, query=both, traverse=traverse, explain_ranking=True)
    assert [item_name(item) for item in found["items"]] == ["target", "far", "source"]
    assert found["items"][0]["explanation"]["lists"]["graph"]["rank"] == 1
    assert [one["mode"] for one in found["index"]["lists"]] == ["graph", "lexical"]


async def test_a_page_ends_at_its_weight(seeding: Conn, door: Door, database: Database) -> None:
    """M099."""
    scope = Scope(SCOPE)
    for number in range(20):
        scope.put(f"obj:{number}", {"text": "rain", "pad": "x" * 1000})
    await scope.flush(seeding)
    await index(seeding, scope)
    async with limited(database, door.principal, page_bytes=5000) as small:
        pages = await walk(small, 100, query=lexical("rain"))
        assert 4 <= len(pages) <= 20
        assert sorted(flat(pages)) == sorted(map(str, range(20)))
        projected = await small.ok("query", scope_id=SCOPE, query=lexical("rain"), fields=["object_id"])
        assert len(projected["items"]) > len(pages[0])
        assert set(projected["items"][0]) == {"projection", "score"}


async def test_unknown_spaces_and_missing_embedders(seeding: Conn, door: Door) -> None:
    """S25."""
    scope = Scope(SCOPE)
    scope.put("obj:x", {"text": "rain"})
    await scope.flush(seeding)
    asked: list[dict[str, Any]] = [
        {"kind": "semantic", "text": "x"},
        {"kind": "semantic", "vector": [1.0]},
        {"kind": "hybrid", "text": "x"},
    ]
    for query in asked:
        error = await door.refused("query", scope_id=SCOPE, query=query, embedding_space_id="space:none")
        assert error["code"] == "embedding_space_mismatch"
