"""Batches: order, overlay, all or nothing, and the same answer again."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from pamspec_common.calls import HEADER_LEDGER_SEQUENCE, HEADER_REPLAYED, Call
from services.write.tests.writer import AGENT, AUDITOR, OTHER, PROVENANCE, Document, Writer, claim


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


def item(operation: str, **document: Any) -> Document:
    """An item of a batch, in the batch's own scope."""
    return {"operation": operation, **document}


def new(content: Any = 1, **more: Any) -> Document:
    """An item that creates a claim."""
    return item("create", **{"object_type": "claim", "canonical_content": content, "provenance": PROVENANCE, **more})


def codes(results: list[Document]) -> list[str | None]:
    """The error code of each result, None for a success."""
    return [result["error"]["code"] if "error" in result else None for result in results]


async def test_results_come_in_order_and_one_refusal_fails_no_neighbour(writer: Writer) -> None:
    items = [
        new(1),
        new(2, valid_from="soon"),
        item("update", object_id="obj:missing", expected_version_id="ver:1", provenance=PROVENANCE),
        item("nothing"),
        new(3),
        "not a document",
        new(None, object_id="obj:null"),
    ]
    results = (await writer.ok("batch", {"scope_id": writer.scope, "items": items}))["results"]
    assert codes(results) == [
        None,
        "invalid_request",
        "object_not_found",
        "invalid_request",
        None,
        "invalid_request",
        None,
    ]
    assert [results[index]["envelope"]["canonical_content"] for index in (0, 4, 6)] == [1, 3, None]
    await writer.check_scope()


async def test_later_items_see_earlier_ones(writer: Writer) -> None:
    made = await writer.create("old", object_id="obj:old")
    items = [
        item("update", **writer.change(made, canonical_content="new", provenance=PROVENANCE)),
        item("update", **writer.change(made, canonical_content="stale", provenance=PROVENANCE)),
        new("fresh", object_id="obj:fresh"),
        new("twice", object_id="obj:fresh"),
    ]
    results = (await writer.ok("batch", {"scope_id": writer.scope, "items": items}))["results"]
    assert codes(results) == [None, "version_conflict", None, "version_conflict"]
    assert results[1]["error"]["details"]["current_version_id"] == results[0]["version_id"]
    assert results[3]["error"]["details"]["reason"] == "object_exists"
    await writer.check_scope()


async def test_an_object_lives_and_dies_in_one_group(writer: Writer, hold: Any) -> None:
    """Commands of one group see one another through the overlay, and what they erased is never written."""
    made = await writer.create("SECRET-old", object_id="obj:short", source_event={"source": "s", "id": "old"})
    async with hold(await writer.scope_key()):
        tasks = [
            asyncio.create_task(
                writer.call("create", claim(writer.scope, "SECRET-1", object_id="obj:1", idempotency_key="c"))
            ),
            asyncio.create_task(
                writer.call(
                    "create",
                    claim(writer.scope, "SECRET-2", source_event={"source": "s", "id": "x"}, object_id="obj:2"),
                )
            ),
            asyncio.create_task(
                writer.call("update", writer.change(made, canonical_content="SECRET-3", provenance=PROVENANCE))
            ),
        ]
        await asyncio.sleep(0)
    answers = [orjson.loads(answer.body) for answer in await asyncio.gather(*tasks)]
    for answer in answers:
        await writer.delete(answer)
    assert (await writer.refused("create", claim(writer.scope, "SECRET-1", object_id="obj:1"), key="c"))[
        "code"
    ] == "object_deleted"
    await writer.check_scope()


@pytest.mark.parametrize("atomic", [False, True])
async def test_what_one_batch_makes_and_deletes_leaves_nothing(writer: Writer, atomic: bool) -> None:
    made = await writer.create("SECRET-0", source_event={"source": "s", "id": "0"}, idempotency_key="first")
    items = [
        item("update", **writer.change(made, canonical_content="SECRET-1", provenance={"activity": "SECRET-2"})),
        item("delete", **writer.change(made, policy_basis="asked")),
    ]
    results = (await writer.ok("batch", {"scope_id": writer.scope, "items": items[:1], "atomic": atomic}))["results"]
    items = [
        item(
            "update",
            **writer.change(results[0], canonical_content="SECRET-3", provenance=PROVENANCE),
            source_event={"source": "s", "id": "3"},
        ),
        item("delete", **writer.change(results[0], policy_basis="asked")),
        new("SECRET-4", object_id="obj:4", source_event={"source": "s", "id": "4"}),
    ]
    answer = await writer.ok("batch", {"scope_id": writer.scope, "items": [items[0], items[2]], "atomic": atomic})
    await writer.delete(answer["results"][0])
    await writer.delete(answer["results"][1])
    assert await writer.count("core.source_event", "salt IS NOT NULL") == 0
    await writer.check_scope()


