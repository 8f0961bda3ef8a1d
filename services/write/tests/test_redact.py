"""Redact: what goes, what stays, and what is refused (PAMSPEC P136, S12, S16, S21)."""

from __future__ import annotations

import json
import time
from typing import Any

import orjson
import pytest

from pamspec_common.calls import Call
from pamspec_common.internal import answer as run
from services.write.tests.writer import AGENT, PROVENANCE, Document, Writer, claim

TOMBSTONE = {"tombstone": True}
WHOLE = {"whole": True}
BY = {"actor_id": "agent:tester", "actor_kind": "agent"}


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


def redaction(writer: Writer, of: Document, *paths: str, **more: Any) -> Document:
    """A redaction after that answer: of these paths, of everything without any."""
    target = {"paths": list(paths)} if paths else WHOLE
    return writer.change(of, policy_basis="asked", redaction_target=target, **more)


async def redact(writer: Writer, of: Document, *paths: str, **more: Any) -> Document:
    """The answer of a redaction that must succeed."""
    return await writer.ok("redact", redaction(writer, of, *paths, **more))


async def stored(writer: Writer, object_id: str) -> list[tuple[Any, Any, Any, Any]]:
    """Of each version in order: salt there, content, private half there, projection there."""
    rows = await writer.admin.fetch(
        "SELECT p.salt IS NOT NULL, p.content, p.private IS NOT NULL, s.content IS NOT NULL FROM core.version v "
        "JOIN core.version_private p USING (scope_key, ledger_seq) "
        "JOIN core.version_span s ON s.scope_key = v.scope_key AND s.from_seq = v.ledger_seq "
        "WHERE v.scope_key = $1 AND v.object_id = $2 ORDER BY v.version_seq",
        await writer.scope_key(),
        object_id,
    )
    return [tuple(row) for row in rows]


GONE = (False, None, False, False)


async def test_a_whole_redaction_leaves_a_tombstone_that_lives(writer: Writer) -> None:
    first = await writer.create({"a": 1}, quality_signals={"evidence_strength": 0.5}, integrity={"digest": "d"})
    second = await writer.update(first, {"a": 2})
    gone = await redact(writer, second)
    envelope = gone["envelope"]
    assert (envelope["canonical_content"], envelope["availability_state"]) == (TOMBSTONE, "redacted")
    assert (envelope["lifecycle_state"], envelope["sequence"], gone["sequence"]) == ("active", 3, 3)
    assert not {"quality_signals", "integrity"} & envelope.keys()
    assert envelope["provenance"]["activity"] == "redact"
    assert envelope["provenance"]["transformation_parent"] == second["version_id"]
    event = (await writer.ledger())[-1].event
    assert (event["event_type"], event["version_id"]) == ("object_redacted", gone["version_id"])
    assert event["payload"]["erased"] == [{"from_sequence": 1, "to_sequence": 2}]
    assert event["payload"]["erasure_id"] == gone["erasure_id"] == "erasure:" + gone["event_id"].removeprefix("evt:")
    assert await stored(writer, first["object_id"]) == [GONE, GONE, (True, None, True, False)]
    # The other dimensions still move (P84), and the version that one makes is a tombstone too.
    move = writer.change(gone, dimension="lifecycle", target_state="archived", policy_basis="p")
    moved = await writer.ok("transition", move, key="archive")
    assert moved["envelope"]["canonical_content"] == TOMBSTONE
    assert await writer.ok("transition", move, key="archive") == moved
    assert (await writer.delete(moved))["envelope"]["availability_state"] == "deleted"
    await writer.check_scope()


