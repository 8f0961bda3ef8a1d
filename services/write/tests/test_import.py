"""import: a round trip gives the same bytes and the same rows, whatever the scope holds; half a file gives nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_common import contracts
from pamspec_common.principal import Principal
from pamspec_common.transfer import manifest_digest
from pamspec_query.app import build as build_query
from pamspec_query.settings import Settings as QuerySettings
from pamspec_write.handlers import storing
from pamspec_write.handlers.outbox import OutboxBound
from services.write.tests.delegating import Delegating
from services.write.tests.test_rights import bind
from services.write.tests.transfer import Store, rebuilt, without_manifest
from services.write.tests.writer import (
    ADMIN,
    AGENT,
    KEY,
    KID,
    PROVENANCE,
    SUBSCRIPTION,
    TENANT,
    Document,
    Writer,
    claim,
)

NAME = "workspace:garden"
SECOND = "tenant:second"
DELEGATE, THIRD = (Principal(TENANT, f"agent:{name}", "agent") for name in ("delegate", "third"))


@pytest_asyncio.fixture(loop_scope="session")
async def store(writer: Writer, database: Database) -> AsyncIterator[Store]:
    """The write service with a query service beside it, a second tenant, and the scope that is exported."""
    query = build_query(QuerySettings(database_url=database.role("query"), token_keys={KID: KEY}, drain_s=2.0))
    await query.start()
    await writer.admin.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1)", SECOND)
    writer.scope = await writer.new_scope(NAME)
    yield Store(writer, query)
    await query.stop()


async def lived(writer: Writer) -> None:
    """A scope with everything that a ledger can tell of."""
    policy = {"object_types": {"deny": ["org.example.forbidden"]}}
    await writer.ok(
        "update_scope",
        {"scope_id": NAME, "policy": policy, "expected_policy_version": 0, "policy_basis": "the first one"},
    )
    schema = {"type": "object", "required": ["weight"]}
    await writer.ok("register_schema", {"scope_id": NAME, "schema_id": "https://example.org/weighed", "schema": schema})
    a = await writer.create({"n": 1, "x": 0.10}, object_id="obj:a", observed_at="2026-03-01T09:00:00+02:00")
    odd = writer.change(a, canonical_content={"n": 2, "t": "a\0b", "big": 10**300}, provenance=PROVENANCE)
    a = json.loads((await writer.call("update", json.dumps(odd).encode())).body)
    held = await writer.ok("transition", writer.change(a, dimension="retention", target_state="legal_hold",
                                                       policy_basis="a court asked"))  # fmt: skip
    await writer.ok(
        "transition", writer.change(held, dimension="validation", target_state="corroborated", policy_basis="seen")
    )
    gone = await writer.create("secret of the deleted", source_event={"source": "mail", "id": "m-1"})
    gone = await writer.update(gone, "second secret of the deleted")
    await writer.delete(gone)
    await writer.create(
        None, object_type="org.example.odd-thing", schema_id="https://example.org/odd", object_id="obj:b"
    )
    await writer.create({"tool_name": "t", "arguments": {}}, object_type="tool_invocation", object_id="obj:call")
    await writer.create({"invocation_object_id": "obj:call", "outcome": "success"}, object_type="tool_result")
    await writer.ok("create", claim(NAME, "kept", source_event={"source": "mail", "id": "m-2"}), key="key-2")
    edge = await writer.ok(
        "relate",
        {"scope_id": NAME, "source_object_id": "obj:a", "target_object_id": "obj:b", "canonical_content": {"w": 1},
         "relationship_type": "org.example.shades", "directionality": "directed", "provenance": PROVENANCE},
    )  # fmt: skip
    await writer.ok("relate", {"scope_id": NAME, "relationship_id": edge["relationship_id"],
                               "expected_version_id": edge["version_id"], "canonical_content": {"w": 2},
                               "provenance": PROVENANCE})  # fmt: skip
    part = await writer.create({"name": "secret of the redacted", "kept": True})
    await writer.ok("redact", writer.change(part, policy_basis="their wish", redaction_target={"paths": ["/name"]}))
    whole = await writer.create("secret, whole")
    await writer.ok("redact", writer.change(whole, policy_basis="their wish", redaction_target={"whole": True}))
    items: list[Any] = [{"operation": "create", **claim(NAME, f"item {n}")} for n in range(3)]
    await writer.ok("batch", {"scope_id": NAME, "items": items, "atomic": True}, key="batch-1")
    await writer.ok(
        "record_event",
        {"scope_id": NAME, "event_type": "subscription_opened",
         "payload": {"subscription_id": "sub:1", "channel": "poll"}},
        by=SUBSCRIPTION,
    )  # fmt: skip
    await writer.ok("seal_snapshot", {"scope_id": NAME, "snapshot_id": "snap:one"})
    await writer.create("display", actor={"actor_id": "agent:tester", "actor_kind": "agent", "display_name": "Tess"})
    await writer.refused("create", claim(NAME, "again", object_id="obj:a"))
    await delegated(writer)


async def delegated(writer: Writer) -> Document:
    """A grant that was passed on, used in a write and in a check, and another one that ended; the one that is used."""
    given = Delegating(writer, AGENT, DELEGATE)
    await bind(writer, AGENT.actor_id, "contributor", NAME)
    granted = await given.grant(usage_limit=5, redelegation_depth=1, granted_object_types=["claim"])
    await given.create(granted)
    await given.check(granted)
    await given.grant(
        DELEGATE, THIRD, delegation_id=granted["delegation_id"], usage_limit=1, granted_object_types=["claim"]
    )
    await given.revoke(await given.grant(policy_basis="a reason that moves along"))
    return granted


async def test_an_import_brings_the_records_of_grants_and_none_of_their_power(store: Store) -> None:
    """P180: what a file tells of grants can be read and verified; nobody may do anything by it."""
    granted = await delegated(store.writer)
    body = await store.export(NAME)
    await store.imported(body)
    await store.imported(body, "remap=workspace:copy", by=AGENT)
    there = Principal(SECOND, DELEGATE.actor_id, DELEGATE.actor_kind)
    by_id = {"delegation_id": granted["delegation_id"]}
    for scope_id, by in ((NAME, store.other), ("workspace:copy", AGENT)):
        assert (await store.ask("verify_ledger", scope_id=scope_id, by=by))["ok"] is True
        found = await store.ask("inspect_history", scope_id=scope_id, by=by, **by_id)
        assert found["versions"][0]["policy_basis"] == granted["envelope"]["policy_basis"]
    checking = {**by_id, "operation": "create"}
    assert (await store.writer.refused("check_delegation", checking, by=there))["code"] == "object_not_found"
    assert (await store.writer.refused("create", claim(NAME, **by_id), by=there))["code"] == "scope_not_found"
    assert (await store.writer.refused("create", claim("workspace:copy", **by_id), by=DELEGATE))["code"] == (
        "scope_not_found"
    )


async def test_holds_over_scopes_and_types_are_preserved(store: Store) -> None:
    """What was held is held, from the moment that the scope is there; a release lets go of what it was before."""
    writer = store.writer
    kept = await writer.create("held by its type", object_id="obj:held")
    over = await writer.ok("place_hold", {"scope_id": NAME, "object_type": "claim", "policy_basis": "a court asked"})
    past = await writer.ok("place_hold", {"scope_id": NAME, "object_type": "task", "policy_basis": "by mistake"})
    await writer.ok("release_hold", {"scope_id": NAME, "hold_id": past["hold_id"], "policy_basis": "it was one"})
    await _at_rest(writer)
    assert kept["envelope"]["retention_state"] == "retained"
    before, rows = await store.export(NAME), await store.rows(NAME, TENANT)
    await store.imported(before)
    assert await store.rows(NAME, SECOND) == rows
    assert len(rows["legal_hold"]) == 2
    assert len(rows["held_object"]) == 1
    await _at_rest(writer)
    assert without_manifest(await store.export(NAME, by=store.other)) == without_manifest(before)
    await store.imported(before, "remap=workspace:copy", by=AGENT)
    for scope_id, by in ((NAME, store.other), ("workspace:copy", AGENT)):
        made = await writer.ok("create", claim(scope_id, "new", object_id="obj:new"), by=by)
        body = {"scope_id": scope_id, "object_id": "obj:new", "expected_version_id": made["version_id"]}
        assert (await writer.refused("delete", {**body, "policy_basis": "no"}, by=by))["code"] == "legal_hold"
    release = {"scope_id": NAME, "hold_id": over["hold_id"], "policy_basis": "the court is done"}
    await writer.ok("release_hold", release, by=store.other)
    await _at_rest(writer)
    read = await store.ask("read", scope_id=NAME, object_id="obj:held")
    assert read["envelope"]["retention_state"] == "retained"
    copy = await store.ask("read", scope_id="workspace:copy", object_id="obj:held", by=AGENT)
    assert copy["envelope"]["retention_state"] == "legal_hold"


async def _at_rest(writer: Writer) -> None:
    """The job of the holds has nothing left to do."""
    async with asyncio.timeout(60):
        while await writer.admin.fetchval("SELECT count(*) FROM core.holds_due(10)"):
            await asyncio.sleep(0.05)


async def test_a_round_trip_gives_the_same_file_and_the_same_rows(store: Store) -> None:
    """P15, P58, P78, P192: identity, history, hashes, unknown types, erasures and holds survive."""
    writer = store.writer
    await lived(writer)
    before, rows = await store.export(NAME), await store.rows(NAME, TENANT)
    assert b"secret" not in before
    answer = await store.imported(before)
    assert (answer["scope_id"], answer["imported"]) == (NAME, True)
    after = await store.export(NAME, by=store.other)
    assert without_manifest(after) == without_manifest(before)
    assert await store.rows(NAME, SECOND) == rows
    assert (await store.ask("verify_ledger", scope_id=NAME))["ok"] is True
    end = orjson.loads(before.splitlines()[-1])
    assert answer["entries"] == end["entries"] > 20
    assert answer["head_hash"] == "sha256:" + end["head_hash"]
    found = await store.ask("read", scope_id=NAME, object_id="obj:a")
    assert found["envelope"]["retention_state"] == "legal_hold"


async def test_events_reach_the_outbox_in_order_and_the_scope_goes_on(store: Store) -> None:
    writer = store.writer
    await lived(writer)
    await store.imported(await store.export(NAME))
    key = await writer.scope_key(NAME, SECOND)
    waiting = await writer.admin.fetch("SELECT * FROM relay.outbox WHERE scope_key = $1 ORDER BY id", key)
    ledger = await writer.admin.fetch("SELECT * FROM core.ledger WHERE scope_key = $1 ORDER BY sequence", key)
    assert [(row["sequence"], row["message"]) for row in waiting] == [(row["sequence"], row["event"]) for row in ledger]
    scope = await writer.admin.fetchrow("SELECT * FROM core.scope WHERE scope_key = $1", key)
    assert scope is not None
    head = f"pamspec.ledger.{scope['partition']}.{scope['tenant_token']}.{scope['scope_token']}."
    assert {row["subject"].rpartition(".")[0] + "." for row in waiting} == {head}
    made = await writer.ok("create", claim(NAME, "the first one here"), by=store.other)
    assert made["ledger_sequence"] == len(ledger) + 1
    unweighed = claim(NAME, {}, object_type="org.example.thing", schema_id="https://example.org/weighed")
    assert (await writer.refused("create", unweighed, by=store.other))["code"] == "invalid_object"
    read = await store.ask("read", scope_id=NAME, object_id="obj:a")
    body = {"scope_id": NAME, "object_id": "obj:a", "expected_version_id": read["envelope"]["version_id"]}
    refused = await writer.refused("delete", {**body, "policy_basis": "no"}, by=store.other)
    assert refused["code"] == "legal_hold"
    assert (await store.ask("verify_ledger", scope_id=NAME))["ok"] is True


async def test_the_same_source_event_and_the_same_key_are_recognised_after_an_import(store: Store) -> None:
    """K6, K7: also by a tombstone that keeps an erased event from coming back."""
    writer = store.writer
    await lived(writer)
    await store.imported(await store.export(NAME))
    same = Principal(SECOND, AGENT.actor_id, AGENT.actor_kind, roles=ADMIN)
    request = claim(NAME, "kept", source_event={"source": "mail", "id": "m-2"})
    again = await writer.call("create", request, key="key-2", by=same)
    assert (again.status, again.headers["Idempotency-Replayed"]) == (201, "true")
    by_source = await writer.call("create", request, by=store.other)
    assert orjson.loads(by_source.body)["object_id"] == orjson.loads(again.body)["object_id"]
    other = claim(NAME, "changed", source_event={"source": "mail", "id": "m-2"})
    assert (await writer.refused("create", other, by=store.other))["code"] == "duplicate_operation"
    erased = claim(NAME, "secret of the deleted", source_event={"source": "mail", "id": "m-1"})
    assert (await writer.refused("create", erased, by=store.other))["code"] == "object_deleted"


async def test_the_same_file_again_is_the_same_answer(store: Store) -> None:
    writer = store.writer
    await lived(writer)
    body = await store.export(NAME)
    first = await store.import_(body)
    traces = await store.traces()
    again = await store.import_(body)
    assert (again.status, again.body) == (200, first.body)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert await store.traces() == traces
    await writer.ok("create", claim(NAME, "later"), by=store.other)
    later = await store.import_(body)
    assert later.body == first.body
    back = await store.imported(body, by=AGENT)
    assert back["entries"] == orjson.loads(first.body)["entries"]
    looked_up = await writer.ok(
        "get_operation", {"scope_id": NAME, "operation_id": orjson.loads(first.body)["operation_id"]}, by=store.other
    )
    assert looked_up["state"] == "committed"
    assert looked_up["outcome"] == orjson.loads(first.body)


async def test_a_scope_that_holds_something_else_is_left_alone(store: Store) -> None:
    writer = store.writer
    await lived(writer)
    body = await store.export(NAME)
    await writer.ok("create_scope", {"scope_id": NAME}, by=store.other)
    await writer.ok("create", claim(NAME, "mine"), by=store.other)
    traces = await store.traces()
    error = await store.refused(body)
    assert (error["code"], error["details"]["reason"]) == ("duplicate_operation", "scope_not_empty")
    skipped = await store.imported(body, "on_conflict=skip")
    assert skipped["imported"] is False
    assert await store.traces() == traces


async def test_an_empty_scope_takes_an_import(store: Store) -> None:
    writer = store.writer
    await lived(writer)
    body = await store.export(NAME)
    await writer.ok("create_scope", {"scope_id": NAME, "scope_kind": "team"}, by=store.other)
    await store.imported(body)
    assert without_manifest(await store.export(NAME, by=store.other)) == without_manifest(body)
    assert (await store.ask("get_scope", scope_id=NAME))["scope"]["scope_kind"] == "workspace"
    await writer.ok("create", claim(NAME, "goes on"), by=store.other)
    assert (await store.ask("verify_ledger", scope_id=NAME))["ok"] is True


async def test_a_file_that_names_embedding_spaces_is_taken(store: Store) -> None:
    """What is derived is never needed: the importing tenant neither needs the spaces, nor gets them by the file."""
    await lived(store.writer)
    lines = (await store.export(NAME, embeddings="reference")).splitlines(keepends=True)
    named = {
        "embedding_space_id": "space:of-elsewhere", "provider": "p", "model": "m", "model_revision": "1",
        "dimensions": 3, "distance_metric": "cosine", "normalization": "none", "preprocessing_profile": "none",
        "embedding_kind": "dense", "canonicalization_rules": "none",
    }  # fmt: skip
    counted = {"embedding_space_id": "space:of-elsewhere", "objects": 2, "vectors": 3}
    told = {"requested": "reference", "included": False, "spaces": [named], "counts": [counted]}
    document = orjson.loads(lines[0]) | {"embeddings": told}
    document["digest"] = manifest_digest(orjson.dumps(document))
    body = orjson.dumps(document) + b"\n" + b"".join(lines[1:])
    assert (await store.imported(body))["imported"] is True
    again = await store.export(NAME, by=store.other)
    assert without_manifest(again) == b"".join(lines[1:]), "the round trip stays byte for byte"
    sql = "SELECT count(*) FROM core.embedding_space WHERE embedding_space_id = 'space:of-elsewhere'"
    assert await store.writer.admin.fetchval(sql) == 0


async def test_an_empty_ledger_takes_the_trip_too(store: Store) -> None:
    body = await store.export(NAME)
    assert (await store.imported(body))["entries"] == 0
    assert without_manifest(await store.export(NAME, by=store.other)) == without_manifest(body)
    assert (await store.import_(body)).headers["Idempotency-Replayed"] == "true"


async def test_remapped(store: Store) -> None:
    """P15, P192: another name has a ledger of its own, whose versions point to those that they were."""
    writer = store.writer
    await lived(writer)
    body = await store.export(NAME)
    answer = await store.imported(body, "remap=workspace:copy", by=AGENT)
    old_scope = orjson.loads(body.splitlines()[1])
    assert answer["remapped_from"] == {"scope_id": NAME, "ledger_id": old_scope["ledger_id"]}
    assert (await store.ask("verify_ledger", scope_id="workspace:copy", by=AGENT))["ok"] is True
    copy = await store.export("workspace:copy")
    assert orjson.loads(copy.splitlines()[1])["ledger_id"] != old_scope["ledger_id"]
    pairs = list(zip(entries_of(body), entries_of(copy), strict=True))
    versions = {old["event"]["version_id"]: new["event"]["version_id"] for old, new in pairs if "version" in old}
    for old, new in pairs:
        event = new["event"]
        contracts.check_event(event)
        assert (event["scope_id"], event["sequence"]) == ("workspace:copy", old["event"]["sequence"])
        assert event["event_id"] != old["event"]["event_id"]
        assert event["payload"]["imported"] == {
            "scope_id": NAME,
            "sequence": old["event"]["sequence"],
            "event_id": old["event"]["event_id"],
            "actor_id": AGENT.actor_id,
        }
        for name in ("object_id", "relationship_id", "actor", "operation_id", "recorded_at", "event_type"):
            assert event.get(name) == old["event"].get(name)
        if "version_id" in event:
            assert event["version_id"] == versions[old["event"]["version_id"]]
        if "private" in new.get("version", {}):
            provenance = new["version"]["private"]["provenance"]
            assert provenance["transformation_parent"] == old["event"]["version_id"]
            assert f"imported-from:{NAME}" in provenance["evidence_refs"]
            assert new["version"].get("content", ...) == old["version"].get("content", ...)
        assert ("private" in new.get("version", {})) == ("private" in old.get("version", {}))
    by_version = {new["event"]["version_id"]: new for _, new in pairs if "version" in new}
    for _, new in pairs:
        if new["event"]["event_type"] in ("tool_invoked", "tool_completed"):
            made = by_version[new["event"]["version_id"]]["event"]["payload"]["version_digest"]
            assert new["event"]["payload"]["version_digest"] == made
    kept = await store.ask("get_scope", scope_id="workspace:copy", by=AGENT)
    assert kept["scope"]["policy"] == {"object_types": {"deny": ["org.example.forbidden"]}}


def entries_of(body: bytes) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in body.splitlines()]
    return [line for line in lines if line["kind"] == "entry"]


async def test_the_same_remapping_again_is_the_same_answer(store: Store) -> None:
    writer = store.writer
    await lived(writer)
    body = await store.export(NAME)
    first = await store.import_(body, "remap=workspace:copy", by=AGENT)
    again = await store.import_(body, "remap=workspace:copy", by=AGENT)
    assert again.body == first.body
    error = await store.refused(await store.export("workspace:copy"), "remap=workspace:copy", by=AGENT)
    assert error["code"] == "invalid_request"
    await writer.create("more")
    error = await store.refused(await store.export(NAME), "remap=workspace:copy", by=AGENT)
    assert error["code"] == "duplicate_operation"
    request = claim("workspace:copy", "kept", source_event={"source": "mail", "id": "m-2"})
    assert (await writer.call("create", request)).headers["Idempotency-Replayed"] == "true"


async def test_many_batches_keep_histories_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "BATCH_LINES", 2)
    writer = store.writer
    await lived(writer)
    first = await writer.create(0, object_id="obj:long")
    for number in range(1, 9):
        first = await writer.update(first, number)
        await writer.create(number)
    rows = await store.rows(NAME, TENANT)
    await store.imported(await store.export(NAME))
    assert await store.rows(NAME, SECOND) == rows


async def test_two_imports_at_once_make_one_scope(store: Store) -> None:
    await lived(store.writer)
    body = await store.export(NAME)
    answers = await asyncio.gather(*(store.import_(body) for _ in range(2)))
    assert {answer.status for answer in answers} == {200}
    assert answers[0].body == answers[1].body
    assert sum("Idempotency-Replayed" in answer.headers for answer in answers) == 1
    assert (await store.ask("verify_ledger", scope_id=NAME))["ok"] is True


async def test_two_different_imports_at_once_into_one_scope(store: Store) -> None:
    writer = store.writer
    await lived(writer)
    shorter = await store.export(NAME)
    await writer.create("more")
    longer = await store.export(NAME)
    answers = await asyncio.gather(store.import_(shorter), store.import_(longer))
    statuses = sorted(answer.status for answer in answers)
    assert statuses in ([200, 409], [200, 200]), "the longer one holds the shorter one"
    assert (await store.ask("verify_ledger", scope_id=NAME))["ok"] is True


async def test_a_body_in_any_pieces(store: Store) -> None:
    await lived(store.writer)
    body = await store.export(NAME)
    pieces = [body[start : start + 7] for start in range(0, len(body), 7)]
    answer = await store.import_(pieces)
    assert answer.status == 200, answer.body


async def test_content_that_was_erased_while_it_was_exported_is_not_stored(store: Store) -> None:
    """A file that has content and, later, the entry that erased it: the entry wins."""
    writer = store.writer
    made = await writer.create("secret, still there")
    body_before = await store.export(NAME)
    await writer.delete(made)
    body = await store.export(NAME)
    lines = body.splitlines()
    lines[2] = body_before.splitlines()[2]
    await store.imported(rebuilt(lines))
    assert await store.rows(NAME, SECOND) == await store.rows(NAME, TENANT)
    assert b"secret" not in await store.export(NAME, by=store.other)
    for table in ("version_private", "version_span"):
        found = await writer.admin.fetchval(f"SELECT count(*) FROM core.{table} t WHERE t::text LIKE '%secret%'")
        assert found == 0


async def test_a_client_that_leaves_leaves_nothing(store: Store) -> None:
    await lived(store.writer)
    body = await store.export(NAME)
    traces = await store.traces()
    pieces: Any = [body[: len(body) // 2], None]
    answer = await store.import_(pieces)
    assert answer.status >= 400
    assert await store.traces() == traces
    await store.imported(body)


async def test_keys_of_an_import(store: Store) -> None:
    await lived(store.writer)
    body = await store.export(NAME)
    first = await store.import_(body, "operation_id=op:mine&scope_id=" + NAME, key="import-1")
    assert orjson.loads(first.body)["operation_id"] == "op:mine"
    found = await store.writer.ok(
        "get_operation", {"scope_id": NAME, "operation": "import", "idempotency_key": "import-1"}, by=store.other
    )
    assert found["outcome"] == orjson.loads(first.body)


@pytest.mark.parametrize(
    "query",
    ["scope_id=workspace:other", f"remap={NAME}", "remap=nonsense", "colour=red", "on_conflict=overwrite",
     "remap=a:b&remap=a:c", "wait_ms=-1", "actor={}"],
)  # fmt: skip
async def test_requests_that_do_not_fit(store: Store, query: str) -> None:
    body = await store.export(NAME)
    traces = await store.traces()
    assert (await store.refused(body, query))["code"] == "invalid_request"
    assert await store.traces() == traces


async def test_no_import_while_the_outbox_is_full(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    body = await store.export(NAME)
    monkeypatch.setattr(OutboxBound, "full", True)
    assert (await store.refused(body))["details"] == {"reason": "outbox_full"}


@pytest.mark.parametrize("role", ["reader", "contributor", "curator", "auditor", "platform"])
async def test_only_an_administrator_of_the_tenant_brings_a_history(store: Store, role: str) -> None:
    await store.writer.create("a claim")
    file = await store.export(NAME)
    by = Principal(SECOND, f"agent:{role}", "agent", roles=frozenset({role}))
    assert (await store.refused(file, by=by))["code"] == "access_denied"
    await store.imported(file)
