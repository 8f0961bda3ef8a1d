"""assemble: contexts of what a query finds, on real rows."""

from __future__ import annotations

from typing import Any

import orjson

from services.query.tests.asking import SCOPE, eq
from services.query.tests.door import Conn, Door
from services.query.tests.indexed import LEXICAL, index, lexical, near, vectors
from services.query.tests.seeds import Scope
from services.query.tests.test_snapshots import seal
from services.query.tests.test_traverse import join

WORKING = {"kind": "structured", "trust": "working"}


async def context(door: Door, query: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = await door.ok("assemble", scope_id=SCOPE, query={**WORKING, **(query or {})}, **more)
    return found


def shown(found: dict[str, Any]) -> list[str]:
    return [block["object_id"].partition(":")[2] for block in found["instructions"] + found["evidence"]]


async def test_a_context_is_what_the_query_finds(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:a", "Bed 4 drains too slowly.")
    scope.put("obj:b", {"bed": 4, "drains": "well", "price": 1.50})
    scope.put("obj:gone", "secret", availability_state="deleted")
    scope.put("obj:no", "wrong", validation_state="rejected")
    await scope.flush(seeding)
    found = await context(door)
    assert shown(found) == ["b", "a"]
    assert found["evidence"][0]["text"] == '{"bed":4,"drains":"well","price":1.5}'
    assert found["evidence"][1]["text"] == "Bed 4 drains too slowly."
    assert found["text"].count("\n> ") == 2
    everything = await context(door, {"trust": "all"})
    assert "gone" not in shown(everything), "a tombstone is no content"
    nothing = await door.ok("assemble", scope_id=SCOPE, query={"kind": "structured", "where": eq("object_id", "obj:-")})
    assert (nothing["text"], nothing["evidence"]) == ("", [])


async def test_a_ranked_query_makes_a_context_best_first(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:a", {"text": "Nothing about weather."})
    scope.put("obj:b", {"text": "The depot opens at six."})
    scope.put("obj:c", {"text": "Rain, rain and more rain on the depot."})
    await scope.flush(seeding)
    await index(seeding, scope)
    found = await door.ok("assemble", scope_id=SCOPE, query=lexical("rain depot"))
    assert shown(found) == ["c", "b"]
    assert [block["score"] for block in found["evidence"]] == [1.0, 0.0]
    assert found["index"]["index_id"] == LEXICAL
    nothing = await door.ok("assemble", scope_id=SCOPE, query=lexical("snow"))
    assert (nothing["text"], nothing["budget"]["used_tokens"]) == ("", 0)


async def test_what_only_a_vector_found_has_to_be_alike(seeding: Conn, door: Door) -> None:
    """Where nothing fits the context is empty; words vouch for what they find, and nothing is left out unasked."""
    scope = Scope(SCOPE)
    for name, text in (("near", "alpha"), ("far", "beta"), ("worded", "rain")):
        scope.put(f"obj:{name}", {"text": text})
    await scope.flush(seeding)
    await index(seeding, scope)
    space = await vectors(seeding, scope, {"near": [1, 0.1, 0], "far": [0, 1, 0], "worded": [0, 0, 1]})
    both = {"kind": "hybrid", "text": "rain", "vector": [1, 0, 0]}
    asked = {"scope_id": SCOPE, "embedding_space_id": space}
    everything = await door.ok("assemble", query=both, **asked)
    assert sorted(shown(everything)) == ["far", "near", "worded"]
    assert "unrelated" not in everything["omitted"]
    found = await door.ok("assemble", query=both, min_semantic_score=0.5, **asked)
    assert sorted(shown(found)) == ["near", "worded"]
    assert found["omitted"]["unrelated"] == 1
    nothing = await door.ok("assemble", query=near([1, 1, 1]), min_semantic_score=0.9, **asked)
    assert (nothing["text"], nothing["omitted"]["unrelated"]) == ("", 3)
    everything = await door.ok("assemble", query=near([1, 1, 1]), min_semantic_score=-1, **asked)
    assert everything["omitted"]["unrelated"] == 0


async def test_a_lowest_score_belongs_to_a_space(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:a", {"text": "rain"})
    await scope.flush(seeding)
    await index(seeding, scope)
    for query in (lexical("rain"), WORKING):
        error = await door.refused("assemble", scope_id=SCOPE, query=query, min_semantic_score=0.5)
        assert (error["code"], error["details"]["field"]) == ("invalid_request", "min_semantic_score")


async def test_a_floor_holds_for_a_context_too(seeding: Conn, door: Door) -> None:
    """K2: below the floor nothing is assembled."""
    scope = Scope(SCOPE)
    scope.put("obj:a", {"text": "rain"})
    await scope.flush(seeding)
    await index(seeding, scope)
    scope.put("obj:b", {"text": "rain"})
    await scope.flush(seeding)
    error = await door.refused("assemble", scope_id=SCOPE, query=lexical("rain"), min_sequence=2)
    assert (error["code"], error["details"]["reason"]) == ("service_unavailable", "index_lag")


async def test_relationships_settle_what_is_shown(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for name in ("old", "new", "yes", "no", "away"):
        scope.put(f"obj:{name}", name, object_type="claim" if name != "away" else "note")
    join(scope, "new", "old", "supersedes")
    join(scope, "yes", "no", "contradicts")
    join(scope, "away", "yes", "contradicts", validation_state="unverified")
    join(scope, "no", "yes", "supports")
    await scope.flush(seeding)
    found = await context(door, {"filters": {"object_type": ["claim"]}})
    assert sorted(shown(found)) == ["new", "no", "yes"]
    assert found["omitted"]["superseded"] == 1
    ends = {one["relationship_id"]: [end.get("label") for end in one["between"]] for one in found["conflicts"]}
    assert set(ends) == {"rel:yes-no", "rel:away-yes"}
    assert None in ends["rel:away-yes"]
    only_old = await context(door, {"where": eq("object_id", "obj:old")})
    assert only_old["evidence"][0]["superseded_by"] == ["obj:new"]


async def test_relationships_that_are_over_settle_nothing(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for name in ("a", "b", "c", "d"):
        scope.put(f"obj:{name}", name)
    join(scope, "a", "b", "supersedes", lifecycle_state="archived")
    join(scope, "c", "d", "contradicts", validation_state="rejected")
    await scope.flush(seeding)
    found = await context(door)
    assert sorted(shown(found)) == ["a", "b", "c", "d"]
    assert found["conflicts"] == []


async def test_a_snapshot_settles_by_its_own_relationships(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:old", "old")
    scope.put("obj:new", "new")
    snapshot = await seal(seeding, scope)
    join(scope, "new", "old", "supersedes")
    await scope.flush(seeding)
    assert sorted(shown(await context(door, snapshot_id=snapshot))) == ["new", "old"]
    assert shown(await context(door)) == ["new"]


async def test_equal_contexts_have_equal_bytes_and_a_position(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for number in range(30):
        scope.put(f"obj:{number}", f"memory {number % 7}")
    await scope.flush(seeding)
    document = orjson.dumps({"scope_id": SCOPE, "query": WORKING, "budget": {"max_items": 5}})
    first, again = await door.raw("assemble", document), await door.raw("assemble", document)
    assert first.body == again.body
    assert first.headers["Pamspec-As-Of-Sequence"] == str(scope.last_seq)
    found = orjson.loads(first.body)
    assert len(found["evidence"]) == 5


async def test_relationships_are_no_content(door: Door, seeding: Conn) -> None:
    scope = Scope(SCOPE)
    scope.put("obj:a", "a")
    await scope.flush(seeding)
    error = await door.refused(
        "assemble", scope_id=SCOPE, query={"kind": "structured", "filters": {"relationship_type": ["supports"]}}
    )
    assert error["code"] == "invalid_request"
    assert error["details"]["field"] == "query.filters.relationship_type"