async def test_a_redaction_by_paths_leaves_the_rest_byte_for_byte(writer: Writer) -> None:
    raw = rb'{"name":"\u0041da","n":1.50E+2,"big":' + b"9" * 400 + rb',"tags":["x","y\u0000","z"],"secret":{"k":"v"}}'
    body = orjson.dumps(claim(writer.scope, 0)).replace(b'"canonical_content":0', b'"canonical_content":' + raw)
    made = json.loads((await writer.call("create", body)).body)
    left = await redact(writer, made, "/secret/k", "/tags/0", "/secret")
    content = (await stored(writer, made["object_id"]))[-1][1]
    assert content == rb'{"name":"\u0041da","n":1.50E+2,"big":' + b"9" * 400 + rb',"tags":["y\u0000","z"]}'
    assert left["envelope"]["availability_state"] == "partially_redacted"
    assert await stored(writer, made["object_id"]) == [GONE, (True, content, True, True)]
    span = await writer.admin.fetchval(
        "SELECT content FROM core.version_span WHERE scope_key = $1 AND version_seq = 2", await writer.scope_key()
    )
    assert json.loads(span)["tags"] == [None, "z"]
    # A state of its own: it is updated, cut again, and comes back whole only with content.
    changed = await writer.update(left, {"name": "A", "n": 1})
    assert changed["envelope"]["availability_state"] == "partially_redacted"
    again = await redact(writer, changed, "/name")
    assert again["envelope"]["canonical_content"] == {"n": 1}
    back = writer.change(again, dimension="availability", target_state="available", policy_basis="p")
    assert (await writer.refused("transition", back))["code"] == "invalid_request"
    restored = await writer.ok("transition", {**back, "canonical_content": {"n": 2}})
    assert restored["envelope"]["availability_state"] == "available"
    assert (await redact(writer, restored))["envelope"]["canonical_content"] == TOMBSTONE
    await writer.check_scope()


async def test_what_a_redaction_by_paths_carries_over(writer: Writer) -> None:
    """Provenance and signals of the version stay (decisions 14); what the client said about the whole content goes."""
    made = await writer.create(
        {"a": 1, "b": 2},
        integrity={"digest": "d", "algorithm": "sha-256"},
        quality_signals={"evidence_strength": 0.5},
        relationship_refs=["rel:1"],
        valid_from="2026-01-01T00:00:00Z",
        provenance={"activity": "told", "source_ref": "mail:1", "integrity_ref": "i", "evidence_refs": ["file:1"]},
    )
    left = (await redact(writer, made, "/a"))["envelope"]
    assert "integrity" not in left
    assert left["quality_signals"] == {"evidence_strength": 0.5}
    assert (left["relationship_refs"], left["valid_from"]) == (["rel:1"], "2026-01-01T00:00:00.000000Z")
    told = left["provenance"]
    assert (told["source_ref"], told["evidence_refs"], told["activity"]) == ("mail:1", ["file:1"], "redact")
    assert "integrity_ref" not in told
    assert told["transformation_parent"] == made["version_id"]
    own = {"activity": "cleaned", "integrity_ref": "j"}
    mine = (await redact(writer, {**made, "version_id": left["version_id"]}, "/b", provenance=own))["envelope"]
    assert mine["provenance"]["integrity_ref"] == "j"
    assert not {"source_ref", "evidence_refs"} & mine["provenance"].keys()


async def test_chosen_versions_go_and_the_object_stays(writer: Writer) -> None:
    made = [await writer.create("v1")]
    for text in ("v2", "v3", "v4", "v5"):
        made.append(await writer.update(made[-1], text))
    ids = [made[3]["version_id"], made[0]["version_id"], made[2]["version_id"], made[0]["version_id"]]
    left = await redact(writer, made[-1], version_ids=ids)
    envelope = left["envelope"]
    assert (envelope["canonical_content"], envelope["availability_state"], left["sequence"]) == ("v5", "available", 6)
    erased = (await writer.ledger())[-1].event["payload"]["erased"]
    assert erased == [{"from_sequence": 1, "to_sequence": 1}, {"from_sequence": 3, "to_sequence": 4}]
    kept = [row[1] for row in await stored(writer, left["object_id"])]
    assert kept == [None, b'"v2"', None, None, b'"v5"', b'"v5"']
    again = await redact(writer, left, version_ids=[made[0]["version_id"], made[1]["version_id"]])
    assert [row[1] for row in await stored(writer, left["object_id"])] == [None, None, None, None, *[b'"v5"'] * 3]
    await writer.delete(again)
    assert all(row[1] is None for row in await stored(writer, left["object_id"]))
    await writer.check_scope()


async def test_paths_and_chosen_versions_together(writer: Writer) -> None:
    """The new version is the projection; of the others exactly the named ones go, the current one included."""
    first = await writer.create({"a": 1, "b": 1})
    second = await writer.update(first, {"a": 2, "b": 2})
    left = await redact(writer, second, "/a", version_ids=[second["version_id"]])
    assert left["envelope"]["canonical_content"] == {"b": 2}
    assert left["envelope"]["availability_state"] == "partially_redacted"
    assert [row[1] for row in await stored(writer, left["object_id"])] == [b'{"a":1,"b":1}', None, b'{"b":2}']


