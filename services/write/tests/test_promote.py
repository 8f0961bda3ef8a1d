"""Promote: one command, three versions, four entries, all or nothing (PAMSPEC P137-P141, S1-S3)."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from pamspec_common.calls import HEADER_LEDGER_SEQUENCE, HEADER_REPLAYED
from services.write.tests.test_faults import waiting_backends
from services.write.tests.writer import BACKEND, PROVENANCE, Document, Writer

PLAN = {"task_ref": "task:planning", "content": {"steps": ["gather", "draft"]}}
ACCOUNT = {"activity": "reviewed", "source_ref": "mail:1", "provenance_id": "prov:mine"}


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


async def memory(writer: Writer, **more: Any) -> Document:
    """Working memory."""
    return await writer.create(PLAN, object_type="working_memory", **more)


def promotion(of: Document, **more: Any) -> Document:
    """A promote request after that answer."""
    return {
        "scope_id": of["scope_id"],
        "source_object_id": of["object_id"],
        "expected_version_id": of["version_id"],
        "target_object_type": "decision",
        "target_canonical_content": {"text": "draft first"},
        "provenance": ACCOUNT,
        **more,
    }


async def test_a_promotion_is_four_entries_of_one_commit(writer: Writer) -> None:
    source = await memory(writer)
    answer = await writer.call(
        "promote", promotion(source, target_object_id="obj:d", target_validation_state="corroborated")
    )
    assert answer.status == 201
    made = orjson.loads(answer.body)
    entries = (await writer.ledger())[1:]
    events = [entry.event for entry in entries]
    assert [event["event_type"] for event in events] == [
        "object_created",
        "lifecycle_transitioned",
        "relationship_created",
        "working_memory_promoted",
    ]
    assert [event["event_id"] for event in events] == made["event_ids"]
    assert len({event["recorded_at"] for event in events}) == 1
    assert answer.headers[HEADER_LEDGER_SEQUENCE] == "5"
    target = made["object"]
    assert (target["ledger_sequence"], target["event_id"]) == (5, made["event_ids"][0])
    assert set(target) == set(source)
    envelope = target["envelope"]
    assert (envelope["object_type"], envelope["canonical_content"]) == ("decision", {"text": "draft first"})
    assert (envelope["lifecycle_state"], envelope["validation_state"]) == ("active", "corroborated")
    assert envelope["provenance"]["transformation_parent"] == source["version_id"]
    assert envelope["provenance"]["provenance_id"] == "prov:mine"
    assert (events[1]["payload"]["from"], events[1]["payload"]["to"]) == ("scratch", "superseded")
    assert events[1]["object_id"] == events[3]["object_id"] == source["object_id"]
    assert events[1]["version_id"] == events[3]["version_id"] == made["source"]["version_id"]
    assert events[2]["relationship_id"] == made["relationship_id"]
    assert events[2]["payload"]["relationship_type"] == "derived_from"
    link = events[3]["payload"]
    assert link["source_version_id"] == source["version_id"]
    assert (link["target_object_id"], link["target_version_id"]) == ("obj:d", target["version_id"])
    assert (link["target_object_type"], link["relationship_id"]) == ("decision", made["relationship_id"])
    assert made["source"]["sequence"] == 2
    await writer.check_scope()


async def test_the_source_stays_as_it_was_but_superseded(writer: Writer) -> None:
    source = await memory(
        writer, valid_from="2026-01-01T00:00:00Z", provenance={"activity": "noted", "source_ref": "x"}
    )
    made = await writer.ok("promote", promotion(source))
    row = await writer.admin.fetchrow(
        "SELECT h.*, p.content AS stored, p.private FROM core.object_head h JOIN core.version_private p "
        "ON p.scope_key = h.scope_key AND p.ledger_seq = h.from_seq WHERE h.object_id = $1",
        source["object_id"],
    )
    assert row is not None
    assert (row["lifecycle_state"], row["version_id"]) == ("superseded", made["source"]["version_id"])
    assert orjson.loads(row["stored"]) == PLAN
    private = orjson.loads(row["private"])
    assert (private["provenance"]["activity"], private["provenance"]["source_ref"]) == ("promote", "x")
    assert private["provenance"]["transformation_parent"] == source["version_id"]
    assert private["note"] == {"policy_basis": "promote"}
    edge = await writer.admin.fetchrow("SELECT * FROM core.object_head WHERE object_id = $1", made["relationship_id"])
    assert edge is not None
    assert (edge["source_object_id"], edge["target_object_id"]) == (made["object"]["object_id"], source["object_id"])
    assert (edge["object_type"], edge["directionality"], edge["lifecycle_state"]) == (
        "derived_from",
        "directed",
        "active",
    )


@pytest.mark.parametrize("state", ["scratch", "candidate", "active"])
async def test_each_state_that_working_memory_is_used_in(writer: Writer, state: str) -> None:
    made = await writer.ok("promote", promotion(await memory(writer, lifecycle_state=state)))
    assert made["source"]["sequence"] == 2
    await writer.check_scope()


@pytest.mark.parametrize("state", ["superseded", "deprecated", "archived"])
async def test_what_is_over_is_not_promoted(writer: Writer, state: str) -> None:
    error = await writer.refused("promote", promotion(await memory(writer, lifecycle_state=state)))
    assert (error["code"], error["details"]["from"]) == ("invalid_state_transition", state)
    assert await writer.count("core.version") == 1


@pytest.mark.parametrize("state", ["scratch", "candidate"])
async def test_the_edge_is_promotes_alone(writer: Writer, state: str) -> None:
    source = await memory(writer, lifecycle_state=state)
    change = writer.change(source, dimension="lifecycle", target_state="superseded", policy_basis="p")
    assert (await writer.refused("transition", change))["code"] == "invalid_state_transition"


async def test_what_is_refused_leaves_nothing(writer: Writer) -> None:
    source, claim_ = await memory(writer), await writer.create(object_id="obj:taken")
    gone = await memory(writer)
    await writer.delete(gone)
    pending = await memory(writer)
    await writer.ok(
        "transition", writer.change(pending, dimension="retention", target_state="pending_deletion", policy_basis="p")
    )
    head = await writer.admin.fetchval(
        "SELECT version_id FROM core.object_head WHERE object_id = $1", pending["object_id"]
    )
    related = await writer.relate(claim_, source)
    before = await writer.count("core.ledger")
    by_another = {"activity": "x", "actor": {"actor_id": "a:b", "actor_kind": "c"}}
    for document, code in (
        (promotion(claim_), "invalid_request"),
        (promotion(source, target_object_type="working_memory"), "invalid_request"),
        (promotion(source, target_object_type="no type"), "invalid_object"),
        (promotion(source, target_object_type="org.example.plan"), "invalid_object"),
        (promotion(source, target_schema_id="no uri"), "invalid_object"),
        (promotion(source, expected_version_id="ver:stale"), "version_conflict"),
        (promotion(source, source_object_id="obj:missing"), "object_not_found"),
        (promotion(source, source_object_id=related["relationship_id"]), "object_not_found"),
        (promotion(source, target_object_id="obj:taken"), "version_conflict"),
        (promotion(source, target_object_id=source["object_id"]), "version_conflict"),
        (promotion(source, target_object_id=related["relationship_id"]), "version_conflict"),
        (promotion(gone), "object_deleted"),
        (promotion(pending, expected_version_id=head), "retention_restriction"),
        (promotion(source, target_lifecycle_state="gone"), "invalid_request"),
        (promotion(source, provenance=by_another), "access_denied"),
        (promotion(source, target_canonical_content="x" * 1024 * 1024), "invalid_request"),
    ):
        assert (await writer.refused("promote", document))["code"] == code, document
    assert await writer.count("core.ledger") == before
    await writer.check_scope()


async def test_the_scopes_policy_says_which_types_it_takes(writer: Writer) -> None:
    source = await memory(writer)
    policy = {"object_types": {"deny": ["decision"]}}
    await writer.ok(
        "update_scope",
        {"scope_id": writer.scope, "policy": policy, "expected_policy_version": 0, "policy_basis": "test"},
    )
    assert (await writer.refused("promote", promotion(source)))["code"] == "unsupported_object_type"
    await writer.ok("promote", promotion(source, target_object_type="task"))


async def test_a_promotion_whose_last_version_is_too_large_adds_none(writer: Writer) -> None:
    """The source's envelope grows a little by what is said of its promotion."""
    heavy = {"activity": "a" * (1280 * 1024 - 500)}
    noted = {"activity": "noted", "evidence_refs": ["e"]}
    size = len(orjson.dumps((await memory(writer, provenance=noted))["envelope"]))
    noted["evidence_refs"] = ["e" * (1280 * 1024 - size + 1)]
    source = await memory(writer, provenance=noted)
    before = await writer.count("core.ledger")
    assert (await writer.refused("promote", promotion(source)))["code"] == "invalid_request"
    small = await memory(writer)
    assert (await writer.refused("promote", promotion(small, provenance=heavy)))["code"] == "invalid_request"
    assert await writer.count("core.ledger") == before + 1
    await writer.check_scope()


