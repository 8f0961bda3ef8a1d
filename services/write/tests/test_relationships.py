"""Relate: relationships have versions of their own, join what is there, and are active once (P71-P78, P118-P119)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from pamspec_common.calls import HEADER_REPLAYED
from services.write.tests.writer import AUDITOR, OTHER, PROVENANCE, Document, Writer, claim, edge, move


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


async def test_a_relationship_has_an_envelope_and_an_event_of_its_own(writer: Writer) -> None:
    claim_, artifact = await writer.create("c"), await writer.create("a")
    made = await writer.relate(
        claim_,
        artifact,
        relationship_id="rel:1",
        canonical_content={"weight": 1.50},
        validation_state="corroborated",
        valid_from="2026-01-01T01:00:00+01:00",
        integrity={"digest": "d"},
        policy_basis="review",
    )
    assert {"relationship_id", "envelope", "event_id"} <= made.keys()
    assert "object_id" not in made
    envelope = made["envelope"]
    assert set(envelope) == {
        "spec_version", "relationship_id", "version_id", "scope_id", "relationship_type", "source_object_id",
        "target_object_id", "directionality", "canonical_content", "lifecycle_state", "availability_state",
        "retention_state", "validation_state", "valid_from", "committed_at", "recorded_at", "sequence", "actor",
        "provenance", "integrity", "policy_basis",
    }  # fmt: skip
    assert (envelope["relationship_type"], envelope["directionality"]) == ("supports", "directed")
    assert envelope["source_object_id"] == claim_["object_id"]
    assert envelope["target_object_id"] == artifact["object_id"]
    assert (envelope["valid_from"], envelope["policy_basis"]) == ("2026-01-01T00:00:00.000000Z", "review")
    assert (envelope["lifecycle_state"], envelope["validation_state"]) == ("active", "corroborated")
    event = (await writer.ledger())[-1].event
    assert (event["event_type"], event["relationship_id"]) == ("relationship_created", "rel:1")
    assert "object_id" not in event
    assert event["payload"]["relationship_type"] == "supports"
    assert event["payload"]["target_object_id"] == artifact["object_id"]
    assert event["payload"]["created"] is True
    await writer.check_scope()


async def test_what_is_left_out_has_its_default(writer: Writer) -> None:
    made = await writer.relate(await writer.create(), await writer.create())
    envelope = made["envelope"]
    assert made["relationship_id"].startswith("rel:")
    assert envelope["canonical_content"] is None
    names = ("lifecycle_state", "availability_state", "retention_state", "validation_state")
    assert [envelope[name] for name in names] == ["active", "available", "retained", "unverified"]
    assert "policy_basis" not in envelope


async def test_a_change_makes_a_version_of_the_relationship_alone(writer: Writer) -> None:
    ends = await writer.create("c"), await writer.create("a")
    made = await writer.relate(*ends, canonical_content=1, valid_from="2026-01-01T00:00:00Z")
    before = await writer.count("core.version")
    changed = await writer.ok(
        "relate",
        writer.change(
            made, canonical_content=2, directionality="bidirectional", policy_basis="seen", provenance=PROVENANCE
        ),
    )
    assert (changed["relationship_id"], changed["sequence"]) == (made["relationship_id"], 2)
    assert changed["envelope"]["canonical_content"] == 2
    assert changed["envelope"]["directionality"] == "bidirectional"
    assert changed["envelope"]["valid_from"] == made["envelope"]["valid_from"]
    again = await writer.ok("relate", writer.change(changed, provenance={"activity": "reviewed"}))
    assert (again["envelope"]["canonical_content"], again["envelope"]["policy_basis"]) == (2, "seen")
    assert again["envelope"]["provenance"]["activity"] == "reviewed"
    assert await writer.count("core.version") == before + 2
    assert [entry.event["event_type"] for entry in await writer.ledger()][-2:] == ["relationship_updated"] * 2
    rows = await writer.admin.fetch(
        "SELECT directionality, source_object_id, target_object_id, target_scope_id, object_type "
        "FROM core.version_span WHERE object_id = $1 ORDER BY version_seq",
        made["relationship_id"],
    )
    assert [row["directionality"] for row in rows] == ["directed", "bidirectional", "bidirectional"]
    joined = (ends[0]["object_id"], ends[1]["object_id"], None, "supports")
    assert {tuple(row)[1:] for row in rows} == {joined}
    await writer.check_scope()


async def test_a_change_keeps_what_is_joined(writer: Writer) -> None:
    one, two, three = [await writer.create(n) for n in range(3)]
    made = await writer.relate(one, two)
    same = edge(one, two, target_scope_id=writer.scope) | writer.change(made)
    made = await writer.ok("relate", same)
    for name, value in (
        ("source_object_id", three["object_id"]),
        ("target_object_id", three["object_id"]),
        ("relationship_type", "contradicts"),
        ("lifecycle_state", "archived"),
        ("retention_state", "retained"),
    ):
        error = await writer.refused("relate", writer.change(made, provenance=PROVENANCE, **{name: value}))
        assert (error["code"], error["details"]["field"]) == ("invalid_request", name)


@pytest.mark.parametrize("end", ["source_object_id", "target_object_id"])
async def test_both_ends_must_be_there(writer: Writer, end: str) -> None:
    one, two, gone = [await writer.create(n) for n in range(3)]
    await writer.delete(gone)
    elsewhere = await writer.new_scope()
    foreign = await writer.ok("create", claim(elsewhere))
    between = await writer.relate(one, two)
    for object_id, code in (
        ("obj:missing", "object_not_found"),
        (foreign["object_id"], "object_not_found"),
        (between["relationship_id"], "object_not_found"),
        (gone["object_id"], "object_deleted"),
    ):
        error = await writer.refused("relate", edge(one, two, "references") | {end: object_id})
        assert (error["code"], error["details"]) == (code, {"field": end})
    missing = await writer.refused("relate", edge(one, two, "references") | {end: "obj:missing"})
    hidden = await writer.refused("relate", edge(one, two, "references") | {end: foreign["object_id"]})
    assert {**missing, "operation_id": ""} == {**hidden, "operation_id": ""}


async def test_an_end_that_is_hidden_is_no_reason_to_refuse_a_change(writer: Writer) -> None:
    """Deleting an object leaves its relationships (P73)."""
    one, two = await writer.create(1), await writer.create(2)
    made = await writer.relate(one, two)
    await writer.delete(two)
    changed = await writer.ok("relate", writer.change(made, canonical_content="still", provenance=PROVENANCE))
    assert changed["sequence"] == 2
    moved = await writer.ok("transition", move(writer, changed, "lifecycle", "archived"))
    assert moved["envelope"]["target_object_id"] == two["object_id"]


async def test_cycles_and_loops_are_relationships_like_others(writer: Writer) -> None:
    one, two, three = [await writer.create(n) for n in range(3)]
    for source, target in ((one, two), (two, three), (three, one), (one, one)):
        await writer.relate(source, target, "part_of")
    assert await writer.count("core.object_head", "kind = 'r'") == 4
    await writer.check_scope()


async def test_two_active_relationships_of_a_type_never_join_the_same_objects(writer: Writer) -> None:
    one, two = await writer.create(1), await writer.create(2)
    first = await writer.relate(one, two)
    error = await writer.refused("relate", edge(one, two), key="k")
    assert (error["code"], error["details"]) == ("relationship_conflict", {"relationship_id": first["relationship_id"]})
    for other in (edge(two, one), edge(one, two, "contradicts"), edge(one, two, lifecycle_state="candidate")):
        await writer.ok("relate", other)
    archived = await writer.ok("transition", move(writer, first, "lifecycle", "archived"))
    assert (await writer.refused("relate", edge(one, two), key="k"))["code"] == "relationship_conflict"
    second = await writer.relate(one, two)
    await writer.delete(second)
    third = await writer.relate(one, two)
    assert third["relationship_id"] not in (first["relationship_id"], second["relationship_id"])
    # Nothing else of an active one is unique: its versions follow one another.
    await writer.ok("relate", writer.change(third, canonical_content=3, provenance=PROVENANCE))
    await writer.ok("relate", writer.change(archived, canonical_content=1, provenance=PROVENANCE))
    await writer.check_scope()


async def test_becoming_active_is_refused_while_another_is(writer: Writer) -> None:
    one, two = await writer.create(1), await writer.create(2)
    waiting = await writer.relate(one, two, lifecycle_state="candidate")
    active = await writer.relate(one, two)
    error = await writer.refused("transition", move(writer, waiting, "lifecycle", "active"))
    assert (error["code"], error["details"]) == (
        "relationship_conflict",
        {"relationship_id": active["relationship_id"]},
    )
    await writer.ok("transition", move(writer, active, "lifecycle", "superseded"))
    await writer.ok("transition", move(writer, waiting, "lifecycle", "active"))
    await writer.check_scope()


@pytest.mark.parametrize("atomic", [False, True])
async def test_one_batch_sees_what_it_does_to_edges(writer: Writer, atomic: bool) -> None:
    one, two = await writer.create(1), await writer.create(2)
    first = await writer.relate(one, two)

    def relate(**more: Any) -> Document:
        return {"operation": "relate", **edge(one, two, **more)}

    items = [
        {"operation": "transition", **move(writer, first, "lifecycle", "archived")},
        relate(relationship_id="rel:new"),
        {"operation": "create", "object_id": "obj:three", **claim(writer.scope, 3)},
        {"operation": "relate", **edge(one, {"object_id": "obj:three"}, "references")},
    ]
    results = (await writer.ok("batch", {"scope_id": writer.scope, "items": items, "atomic": atomic}))["results"]
    assert [result["envelope"]["lifecycle_state"] for result in results] == ["archived", *["active"] * 3]
    failing = {"scope_id": writer.scope, "items": [relate(), relate(lifecycle_state="candidate")], "atomic": atomic}
    if atomic:
        error = await writer.refused("batch", failing)
        assert (error["code"], error["details"]["index"]) == ("relationship_conflict", 0)
    else:
        results = (await writer.ok("batch", failing))["results"]
        assert results[0]["error"]["code"] == "relationship_conflict"
        assert results[1]["sequence"] == 1
    await writer.check_scope()


async def test_what_one_batch_relates_and_deletes_leaves_room(writer: Writer) -> None:
    one, two = await writer.create(1), await writer.create(2)
    made = await writer.relate(one, two)
    items = [
        {"operation": "delete", **writer.change(made, policy_basis="asked")},
        {"operation": "relate", **edge(one, two, relationship_id="rel:next")},
        {"operation": "relate", **edge(one, two)},
        {"operation": "delete", **writer.change(two, policy_basis="asked")},
        {"operation": "relate", **edge(one, two, "references")},
    ]
    results = (await writer.ok("batch", {"scope_id": writer.scope, "items": items}))["results"]
    codes = [result["error"]["code"] if "error" in result else None for result in results]
    assert codes == [None, None, "relationship_conflict", None, "object_deleted"]
    assert results[0]["envelope"]["canonical_content"] == {"tombstone": True}
    await writer.check_scope()


async def test_a_deleted_relationship_keeps_what_it_joined(writer: Writer) -> None:
    one, two = await writer.create(1), await writer.create(2)
    made = await writer.relate(one, two, canonical_content="SECRET-1", policy_basis="SECRET-2")
    gone = await writer.ok("delete", writer.change(made, policy_basis="asked"))
    assert gone["erasure_id"]
    envelope = gone["envelope"]
    assert envelope["source_object_id"] == one["object_id"]
    assert (envelope["availability_state"], "policy_basis" in envelope) == ("deleted", False)
    event = (await writer.ledger())[-1].event
    assert (event["event_type"], event["relationship_id"]) == ("object_deleted", made["relationship_id"])
    stored = await writer.admin.fetch(
        "SELECT p.content, p.private FROM core.version_private p JOIN core.version v USING (scope_key, ledger_seq) "
        "WHERE v.object_id = $1 ORDER BY v.version_seq",
        made["relationship_id"],
    )
    assert (stored[0]["content"], stored[0]["private"]) == (None, None)
    assert "SECRET" not in str([dict(row) for row in stored])
    change = writer.change(gone, canonical_content=1, provenance=PROVENANCE)
    assert (await writer.refused("relate", change))["code"] == "object_deleted"
    await writer.check_scope()


LABELS = [
    *("informed_by", "produced_by", "derives_from", "derived_from", "likes", "is-A_2", "a" * 255),
    *("com.example.links.mentions", "https://labels.example.com/%20/ä", "urn:x"),
]


@pytest.mark.parametrize("label", LABELS)
async def test_labels_come_back_as_they_were_sent(writer: Writer, label: str) -> None:
    made = await writer.relate(await writer.create(1), await writer.create(2), label)
    assert made["envelope"]["relationship_type"] == label
    assert (await writer.ledger())[-1].event["payload"]["relationship_type"] == label


@pytest.mark.parametrize("label", ["part of", "1st", "supports\n", "urn:\x1f", "", "a" * 256, "ä", "com..x"])
async def test_what_is_no_label_is_refused(writer: Writer, label: str) -> None:
    one, two = await writer.create(1), await writer.create(2)
    error = await writer.refused("relate", edge(one, two, label))
    assert (error["code"], error["details"]["field"]) == ("invalid_object", "relationship_type")


async def test_the_own_scope_as_target_scope_says_nothing(writer: Writer) -> None:
    one, two = await writer.create(1), await writer.create(2)
    made = await writer.relate(one, two, target_scope_id=writer.scope)
    assert "target_scope_id" not in made["envelope"]
    assert (await writer.refused("relate", edge(one, two)))["code"] == "relationship_conflict"


async def test_a_relationship_is_repeated_byte_for_byte(writer: Writer) -> None:
    one, two = await writer.create(1), await writer.create(2)
    document = edge(one, two, canonical_content={"a": 1})
    first = await writer.call("relate", document, key="k")
    assert first.status == 201
    made = orjson.loads(first.body)
    changed = await writer.ok("relate", writer.change(made, canonical_content=2, provenance=PROVENANCE))
    again = await writer.call("relate", document, key="k")
    assert (again.status, again.body, again.headers[HEADER_REPLAYED]) == (201, first.body, "true")
    assert (await writer.refused("relate", {**document, "directionality": "undirected"}, key="k"))[
        "code"
    ] == "duplicate_operation"
    # The same key of another principal, and of another operation, is another key.
    assert (await writer.refused("relate", document, key="k", by=OTHER))["code"] == "relationship_conflict"
    found = await writer.ok("get_operation", {"scope_id": writer.scope, "operation": "relate", "idempotency_key": "k"})
    assert (found["state"], found["outcome"]) == ("committed", made)
    asked = {"scope_id": writer.scope, "operation_id": made["operation_id"]}
    by_auditor = asked | {"actor": {"actor_id": "agent:tester", "actor_kind": "agent"}}
    assert (await writer.ok("get_operation", by_auditor, by=AUDITOR))["outcome"] == made
    await writer.ok("delete", writer.change(changed, policy_basis="asked"))
    assert (await writer.refused("relate", document, key="k"))["code"] == "object_deleted"
    assert (await writer.refused("relate", {**document, "canonical_content": 3}, key="k"))["code"] == "object_deleted"


async def test_ids_are_of_one_kind(writer: Writer) -> None:
    one, two = await writer.create(1, object_id="x:1"), await writer.create(2)
    error = await writer.refused("relate", edge(one, two, relationship_id="x:1"))
    assert (error["code"], error["details"]["reason"]) == ("version_conflict", "object_exists")
    await writer.relate(one, two, relationship_id="x:2")
    for again in (edge(two, one, relationship_id="x:2"), edge(one, two, "references", relationship_id="x:2")):
        assert (await writer.refused("relate", again))["details"]["reason"] == "object_exists"
    error = await writer.refused("create", claim(writer.scope, object_id="x:2"))
    assert error["details"]["reason"] == "object_exists"
    change = {"scope_id": writer.scope, "expected_version_id": "ver:x", "provenance": PROVENANCE}
    assert (await writer.refused("relate", {**change, "relationship_id": "x:1"}))["code"] == "object_not_found"
    assert (await writer.refused("relate", {**change, "relationship_id": "x:9"}))["code"] == "object_not_found"
    assert (await writer.refused("update", {**change, "object_id": "x:2"}))["code"] == "object_not_found"
    assert (await writer.refused("relate", change))["details"] == {"field": "relationship_id"}