async def test_versions_that_cannot_be_chosen(writer: Writer) -> None:
    made = await writer.create("mine")
    other = await writer.create("other")
    there = await writer.new_scope()
    foreign = await writer.ok("create", claim(there, "foreign"))
    for version_id in ("ver:none", other["version_id"], foreign["version_id"]):
        error = await writer.refused("redact", redaction(writer, made, version_ids=[made["version_id"], version_id]))
        assert error["code"] in ("object_not_found", "invalid_request")
        error = await writer.refused("redact", redaction(writer, made, version_ids=[version_id]))
        assert (error["code"], error["details"]["index"]) == ("object_not_found", 0)
    error = await writer.refused("redact", redaction(writer, made, version_ids=[made["version_id"]]))
    assert (error["code"], error["details"]["field"]) == ("invalid_request", "version_ids")
    assert await writer.count("core.version_private", "content IS NULL") == 0


@pytest.mark.parametrize("content", [{"a": 1}, [1], "text", None])
async def test_a_path_into_nothing_erases_nothing(writer: Writer, content: Any) -> None:
    made = await writer.create(content)
    document = redaction(writer, made, "/0/SECRET-name", idempotency_key="k")
    error = await writer.refused("redact", document)
    assert (error["code"], error["details"]["index"]) == ("invalid_request", 0)
    assert "SECRET" not in str(error)
    assert await writer.refused("redact", document) == error
    assert await writer.count("core.version") == 1


@pytest.mark.parametrize(
    "change",
    [
        {"redaction_target": {}},
        {"redaction_target": {"whole": False}},
        {"redaction_target": {"whole": True, "paths": ["/a"]}},
        {"redaction_target": {"paths": []}},
        {"redaction_target": {"paths": [""]}},
        {"redaction_target": {"paths": ["a"]}},
        {"redaction_target": {"paths": ["/~"]}},
        {"redaction_target": {"paths": [1]}},
        {"redaction_target": {"paths": ["/a"] * 1001}},
        {"redaction_target": "whole"},
        {"redaction_target": {"fields": ["a"]}},
        {"version_ids": []},
        {"version_ids": ["no id"]},
        {"policy_basis": ""},
        {"relationship_id": "rel:1"},
        {"canonical_content": 1},
    ],
)
async def test_a_malformed_redaction(writer: Writer, change: Document) -> None:
    made = await writer.create({"a": 1})
    error = await writer.refused("redact", {**redaction(writer, made), **change})
    assert error["code"] == "invalid_request"
    assert await writer.count("core.version") == 1


@pytest.mark.parametrize("more", [{}, {"redaction_target": {"paths": ["/a"]}}])
async def test_a_hold_keeps_everything(writer: Writer, more: Document) -> None:
    made = await writer.create({"a": 1})
    held = writer.change(made, dimension="retention", target_state="legal_hold", policy_basis="p")
    made = await writer.ok("transition", held)
    assert (await writer.refused("redact", redaction(writer, made) | more))["code"] == "legal_hold"
    past = redaction(writer, made, version_ids=[made["version_id"]])
    assert (await writer.refused("redact", past))["code"] == "legal_hold"
    move = writer.change(made, dimension="availability", target_state="redacted", policy_basis="p")
    assert (await writer.refused("transition", move))["code"] == "legal_hold"
    release = writer.change(made, dimension="retention", target_state="pending_deletion", policy_basis="released")
    made = await writer.ok("transition", release)
    assert (await redact(writer, made))["envelope"]["availability_state"] == "redacted"


async def test_a_transition_to_redacted_runs_as_redact(writer: Writer) -> None:
    made = await writer.create("x", provenance={"activity": "told", "source_ref": "mail:1"})
    move = writer.change(made, dimension="availability", target_state="redacted", policy_basis="p")
    gone = await writer.ok("transition", move, key="k")
    assert gone["envelope"]["canonical_content"] == TOMBSTONE
    assert gone["envelope"]["provenance"]["activity"] == "redact"
    assert "source_ref" not in gone["envelope"]["provenance"]
    assert (await writer.ledger())[-1].event["event_type"] == "object_redacted"
    assert await stored(writer, made["object_id"]) == [GONE, (True, None, True, False)]
    assert await writer.ok("transition", move, key="k") == gone