async def test_a_promotion_is_repeated_byte_for_byte_and_says_what_was_erased(writer: Writer) -> None:
    source = await memory(writer)
    document = promotion(source)
    first = await writer.call("promote", document, key="k")
    made = orjson.loads(first.body)
    await writer.update(made["object"], "changed since")
    again = await writer.call("promote", document, key="k")
    assert (again.status, again.body, again.headers) == (
        201,
        first.body,
        {**first.headers, HEADER_REPLAYED: "true"},
    )
    assert (await writer.refused("promote", {**document, "target_canonical_content": 1}, key="k"))[
        "code"
    ] == "duplicate_operation"
    found = await writer.ok("get_operation", {"scope_id": writer.scope, "operation_id": made["object"]["operation_id"]})
    assert (found["state"], found["outcome"]) == ("committed", made)
    # The record is of the new object: what becomes of the source is another matter.
    about = {
        "scope_id": writer.scope,
        "object_id": source["object_id"],
        "expected_version_id": made["source"]["version_id"],
    }
    await writer.ok("delete", {**about, "policy_basis": "asked"})
    assert (await writer.call("promote", document, key="k")).body == first.body
    assert (await writer.refused("promote", {**document, "target_canonical_content": 1}, key="k"))[
        "code"
    ] == "duplicate_operation"
    head = await writer.admin.fetchval(
        "SELECT version_id FROM core.object_head WHERE object_id = $1", made["object"]["object_id"]
    )
    await writer.ok("delete", writer.change({**made["object"], "version_id": head}, policy_basis="asked"))
    assert (await writer.refused("promote", document, key="k"))["code"] == "object_deleted"
    await writer.check_scope()