async def test_an_atomic_batch_writes_all_or_nothing(writer: Writer) -> None:
    victim = await writer.create("kept", object_id="obj:victim")
    before = await writer.count("core.version_private")
    failing: Document = {
        "scope_id": writer.scope,
        "atomic": True,
        "items": [
            new("a", object_id="obj:a"),
            item("delete", **writer.change(victim, policy_basis="asked")),
            item("update", object_id="obj:none", expected_version_id="ver:1", provenance=PROVENANCE),
        ],
    }
    error = await writer.refused("batch", failing, key="k")
    assert (error["code"], error["details"]["index"]) == ("object_not_found", 2)
    again = await writer.call("batch", failing, key="k")
    assert (again.headers[HEADER_REPLAYED], orjson.loads(again.body)["error"]) == ("true", error)
    assert await writer.count("core.version_private") == before
    assert await writer.count("core.version_private", "content IS NULL") == 0
    done = await writer.ok("batch", {**failing, "items": failing["items"][:2]}, key="other")
    assert [result["ledger_sequence"] for result in done["results"]] == [2, 3]
    assert (await writer.refused("delete", writer.change(victim, policy_basis="x")))["code"] == "object_deleted"
    await writer.check_scope()


async def test_an_atomic_batch_refused_before_the_lock(writer: Writer) -> None:
    document = {"scope_id": writer.scope, "atomic": True, "items": [new(), new(object_type="no type")]}
    error = await writer.refused("batch", document)
    assert (error["code"], error["details"]["index"]) == ("invalid_object", 1)
    assert await writer.count("core.ledger") == 0


@pytest.mark.parametrize("atomic", [False, True])
async def test_a_batch_is_answered_again_byte_for_byte(writer: Writer, atomic: bool) -> None:
    items = [new("a"), new("b", idempotency_key="own"), new("c", operation_id="op:own")]
    if not atomic:
        stale = item("update", object_id="obj:late", expected_version_id="ver:x", provenance=PROVENANCE)
        await writer.create(object_id="obj:late")
        items += [new("d", object_type="no type"), stale, item("delete")]
    document = {"scope_id": writer.scope, "items": items, "atomic": atomic}
    first = await writer.call("batch", document, key="k")
    assert first.status == 200
    if not atomic:
        late = await writer.only("version_id", "core.object_head", "object_id = 'obj:late'")
        assert codes(orjson.loads(first.body)["results"])[4] == "version_conflict"
        assert late
    await writer.create("something between")
    for sent in (document, {**document, "operation_id": "op:another-attempt"}):
        again = await writer.call("batch", sent, key="k")
        assert again.body == first.body
        assert again.headers == {**first.headers, HEADER_REPLAYED: "true"}
    for changed in (
        {**document, "items": items[:-1]},
        {**document, "items": [new("changed"), *items[1:]]},
        {**document, "actor": {"actor_id": "agent:tester", "actor_kind": "agent"}},
        {**document, "items": [items[1], items[0], *items[2:]]},
        {**document, "items": [*items[:-1], new("other end")]},
    ):
        assert (await writer.refused("batch", changed, key="k"))["code"] == "duplicate_operation"
    assert (await writer.call("batch", document, key="k", by=OTHER)).body != first.body
    await writer.check_scope()


@pytest.mark.parametrize("atomic", [False, True])
async def test_after_an_erasure_the_batch_says_so_and_keeps_no_fingerprint_of_it(writer: Writer, atomic: bool) -> None:
    document: Document = {"scope_id": writer.scope, "items": [new("SECRET-a"), new("b")], "atomic": atomic}
    first = await writer.ok("batch", document, key="k")
    await writer.delete(first["results"][0])
    if atomic:
        assert (await writer.refused("batch", document, key="k"))["code"] == "object_deleted"
        return
    again = await writer.ok("batch", document, key="k")
    assert codes(again["results"]) == ["object_deleted", None]
    assert again["results"][1] == first["results"][1]
    guess: Document = {**document, "items": [new("whatever"), new("b")]}
    assert await writer.ok("batch", guess, key="k") == again
    guess["items"][1] = new("c")
    assert (await writer.refused("batch", guess, key="k"))["code"] == "duplicate_operation"


