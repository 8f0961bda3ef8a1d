"""inspect_history: subjects, ranges, tombstones, notes, who may see what, and pages."""

from __future__ import annotations

from typing import Any

import orjson

from pamspec_common.contracts import check_event
from pamspec_common.instants import wire
from services.query.tests.door import Conn, Door
from services.query.tests.seeds import START, Scope

SCOPE = "workspace:a"


async def seeded(seeding: Conn) -> Scope:
    """Two objects, a deletion with its reason, and a relationship."""
    scope = Scope(SCOPE)
    scope.put("obj:a", {"n": 1})
    scope.put("obj:b", {"n": 1})
    scope.put("obj:a", {"n": 2}, validation_state="disputed", event_type="validation_transitioned", note="review 7",
              payload={"dimension": "validation", "from": "corroborated", "to": "disputed"})  # fmt: skip
    scope.put("rel:a", {"why": "x"}, kind="r", object_type="supports")
    scope.put("obj:b", availability_state="deleted", note="erasure request 9")
    scope.put("obj:a", {"n": 3})
    await scope.flush(seeding)
    return scope


def sequences(document: dict[str, Any]) -> list[int]:
    return [event["sequence"] for event in document["events"]]


async def test_history_of_a_subject(seeding: Conn, door: Door) -> None:
    scope = await seeded(seeding)
    found = await door("inspect_history", scope_id=SCOPE, object_id="obj:a")
    document = orjson.loads(found.body)
    assert sequences(document) == [1, 3, 6]
    assert [version["sequence"] for version in document["versions"]] == [1, 2, 3]
    assert [version["canonical_content"] for version in document["versions"]] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert document["notes"] == {document["events"][1]["event_id"]: {"policy_basis": "review 7"}}
    assert document["next_cursor"] is None
    assert found.headers["Pamspec-As-Of-Sequence"] == "6"
    assert scope.ledger[0][6] in found.body, "an event has one byte form"
    edge = await door.ok("inspect_history", scope_id=SCOPE, relationship_id="rel:a")
    assert sequences(edge) == [4]
    assert edge["versions"][0]["relationship_id"] == "rel:a"


async def test_what_was_erased_is_a_tombstone(seeding: Conn, door: Door) -> None:
    """P124, S21: ids, states, sequence and times stay; content and personal provenance are gone."""
    await seeded(seeding)
    document = await door.ok("inspect_history", scope_id=SCOPE, object_id="obj:b")
    first, last = document["versions"]
    assert first["canonical_content"] == last["canonical_content"] == {"tombstone": True}
    assert first["provenance"]["activity"] == "erased"
    assert set(first["provenance"]) == {"provenance_id", "actor", "activity", "recorded_at"}
    assert (first["availability_state"], last["availability_state"]) == ("available", "deleted")
    assert list(document["notes"].values()) == [{"policy_basis": "erasure request 9"}]
    for event in document["events"]:
        if event["event_type"] == "object_deleted":
            assert event["payload"]["erased"] == [{"from_sequence": 1, "to_sequence": 1}]


async def test_ranges_and_narrowing(seeding: Conn, door: Door) -> None:
    await seeded(seeding)

    async def of(**more: Any) -> list[int]:
        return sequences(await door.ok("inspect_history", scope_id=SCOPE, **more))

    assert await of(after_sequence=0) == [1, 2, 3, 4, 5, 6]
    assert await of(after_sequence=2, to_sequence=4) == [3, 4]
    assert await of(to_sequence=2) == [1, 2]
    assert await of(to_sequence=99) == [1, 2, 3, 4, 5, 6]
    assert await of(after_sequence=6) == []
    assert await of(object_id="obj:a", after_sequence=1) == [3, 6]
    assert await of(after_sequence=0, event_classes=["object_deleted", "validation_transitioned"]) == [3, 5]
    assert await of(object_id="obj:a", version_range={"from_sequence": 2}) == [3, 6]
    assert await of(object_id="obj:a", version_range={"from_sequence": 2, "to_sequence": 2}) == [3]
    error = await door.refused("inspect_history", scope_id=SCOPE, after_sequence=7)
    assert error["details"]["reason"] == "position_future"
    refused: list[dict[str, Any]] = [
        {},
        {"event_classes": ["object_created"]},
        {"object_id": "obj:a", "relationship_id": "rel:a"},
        {"object_id": "obj:a", "version_range": {}},
        {"object_id": "obj:a", "event_classes": []},
        {"object_id": "obj:a", "event_classes": ["object_exploded"]},
        {"after_sequence": -1},
        {"after_sequence": 0, "pagination": {"limit": 1001}},
    ]
    for wrong in refused:
        assert (await door.refused("inspect_history", scope_id=SCOPE, **wrong))["code"] == "invalid_request", wrong
    assert (await door.refused("inspect_history", scope_id=SCOPE, object_id="obj:a", snapshot_id="snap:1"))["code"] == (
        "snapshot_not_found"
    )