@pytest.mark.parametrize("atomic", [False, True])
async def test_promotions_in_a_batch(writer: Writer, atomic: bool) -> None:
    sources = [await memory(writer) for _ in range(2)]
    items = [{"operation": "promote", **promotion(source)} for source in sources]
    document = {"scope_id": writer.scope, "items": items, "atomic": atomic}
    first = await writer.call("batch", document, key="k")
    results = orjson.loads(first.body)["results"]
    assert [len(result["event_ids"]) for result in results] == [4, 4]
    assert (await writer.call("batch", document, key="k")).body == first.body
    stale = await writer.call("batch", document, key="other")
    codes = [result.get("error", {}).get("code") for result in orjson.loads(stale.body).get("results", [])]
    assert codes == ([] if atomic else ["version_conflict"] * 2)
    await writer.check_scope()


async def test_a_batch_goes_on_with_what_it_promoted(writer: Writer) -> None:
    source = await memory(writer)
    items: list[Document] = [
        {"operation": "promote", **promotion(source, target_object_id="obj:new")},
        {"operation": "promote", **promotion(source)},
        {
            "operation": "create",
            "object_type": "claim",
            "canonical_content": 1,
            "object_id": "obj:new",
            "provenance": PROVENANCE,
        },
        {
            "operation": "relate",
            "source_object_id": "obj:new",
            "target_object_id": source["object_id"],
            "relationship_type": "derived_from",
            "directionality": "directed",
            "provenance": PROVENANCE,
        },
    ]
    results = (await writer.ok("batch", {"scope_id": writer.scope, "items": items}))["results"]
    codes = [result.get("error", {}).get("code") for result in results]
    assert codes == [None, "version_conflict", "version_conflict", "relationship_conflict"]
    await writer.check_scope()


async def test_who_acts_and_in_which_run_stands_on_all_of_it(writer: Writer) -> None:
    actor = {"actor_id": "agent:planner", "actor_kind": "agent", "display_name": "Planner"}
    policy = {"policy": {"evaluation_runs": ["run:*"]}, "expected_policy_version": 0, "policy_basis": "allowed"}
    await writer.ok("update_scope", {"scope_id": writer.scope, **policy})
    source = await memory(writer, by=BACKEND)
    made = await writer.ok("promote", promotion(source, actor=actor, evaluation_run_id="run:1"), by=BACKEND)
    for entry in (await writer.ledger())[1:]:
        assert entry.event["actor"] == {"actor_id": "agent:planner", "actor_kind": "agent"}
        assert entry.event["payload"]["authenticated_as"] == BACKEND.actor_id
        assert entry.event["payload"]["evaluation_run_id"] == "run:1"
        assert entry.event["operation_id"] == made["object"]["operation_id"]
    rows = await writer.admin.fetch(
        "SELECT private FROM core.version_private p JOIN core.version v USING (scope_key, ledger_seq) "
        "WHERE scope_key = $1 AND ledger_seq > 1",
        await writer.scope_key(),
    )
    for row in rows:
        private = orjson.loads(row["private"])
        assert private["actor"] == actor
        assert "evaluation-run:run:1" in private["provenance"]["evidence_refs"]
    assert len(rows) == 3


async def test_twenty_promotions_of_one_version_have_one_winner(writers: tuple[Writer, Writer], hold: Any) -> None:
    writer = writers[0]
    source = await memory(writer)
    async with hold(await writer.scope_key()):
        tasks = [asyncio.create_task(writers[n % 2].call("promote", promotion(source))) for n in range(20)]
        await waiting_backends(writer, 2)
    answers = await asyncio.gather(*tasks)
    assert sorted(answer.status for answer in answers) == [201] + [409] * 19
    assert await writer.count("core.ledger") == 5
    await writer.check_scope()