@pytest.mark.parametrize("expected", ["current", "first"])
async def test_what_is_redacted_changes_no_more_in_content(writer: Writer, expected: str) -> None:
    made = await writer.create("x")
    gone = await redact(writer, made)
    about = gone if expected == "current" else made
    codes = {
        "redact": redaction(writer, about),
        "update": writer.change(about, canonical_content="again", provenance=PROVENANCE),
    }
    for operation, document in codes.items():
        code = (await writer.refused(operation, document))["code"]
        assert code == ("object_redacted" if expected == "current" else "version_conflict")
    back = writer.change(gone, dimension="availability", target_state="available", policy_basis="p")
    error = await writer.refused("transition", {**back, "canonical_content": "again"})
    assert (error["code"], error["details"]["reason"]) == ("invalid_state_transition", "needs_policy")
    error = await writer.refused("create", claim(writer.scope, "again", object_id=made["object_id"]))
    assert error["code"] == "version_conflict"


async def test_what_is_deleted_stays_deleted(writer: Writer) -> None:
    made = await writer.create("x")
    gone = await writer.delete(made)
    for about in (gone, made):
        assert (await writer.refused("redact", redaction(writer, about)))["code"] == "object_deleted"
    missing = {**redaction(writer, made), "object_id": "obj:none"}
    assert (await writer.refused("redact", missing))["code"] == "object_not_found"
    stale = {**redaction(writer, await writer.create("y")), "expected_version_id": "ver:none"}
    assert (await writer.refused("redact", stale))["code"] == "version_conflict"


@pytest.mark.parametrize("paths", [(), ("/a",)])
async def test_repetitions_after_a_redaction(writer: Writer, paths: tuple[str, ...]) -> None:
    """S16: the key answers object_redacted whatever the payload, and a source event never recreates."""
    source = {"source": "mail", "id": f"1{len(paths)}"}
    create = claim(writer.scope, {"a": 1, "b": 2}, source_event=source, idempotency_key="create")
    made = await writer.ok("create", create)
    update = writer.change(made, canonical_content={"a": 2}, provenance=PROVENANCE, idempotency_key="update")
    changed = await writer.ok("update", update)
    redact_ = redaction(writer, changed, *paths, idempotency_key="redact")
    gone = await writer.ok("redact", redact_)
    for operation, document in (("create", create), ("update", update)):
        for content in ({"a": 1, "b": 2}, "anything"):
            error = await writer.refused(operation, {**document, "canonical_content": content})
            assert error["code"] == "object_redacted", (operation, content)
    for content in ({"a": 1, "b": 2}, "anything"):
        error = await writer.refused("create", claim(writer.scope, content, source_event=source))
        assert error["code"] == "object_redacted"
    again = await writer.call("redact", redact_)
    assert (orjson.loads(again.body), again.headers["Idempotency-Replayed"]) == (gone, "true")
    other = await writer.refused("redact", {**redact_, "policy_basis": "other"})
    assert other["code"] == "duplicate_operation"
    looked = await writer.ok("get_operation", {"scope_id": writer.scope, "operation_id": made["operation_id"]})
    assert looked["outcome"]["error"]["code"] == "object_redacted"
    looked = await writer.ok("get_operation", {"scope_id": writer.scope, "operation_id": gone["operation_id"]})
    assert looked["outcome"] == gone
    # After a deletion everything answers that, the redaction's own record too.
    await writer.delete(gone)
    for operation, document in (("create", create), ("update", update), ("redact", redact_)):
        assert (await writer.refused(operation, document))["code"] == "object_deleted"
    assert (await writer.refused("create", claim(writer.scope, 1, source_event=source)))["code"] == "object_deleted"


async def test_what_was_not_erased_is_repeated_as_it_was(writer: Writer) -> None:
    source = {"source": "mail", "id": "kept"}
    first = await writer.create("v1", idempotency_key="1")
    update = writer.change(
        first, canonical_content="v2", provenance=PROVENANCE, idempotency_key="2", source_event=source
    )
    second = await writer.ok("update", update)
    third = await writer.update(second, "v3")
    await redact(writer, third, version_ids=[first["version_id"]])
    assert await writer.ok("update", update) == second
    assert (await writer.refused("create", claim(writer.scope, "v1", idempotency_key="1")))["code"] == "object_redacted"