async def test_two_batches_of_one_key_at_once(writers: tuple[Writer, Writer]) -> None:
    document = {"scope_id": writers[0].scope, "items": [new(n) for n in range(10)]}
    answers = await asyncio.gather(*(writers[n % 2].call("batch", document, key="k") for n in range(12)))
    assert {(answer.status, answer.body) for answer in answers} == {(200, answers[0].body)}
    assert {answer.headers[HEADER_LEDGER_SEQUENCE] for answer in answers} == {"10"}
    await writers[0].check_scope()


async def test_items_may_lie_in_other_scopes(writer: Writer) -> None:
    there = await writer.new_scope()
    document = {"scope_id": writer.scope, "items": [new("here"), new("there", scope_id=there), new(scope_id="scope:x")]}
    done = await writer.ok("batch", document, key="k")
    assert codes(done["results"]) == [None, None, "scope_not_found"]
    assert [result.get("scope_id") for result in done["results"]] == [writer.scope, there, None]
    assert await writer.ok("batch", document, key="k") == done
    found = await writer.ok("get_operation", {"scope_id": writer.scope, "operation": "batch", "idempotency_key": "k"})
    assert (found["state"], found["outcome"]) == ("committed", done)
    await writer.check_scope()
    await writer.check_scope(there)


async def test_an_atomic_batch_over_two_scopes(writer: Writer) -> None:
    there = await writer.new_scope()
    document: Document = {
        "scope_id": writer.scope,
        "atomic": True,
        "items": [
            new("here"),
            new("there", scope_id=there),
            item("delete", object_id="obj:x", scope_id=there, expected_version_id="ver:x", policy_basis="p"),
        ],
    }
    assert (await writer.refused("batch", document))["details"]["index"] == 2
    assert await writer.count("core.ledger") == 0
    await writer.ok("batch", {**document, "items": document["items"][:2]})
    await writer.check_scope()
    await writer.check_scope(there)


async def test_the_outcome_of_a_batch_can_be_looked_up(writer: Writer) -> None:
    shared = new("once", source_event={"source": "s", "id": "1"})
    await writer.ok("batch", {"scope_id": writer.scope, "items": [shared]}, by=OTHER)
    items = [new("a"), shared, new("k", idempotency_key="own"), new(object_type="no"), new("k", idempotency_key="own")]
    done = await writer.ok("batch", {"scope_id": writer.scope, "items": items, "operation_id": "op:b"})
    assert codes(done["results"]) == [None, None, None, "invalid_object", None]
    found = await writer.ok("get_operation", {"scope_id": writer.scope, "operation_id": "op:b"})
    assert found["outcome"] == done
    one = await writer.ok("get_operation", {"scope_id": writer.scope, "operation_id": "op:b/0"})
    assert one["outcome"] == done["results"][0]
    by_auditor = {
        "scope_id": writer.scope,
        "operation_id": "op:b",
        "actor": {"actor_id": "agent:tester", "actor_kind": "agent"},
    }
    assert await writer.ok("get_operation", by_auditor, by=AUDITOR) == found


async def test_a_batch_takes_one_to_a_thousand_items(writer: Writer) -> None:
    for items in ([], [new()] * 1001):
        error = await writer.refused("batch", {"scope_id": writer.scope, "items": items})
        assert error["code"] == "invalid_request"
        assert "1000" in error["message"] or "1" in error["message"]
    body = {"scope_id": writer.scope, "items": [new(n) for n in range(1000)], "atomic": True}
    answer = await writer.service.operations["batch"](Call("batch", writer.signer.sign(AGENT), orjson.dumps(body)))
    assert len(orjson.loads(answer.body)["results"]) == 1000
    await writer.check_scope()


async def test_items_inherit_the_run_of_their_batch(writer: Writer) -> None:
    writer.scope = await writer.new_scope(kind="evaluation")
    document = {"scope_id": writer.scope, "items": [new()], "evaluation_run_id": "run:1"}
    result = (await writer.ok("batch", document))["results"][0]
    assert result["envelope"]["provenance"]["evidence_refs"] == ["evaluation-run:run:1"]
    assert (await writer.ledger())[0].event["payload"]["evaluation_run_id"] == "run:1"
