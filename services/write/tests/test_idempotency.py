"""The same key, id or source event again: every sentence of PAMSPEC S16, and K6 and K7."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pamspec_common.calls import HEADER_LEDGER_SEQUENCE, HEADER_REPLAYED, Answer
from services.write.tests.writer import AGENT, BACKEND, OTHER, PROVENANCE, SUBSCRIPTION, Document, Writer, claim


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


async def twice(writer: Writer, operation: str, document: Document) -> tuple[Answer, Answer]:
    """The answers of the same document under the same key, sent one after the other."""
    first = await writer.call(operation, document, key="again")
    return first, await writer.call(operation, document, key="again")


def same(first: Answer, second: Answer) -> None:
    """The second answer is the first again, and says so."""
    assert (first.status, first.body) == (second.status, second.body)
    assert HEADER_REPLAYED not in first.headers
    assert second.headers == {**first.headers, HEADER_REPLAYED: "true"}


async def test_every_success_is_answered_again_byte_for_byte(writer: Writer) -> None:
    first, second = await twice(writer, "create", claim(writer.scope, {"n": 1.50, "t": "a\u0000b"}))
    same(first, second)
    made = await writer.create()
    changed = writer.change(made, canonical_content=[1], provenance=PROVENANCE)
    same(*await twice(writer, "update", changed))
    made = await writer.create()
    moved = writer.change(made, dimension="validation", target_state="disputed", policy_basis="seen")
    same(*await twice(writer, "transition", moved))
    made = await writer.create()
    same(*await twice(writer, "delete", writer.change(made, policy_basis="asked")))
    await writer.check_scope()


async def test_a_transition_to_deleted_is_answered_again(writer: Writer) -> None:
    made = await writer.create()
    gone = writer.change(made, dimension="availability", target_state="deleted", policy_basis="asked")
    same(*await twice(writer, "transition", gone))


async def test_a_replay_is_that_of_the_version_then_not_of_the_head(writer: Writer) -> None:
    document = claim(writer.scope, "first")
    first = await writer.call("create", document, key="k")
    made = await writer.ok("create", document, key="k")
    await writer.update(made, "second")
    same(first, await writer.call("create", document, key="k"))


async def test_stable_errors_are_answered_again(writer: Writer) -> None:
    missing = {"scope_id": writer.scope, "object_id": "obj:later", "expected_version_id": "ver:1"}
    update = {**missing, "canonical_content": 1, "provenance": PROVENANCE}
    first = await writer.call("update", update, key="again")
    assert first.status == 404
    await writer.create(object_id="obj:later")
    second = await writer.call("update", update, key="again")
    assert second.body == first.body
    assert second.headers[HEADER_REPLAYED] == "true"


async def test_a_version_conflict_is_not_remembered(writer: Writer) -> None:
    made = await writer.create()
    stale = writer.change(made, canonical_content=1, provenance=PROVENANCE, expected_version_id="ver:other")
    error = await writer.refused("update", stale, key="k")
    assert error["code"] == "version_conflict"
    assert error["details"] == {"current_version_id": made["version_id"], "expected_version_id": "ver:other"}
    await writer.ok("update", {**stale, "expected_version_id": made["version_id"]}, key="k")


async def test_refusals_before_the_lock_are_not_remembered(writer: Writer) -> None:
    error = await writer.refused("create", claim(writer.scope, provenance={"activity": ""}), key="k")
    assert error["code"] == "invalid_object"
    await writer.ok("create", claim(writer.scope), key="k")


@pytest.mark.parametrize(
    "other",
    [
        {"canonical_content": "another"},
        {"object_type": "task"},
        {"provenance": {"activity": "another"}},
        {"canonical_content": 1.0},
        {"lifecycle_state": "active"},
    ],
)
async def test_other_content_under_the_key_is_a_duplicate(writer: Writer, other: Document) -> None:
    document = claim(writer.scope, 1)
    await writer.ok("create", document, key="k")
    error = await writer.refused("create", {**document, **other}, key="k")
    assert error["code"] == "duplicate_operation"
    assert await writer.count("core.ledger") == 1


async def test_the_form_of_the_json_does_not_matter_nor_do_the_fields_of_the_attempt(writer: Writer) -> None:
    scope = writer.scope.encode()
    first = b'{"scope_id":"%s","object_type":"claim","canonical_content":{"a":1,"b":2},"provenance":{"activity":"t"}}'
    again = (
        b'{ "provenance": {"activity": "\\u0074"}, "canonical_content": {"b": 2, "a": 1},\n"object_type": "claim",'
        b' "scope_id": "%s", "operation_id": "op:second", "wait_ms": 5, "min_sequence": 1, "idempotency_key": "k"}'
    )
    one = await writer.call("create", first % scope, key="k")
    two = await writer.call("create", again % scope)
    same(one, two)


async def test_the_same_key_elsewhere_is_another_key(writer: Writer) -> None:
    document = claim(writer.scope)
    made = await writer.ok("create", document, key="k")
    assert (await writer.ok("create", document, key="k", by=OTHER))["object_id"] != made["object_id"]
    there = await writer.new_scope()
    assert (await writer.ok("create", {**document, "scope_id": there}, key="k"))["object_id"] != made["object_id"]
    await writer.ok("update", writer.change(made, canonical_content=2, provenance=PROVENANCE), key="k")


async def test_keys_belong_to_the_principal_whoever_it_acts_for(writer: Writer) -> None:
    for name in ("agent:one", "agent:two"):
        document = claim(writer.scope, actor={"actor_id": name, "actor_kind": "agent"})
        answer = await writer.call("create", document, key="k", by=BACKEND)
        assert answer.status == (201 if name == "agent:one" else 409)


async def test_an_operation_id_acts_as_the_key(writer: Writer) -> None:
    document = claim(writer.scope, operation_id="op:1")
    first = await writer.call("create", document)
    same(first, await writer.call("create", document))
    assert (await writer.refused("create", {**document, "object_type": "task"}))["code"] == "duplicate_operation"
    made = await writer.create()
    other = writer.change(made, policy_basis="x", operation_id="op:1")
    assert (await writer.refused("delete", other))["code"] == "duplicate_operation"
    assert (await writer.call("create", document, by=OTHER)).status == 201


async def test_a_minted_operation_id_cannot_be_taken(writer: Writer) -> None:
    made = await writer.create()
    error = await writer.refused("create", claim(writer.scope, operation_id=made["operation_id"]))
    assert error["code"] == "duplicate_operation"


async def test_header_and_field_must_agree(writer: Writer) -> None:
    document = claim(writer.scope, idempotency_key="a")
    assert (await writer.refused("create", document, key="b"))["code"] == "invalid_request"
    assert (await writer.call("create", document, key="a")).status == 201


async def test_after_a_deletion_the_key_answers_so_whatever_the_payload(writer: Writer) -> None:
    document = claim(writer.scope, "secret")
    made = await writer.ok("create", document, key="k")
    change = writer.change(made, canonical_content="more", provenance=PROVENANCE)
    changed = await writer.ok("update", change, key="u")
    gone = await writer.call("delete", writer.change(changed, policy_basis="asked"), key="d")
    for operation, sent, key in (
        ("create", document, "k"),
        ("create", {**document, "canonical_content": "guessed"}, "k"),
        ("update", change, "u"),
        ("update", {**change, "canonical_content": "guessed"}, "u"),
    ):
        error = await writer.refused(operation, sent, key=key)
        assert error["code"] == "object_deleted"
    same(gone, await writer.call("delete", writer.change(changed, policy_basis="asked"), key="d"))
    assert await writer.count("core.version") == 3


async def test_after_a_transition_to_deleted_too(writer: Writer) -> None:
    document = claim(writer.scope, "secret")
    made = await writer.ok("create", document, key="k")
    gone = writer.change(made, dimension="availability", target_state="deleted", policy_basis="asked")
    await writer.ok("transition", gone)
    assert (await writer.refused("create", document, key="k"))["code"] == "object_deleted"


async def test_a_source_event_is_ingested_once(writer: Writer) -> None:
    document = claim(writer.scope, "from outside", source_event={"source": "mail", "id": "1"})
    made = await writer.ok("create", document)
    again = await writer.call("create", document)
    assert again.headers[HEADER_REPLAYED] == "true"
    assert (await writer.ok("create", document, by=OTHER)) == made
    other = await writer.refused("create", {**document, "canonical_content": "changed"})
    assert other["code"] == "duplicate_operation"
    fresh = await writer.ok("create", {**document, "source_event": {"source": "mail", "id": "2"}})
    assert fresh["object_id"] != made["object_id"]
    with_update = writer.change(
        made, canonical_content="x", provenance=PROVENANCE, source_event=document["source_event"]
    )
    assert (await writer.refused("update", with_update))["code"] == "duplicate_operation"
    assert await writer.count("core.ledger") == 2


async def test_a_source_event_of_an_update(writer: Writer) -> None:
    made = await writer.create()
    change = writer.change(
        made, canonical_content=None, provenance=PROVENANCE, source_event={"source": "crm", "id": "7"}
    )
    done = await writer.ok("update", change)
    assert await writer.ok("update", change) == done
    without = {name: value for name, value in change.items() if name != "canonical_content"}
    assert (await writer.refused("update", without))["code"] == "duplicate_operation"


async def test_a_source_event_stays_as_a_tombstone(writer: Writer) -> None:
    document = claim(writer.scope, "from outside", source_event={"source": "mail", "id": "1"})
    await writer.delete(await writer.ok("create", document))
    for content in ("from outside", "something else"):
        assert (await writer.refused("create", {**document, "canonical_content": content}))["code"] == "object_deleted"
    assert await writer.count("core.version") == 2


async def test_a_refused_source_event_can_come_again(writer: Writer) -> None:
    made = await writer.create()
    change = writer.change(made, canonical_content=1, provenance=PROVENANCE, source_event={"source": "s", "id": "1"})
    assert (await writer.refused("update", {**change, "expected_version_id": "ver:x"}))["code"] == "version_conflict"
    await writer.ok("update", change)


async def test_fifty_equal_creates_over_two_processes_make_one_object(writers: tuple[Writer, Writer]) -> None:
    document = claim(writers[0].scope, {"text": "once"})
    answers = await asyncio.gather(*(writers[n % 2].call("create", document, key="once") for n in range(50)))
    assert {(answer.status, answer.body) for answer in answers} == {(201, answers[0].body)}
    assert sum(HEADER_REPLAYED not in answer.headers for answer in answers) == 1
    assert {answer.headers[HEADER_LEDGER_SEQUENCE] for answer in answers} == {"1"}
    assert [await writers[0].count(f"core.{table}") for table in ("version", "ledger", "operation_record")] == [1, 1, 1]
    await writers[0].check_scope()


async def test_twenty_updates_with_one_expected_version_have_one_winner(writers: tuple[Writer, Writer]) -> None:
    made = await writers[0].create()
    answers = await asyncio.gather(
        *(
            writers[n % 2].call("update", writers[0].change(made, canonical_content=n, provenance=PROVENANCE))
            for n in range(20)
        )
    )
    assert sorted(answer.status for answer in answers) == [200] + [409] * 19
    await writers[0].check_scope()
    assert await writers[0].count("core.ledger") == 2


async def test_other_payloads_under_one_key_at_once_have_one_winner(writers: tuple[Writer, Writer]) -> None:
    sent: list[Any] = [claim(writers[0].scope, n) for n in range(20)]
    answers = await asyncio.gather(*(writers[n % 2].call("create", sent[n], key="k") for n in range(20)))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 19
    assert await writers[0].count("core.version") == 1


async def test_event_only_entries_are_recorded_once(writer: Writer) -> None:
    event = {
        "scope_id": writer.scope,
        "event_type": "subscription_opened",
        "payload": {"subscription_id": "sub:1", "channel": "poll"},
        "operation_id": "op:sub-1",
    }
    first = await writer.call("record_event", event, by=SUBSCRIPTION)
    same(first, await writer.call("record_event", event, by=SUBSCRIPTION))
    assert (await writer.refused("record_event", event, by=AGENT))["code"] == "access_denied"
    await writer.check_scope()