@pytest.mark.parametrize("atomic", [False, True])
async def test_in_a_batch(writer: Writer, atomic: bool) -> None:
    """Each item sees what those before it left: also repetitions of what the batch itself erases."""
    made = await writer.create({"a": 1, "b": 2})
    create = {"operation": "create", **claim(writer.scope, "new", object_id=f"obj:new-{atomic}")}
    items = [
        {"operation": "redact", **redaction(writer, made, "/a")},
        {**create, "idempotency_key": "twice", "source_event": {"source": "s", "id": str(atomic)}},
    ]
    batch = await writer.ok("batch", {"scope_id": writer.scope, "atomic": atomic, "items": items}, key="b")
    left, new = batch["results"]
    assert left["envelope"]["canonical_content"] == {"b": 2}
    gone = {"operation": "redact", **redaction(writer, new)}
    again = {"scope_id": writer.scope, "atomic": atomic, "items": [gone, items[1]]}
    answer = await writer.call("batch", again)
    assert b"object_redacted" in answer.body
    assert answer.status == (410 if atomic else 200)
    assert (await stored(writer, new["object_id"]))[0] == ((True, b'"new"', True, True) if atomic else GONE)
    replay = await writer.call("batch", {"scope_id": writer.scope, "atomic": atomic, "items": items}, key="b")
    assert (b"object_redacted" in replay.body) == (not atomic)
    await writer.check_scope()


async def test_a_batch_that_fails_redacts_nothing(writer: Writer) -> None:
    made = await writer.create({"a": 1})
    items = [
        {"operation": "redact", **redaction(writer, made)},
        {"operation": "delete", **writer.change(made, policy_basis="p")},
    ]
    error = await writer.refused("batch", {"scope_id": writer.scope, "atomic": True, "items": items})
    assert (error["code"], error["details"]["index"]) == ("version_conflict", 1)
    assert await stored(writer, made["object_id"]) == [(True, b'{"a":1}', True, True)]


async def test_a_thousand_versions_go_in_one_statement(writer: Writer) -> None:
    """Set-based: the time of a redaction does not follow the number of versions, one by one; again costs nothing."""
    made = await writer.create({"n": 0, "secret": "s"})
    for number in range(1, 1000):
        made = await writer.update(made, {"n": number, "secret": "s"})
    began = time.perf_counter()
    left = await redact(writer, made, "/secret")
    took = time.perf_counter() - began
    assert await writer.count("core.version_private", "content IS NOT NULL") == 1
    assert await writer.count("core.version_private", "salt IS NOT NULL") == 1
    assert await writer.count("core.version_span", "content IS NOT NULL") == 1
    assert await writer.count("core.operation_record", "salt IS NOT NULL") == 1
    assert left["sequence"] == 1001
    assert took < 10, f"{took:.2f} s"
    await writer.check_scope()


async def test_a_batch_of_a_thousand_redactions(writer: Writer) -> None:
    """Half of them stale; the time is the service's own, without the check of its answer by the contracts."""
    items = [{"operation": "create", **claim(writer.scope, {"secret": n})} for n in range(500)]
    made = (await writer.ok("batch", {"scope_id": writer.scope, "items": items}))["results"]
    goings = [{"operation": "redact", **redaction(writer, one)} for one in made]
    body = orjson.dumps({"scope_id": writer.scope, "items": goings * 2})
    began = time.perf_counter()
    answer = await run(writer.service.operations, Call("batch", writer.signer.sign(AGENT), body))
    took = time.perf_counter() - began
    codes = [result.get("error", {}).get("code") for result in orjson.loads(answer.body)["results"]]
    assert codes == [None] * 500 + ["version_conflict"] * 500
    assert await writer.count("core.version_private", "content IS NOT NULL") == 0
    assert took < 20, f"{took:.2f} s"


async def test_a_policy_that_restores_what_was_redacted(writer: Writer) -> None:
    """P97: redacted -> available where the scope's policy opens that edge, with content from the request alone."""
    scope_id = f"{writer.scope}-restoring"
    policy = {"overrides": [{"dimension": "availability", "from": "redacted", "to": "available"}]}
    await writer.ok("create_scope", {"scope_id": scope_id, "policy": policy})
    made = await writer.ok("create", claim(scope_id, "secret", idempotency_key="first"))
    gone = await redact(writer, made)
    back = writer.change(gone, dimension="availability", target_state="available", policy_basis="restored")
    assert (await writer.refused("transition", back))["code"] == "invalid_request"
    restored = await writer.ok("transition", {**back, "canonical_content": "public"})
    envelope = restored["envelope"]
    assert (envelope["canonical_content"], envelope["availability_state"]) == ("public", "available")
    # What was erased stays erased.
    error = await writer.refused("create", claim(scope_id, "secret", idempotency_key="first"))
    assert error["code"] == "object_redacted"