async def test_missing_and_foreign_subjects(seeding: Conn, door: Door) -> None:
    """S15, M011."""
    await seeded(seeding)
    other = Scope("workspace:b")
    other.put("obj:z", 1)
    await other.flush(seeding)
    for subject in (
        {"object_id": "obj:z"},
        {"object_id": "obj:none"},
        {"object_id": "rel:a"},
        {"relationship_id": "obj:a"},
        {"delegation_id": "obj:a"},
        {"object_id": "obj:a", "delegation_id": "dlg:1"},
    ):
        assert (await door.refused("inspect_history", scope_id=SCOPE, **subject))["code"] == "object_not_found"
    stranger = door.as_("agent:reader", tenant_id="tenant:other")
    assert (await stranger.refused("inspect_history", scope_id=SCOPE, object_id="obj:a"))["code"] == "scope_not_found"


async def test_restricted_entries_reach_their_party_only(seeding: Conn, door: Door) -> None:
    """Auditors and administrators see all; the party named sees its own; nobody else sees any."""
    scope = Scope(SCOPE)
    scope.put("obj:a", 1)
    mine = {"actor_id": "agent:reader", "actor_kind": "agent"}
    opened = {"subscription_id": "sub:1", "channel": "poll"}
    denied = {"operation": "read", "reason": "no_right", "count": 3}
    parties = {"delegation_id": "dlg:1", "granting_actor_id": "agent:seed", "delegated_actor_id": "agent:delegate"}
    scope.event("subscription_opened", payload=opened, subject_id="sub:1")
    scope.event("subscription_opened", payload=opened, subject_id="sub:2", actor=mine)
    scope.event("access_denied", payload=denied, subject_id="obj:a")
    grant = {
        "granting_actor": mine,
        "delegated_actor": {**mine, "actor_id": "agent:delegate"},
        "granted_operations": ["read"],
        "policy_basis": "holiday",
        "not_before": wire(START),
        "not_after": wire(START),
    }
    scope.put("dlg:1", kind="d", object_type="delegation", payload=parties, metadata=grant)
    scope.put("obj:a", 2)
    await scope.flush(seeding)

    async def seen(by: Door, **subject: Any) -> list[int]:
        answer = await by("inspect_history", scope_id=SCOPE, **(subject or {"after_sequence": 0}))
        return sequences(orjson.loads(answer.body)) if answer.status == 200 else []

    party = door.as_("agent:reader", roles=["reader"])
    assert await seen(party) == [1, 3, 6]
    assert await seen(door.as_("agent:auditor", "audit")) == [1, 2, 3, 4, 5, 6]
    assert await seen(door.as_("agent:admin", "admin")) == [1, 2, 3, 4, 5, 6]
    assert await seen(door.as_("agent:auditor", roles=["auditor"])) == [1, 2, 3, 4, 5, 6]
    assert await seen(door.as_("agent:delegate", roles=["reader"])) == [1, 5, 6]
    assert await seen(door.as_("agent:stranger", roles=["reader"])) == [1, 6]
    assert await seen(party, object_id="obj:a") == [1, 6]
    assert await seen(door.as_("agent:delegate", roles=["reader"]), delegation_id="dlg:1") == [5]
    assert await seen(door.as_("agent:stranger", roles=["reader"]), delegation_id="dlg:1") == []
    only = {"after_sequence": 0, "event_classes": ["access_denied"]}
    assert await seen(party, **only) == []
    assert await seen(door.as_("agent:auditor", "audit"), **only) == [4]


async def test_pages_of_a_history_end_where_the_first_began(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for index in range(25):
        scope.put("obj:a", index)
    await scope.flush(seeding)
    cursor: dict[str, str] = {}
    seen: list[int] = []
    for _ in range(20):
        call: dict[str, Any] = {"object_id": "obj:a", "pagination": {"limit": 4, **cursor}}
        found = await door.ok("inspect_history", scope_id=SCOPE, **call)
        seen += [version["canonical_content"] for version in found["versions"]]
        scope.put("obj:a", "later")
        await scope.flush(seeding)
        if found["next_cursor"] is None:
            break
        cursor = {"cursor": found["next_cursor"]}
    assert seen == list(range(25))


async def test_a_page_of_history_ends_at_its_bytes(seeding: Conn, door: Door) -> None:
    scope = Scope(SCOPE)
    for _ in range(12):
        scope.put("obj:a", "x" * 1_000_000)
    await scope.flush(seeding)
    found = await door("inspect_history", scope_id=SCOPE, object_id="obj:a")
    document = orjson.loads(found.body)
    assert len(found.body) <= 8 * 1024 * 1024
    assert 7 <= len(document["versions"]) < 12
    page = {"limit": 50, "cursor": document["next_cursor"]}
    rest = await door.ok("inspect_history", scope_id=SCOPE, object_id="obj:a", pagination=page)
    assert len(document["versions"]) + len(rest["versions"]) == 12


async def test_seeds_keep_the_contract_of_events(seeding: Conn, door: Door) -> None:
    scope = await seeded(seeding)
    for row in scope.ledger:
        check_event(orjson.loads(row[6]))
