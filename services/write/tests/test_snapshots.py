"""Sealing: what a snapshot fixes, that nothing changes it, and that its digest can be computed again."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest

from pamspec_common import contracts, ledger, snapshots
from pamspec_common.calls import Call
from pamspec_common.internal import answer as run
from pamspec_common.principal import Principal
from services.write.tests.test_rights import holder, rules
from services.write.tests.writer import ADMIN, AGENT, PROVENANCE, TENANT, Document, Writer, claim

CLOCK = {"clock_ref": "clock:a", "start_at": "2020-01-01T00:00:00Z", "tick_ms": 5}
STRANGER = Principal("tenant:stranger", "agent:stranger", "agent", roles=ADMIN)


async def seal(writer: Writer, scope: str = "", **more: Any) -> Document:
    """The descriptor of a new snapshot."""
    found: Document = (await writer.ok("seal_snapshot", {"scope_id": scope or writer.scope, **more}))["snapshot"]
    contracts.check("evaluation-snapshot", found)
    return found


async def refusal(writer: Writer, **request: Any) -> tuple[str, Document]:
    error = await writer.refused("seal_snapshot", {"scope_id": writer.scope, **request})
    return error["code"], error["details"]


async def chain_hash(writer: Writer, watermark: int, scope: str = "") -> bytes:
    """The chain's hash at a position, from the bytes of the ledger alone."""
    key = await writer.scope_key(scope)
    found = ledger.genesis(await writer.admin.fetchval("SELECT ledger_id FROM core.scope WHERE scope_key = $1", key))
    for entry in (await writer.ledger(scope))[:watermark]:
        found = ledger.entry_hash(found, entry.raw)
    return found


async def test_a_snapshot_is_the_scope_at_its_head(shared: Writer) -> None:
    await shared.create()
    await shared.update(await shared.create(), "more")
    found = await seal(shared)
    assert found["scope_id"] == shared.scope
    assert found["sealed"] is True
    assert found["created_by_actor_id"] == AGENT.actor_id
    assert found["ledger_sequence_high_watermark"] == 3
    assert found["snapshot_id"].startswith("snap:")
    assert "included_object_ids" not in found


async def test_an_empty_scope_has_a_snapshot_too(shared: Writer) -> None:
    found = await seal(shared)
    assert found["ledger_sequence_high_watermark"] == 0
    assert snapshots.holds(found, await chain_hash(shared, 0))


async def test_everything_that_was_asked_for_stands_in_the_descriptor(shared: Writer) -> None:
    made = [(await shared.create())["object_id"] for _ in range(3)]
    found = await seal(
        shared,
        snapshot_id="snap:whole",
        included_object_ids=[made[2], made[0], made[2]],
        included_embedding_space_ids=[],
        deterministic_clock=CLOCK,
        deterministic_rng_seed=1729,
        evaluation_run_id="run:whole",
    )
    assert found["included_object_ids"] == sorted({made[0], made[2]})
    assert found["included_embedding_space_ids"] == []
    assert found["deterministic_clock"] == {**CLOCK, "start_at": "2020-01-01T00:00:00.000000Z"}
    assert (found["deterministic_rng_seed"], found["evaluation_run_id"]) == (1729, "run:whole")


async def test_the_digest_follows_from_the_ledger_and_covers_every_member(shared: Writer) -> None:
    made = await shared.create()
    found = await seal(shared, included_object_ids=[made["object_id"]], deterministic_rng_seed=1)
    await shared.update(made, "later")
    at = await chain_hash(shared, 1)
    assert snapshots.holds(found, at)
    assert not snapshots.holds(found, await chain_hash(shared, 2))
    for name in found.keys() - {"digest"}:
        less = {member: value for member, value in found.items() if member != name}
        assert not snapshots.holds(less, at), name
        assert not snapshots.holds({**found, name: "other"}, at), name


async def test_sealing_leaves_the_ledger_and_its_clock_alone(shared: Writer) -> None:
    await shared.create()
    head = "SELECT last_seq, last_hash, last_at, revision FROM core.scope_head WHERE scope_key = $1"
    before = await shared.admin.fetchrow(head, await shared.scope_key())
    await seal(shared)
    after = await shared.admin.fetchrow(head, await shared.scope_key())
    assert before is not None
    assert after is not None
    assert [*after][:3] == [*before][:3]
    assert after["revision"] == before["revision"] + 1
    await shared.check_scope()


async def test_ids_that_the_scope_does_not_have_are_named_alike(shared: Writer) -> None:
    mine = (await shared.create())["object_id"]
    foreign = (await shared.ok("create", claim(await shared.new_scope())))["object_id"]
    code, details = await refusal(shared, included_object_ids=[foreign, mine, "obj:nowhere"])
    assert code == "object_not_found"
    assert details["object_ids"] == sorted([foreign, "obj:nowhere"])


async def test_a_deleted_object_can_be_a_member(shared: Writer) -> None:
    gone = await shared.delete(await shared.create())
    assert (await seal(shared, included_object_ids=[gone["object_id"]]))["ledger_sequence_high_watermark"] == 2


async def test_a_snapshot_may_hold_nothing(shared: Writer) -> None:
    await shared.create()
    assert (await seal(shared, included_object_ids=[]))["included_object_ids"] == []


async def test_a_sealed_snapshot_is_never_sealed_again(shared: Writer) -> None:
    found = await seal(shared, snapshot_id="snap:frozen")
    made = await shared.create()
    for change in ({}, {"included_object_ids": [made["object_id"]]}, {"deterministic_rng_seed": 2}):
        code, details = await refusal(shared, snapshot_id="snap:frozen", **change)
        assert (code, details["reason"]) == ("invalid_state_transition", "snapshot_sealed")
    elsewhere = await shared.new_scope()
    error = await shared.refused("seal_snapshot", {"scope_id": elsewhere, "snapshot_id": "snap:frozen"})
    assert error["code"] == "duplicate_operation"
    stored = await shared.admin.fetchval("SELECT document FROM core.snapshot WHERE snapshot_id = 'snap:frozen'")
    assert orjson.loads(stored) == found


async def test_the_same_id_is_free_for_another_tenant(shared: Writer) -> None:
    await seal(shared, snapshot_id="snap:common")
    await shared.admin.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1)", STRANGER.tenant_id)
    await shared.ok("create_scope", {"scope_id": "scope:stranger"}, by=STRANGER)
    await shared.ok("seal_snapshot", {"scope_id": "scope:stranger", "snapshot_id": "snap:common"}, by=STRANGER)


async def test_no_role_changes_a_snapshot(writer: Writer) -> None:
    await seal(writer)
    for statement in ("UPDATE core.snapshot SET watermark = 9", "DELETE FROM core.snapshot", "TRUNCATE core.snapshot"):
        with pytest.raises(asyncpg.RestrictViolationError):
            await writer.admin.execute(statement)
    conn = await asyncpg.connect(writer.settings.database_url.get_secret_value())
    try:
        assert await conn.fetchval("SELECT count(*) FROM core.snapshot") == 0
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await conn.execute("UPDATE core.snapshot SET watermark = 9")
    finally:
        await conn.close()


async def test_a_retry_gets_the_same_snapshot(shared: Writer) -> None:
    request = {"scope_id": shared.scope, "operation_id": "op:seal-once"}
    first = await shared.call("seal_snapshot", request)
    await shared.create()
    again = await shared.call("seal_snapshot", request)
    assert (again.status, again.body) == (first.status, first.body) == (201, first.body)
    assert again.headers["Idempotency-Replayed"] == "true"
    error = await shared.refused("seal_snapshot", {**request, "deterministic_rng_seed": 1})
    assert error["code"] == "duplicate_operation"
    looked = await shared.ok("get_operation", {"scope_id": shared.scope, "operation_id": "op:seal-once"})
    assert looked["state"] == "committed"
    assert looked["outcome"] == json.loads(first.body)
    assert await shared.count("core.snapshot") == 1


async def test_a_refusal_is_repeated_too(shared: Writer) -> None:
    request = {"scope_id": shared.scope, "included_object_ids": ["obj:later"]}
    first = await shared.call("seal_snapshot", request, key="seal")
    await shared.create(object_id="obj:later")
    again = await shared.call("seal_snapshot", request, key="seal")
    assert (first.status, again.status, again.body) == (404, 404, first.body)


async def test_one_run_has_one_clock(shared: Writer) -> None:
    await seal(shared, evaluation_run_id="run:once", deterministic_clock=CLOCK)
    for gift in ({"deterministic_clock": CLOCK}, {"deterministic_rng_seed": 1}):
        code, details = await refusal(shared, evaluation_run_id="run:once", **gift)
        assert (code, details["reason"]) == ("duplicate_operation", "evaluation_run")
    assert (await seal(shared, evaluation_run_id="run:once"))["evaluation_run_id"] == "run:once"


async def test_what_no_snapshot_can_be_is_refused(shared: Writer) -> None:
    assert (await refusal(shared, sealed=False))[0] == "invalid_object"
    assert (await refusal(shared, included_embedding_space_ids=["espace:a"]))[0] == "embedding_space_mismatch"
    early = {"clock_ref": "c", "start_at": "1969-12-31T23:59:59Z"}
    for bad in (
        {"deterministic_clock": early},
        {"deterministic_clock": {**CLOCK, "tick_ms": None}},
        {"deterministic_clock": {**CLOCK, "start_at": "2020-01-01"}},
        {"included_object_ids": [f"obj:{n}" for n in range(10_001)]},
        {"ledger_sequence_high_watermark": 0},
    ):
        assert (await refusal(shared, **bad))[0] == "invalid_request", bad


async def test_ten_thousand_members_are_sealed_at_once(shared: Writer) -> None:
    async def unchecked(operation: str, document: Document) -> Document:
        """The body of an answer that is too long to be held against its contract here."""
        call = Call(operation, shared.signer.sign(AGENT), orjson.dumps({"scope_id": shared.scope, **document}))
        answer = await run(shared.service.operations, call)
        assert answer.status < 300, answer.body[:500]
        found: Document = orjson.loads(answer.body)
        return found

    names = [f"obj:{n:05}" for n in range(10_000)]
    for start in range(0, 10_000, 1000):
        items = [
            {"operation": "create", "object_id": name, "object_type": "claim", "canonical_content": 1,
             "provenance": PROVENANCE}
            for name in names[start : start + 1000]
        ]  # fmt: skip
        await unchecked("batch", {"items": items})
    found = (await unchecked("seal_snapshot", {"included_object_ids": names}))["snapshot"]
    assert (len(found["included_object_ids"]), found["ledger_sequence_high_watermark"]) == (10_000, 10_000)


async def test_snapshots_and_writes_of_the_same_moment_have_one_order(shared: Writer) -> None:
    """Each watermark is a position that the ledger had, with exactly the entries before it."""

    async def write() -> None:
        for number in range(10):
            await shared.create(number)

    async def take() -> list[Document]:
        return [await seal(shared) for _ in range(10)]

    results = await asyncio.gather(write(), take(), write(), take())
    for found in [one for result in results for one in result or []]:
        assert snapshots.holds(found, await chain_hash(shared, found["ledger_sequence_high_watermark"]))
    await shared.check_scope()


async def test_two_processes_that_seal_the_same_id_make_one_snapshot(writers: tuple[Writer, Writer]) -> None:
    first, second = writers
    other = await second.new_scope()

    async def attempt(writer: Writer, scope: str, name: str) -> str:
        answer = await writer.call(
            "seal_snapshot",
            {"scope_id": scope, "snapshot_id": name, "evaluation_run_id": f"run:{name}", "deterministic_rng_seed": 1},
        )
        return "sealed" if answer.status == 201 else str(orjson.loads(answer.body)["error"]["code"])

    for number in range(20):
        name = f"snap:{number}"
        found = await asyncio.gather(attempt(first, first.scope, name), attempt(second, other, name))
        assert sorted(found) == ["duplicate_operation", "sealed"]
    assert await first.admin.fetchval("SELECT count(*) FROM core.snapshot WHERE tenant_id = $1", TENANT) == 20


async def test_who_may_not_see_an_object_cannot_name_it(shared: Writer) -> None:
    """An object that the actor may not read is missing, in the same words as one that does not exist."""
    hidden = await shared.create(object_type="observation")
    shown = await shared.create()
    forbidden = '@id("hidden") forbid (principal, action, resource) when { resource.object_type == "observation" };'
    await rules(shared, forbidden, shared.scope)
    said: list[bytes] = []
    for name in (hidden["object_id"], "obj:nowhere"):
        error = await shared.refused(
            "seal_snapshot",
            {"scope_id": shared.scope, "included_object_ids": [name], "operation_id": f"op:{len(said)}"},
            by=holder("curator"),
        )
        said.append(orjson.dumps([error["code"], error["message"], error["details"]]).replace(name.encode(), b"it"))
    assert said[0] == said[1]
    request = {"scope_id": shared.scope, "included_object_ids": [shown["object_id"]]}
    await shared.ok("seal_snapshot", request, by=holder("curator"))
    assert (await shared.refused("seal_snapshot", request, by=holder("editor")))["code"] == "access_denied"


OWN_VECTORS: Document = {
    "vectors-valid/evaluation-snapshot": {
        "snapshot_id": "snap:eval:own",
        "included_object_ids": ["mem:claim:1", "mem:claim:2"],
        "deterministic_clock": CLOCK,
        "deterministic_rng_seed": 3,
        "evaluation_run_id": "eval:own",
    },
    "vectors-invalid/evaluation-snapshot-unsealed": {
        "expected_failure": "invalid_object",
        "instance": {"snapshot_id": "snap:own-open", "sealed": False},
    },
    "vectors-invalid/evaluation-snapshot-membership-mutated": {
        "expected_failure": "invalid_state_transition",
        "instance": {"snapshot_id": "snap:own-mutated", "included_object_ids": ["mem:claim:1", "mem:claim:3"]},
    },
}


def vector(name: str) -> Document:
    """A document of the draft where PAMSPEC_SPEC names their folder, else one of our own that says the same."""
    folder = os.environ.get("PAMSPEC_SPEC")
    found: Document = OWN_VECTORS[name] if folder is None else orjson.loads(Path(folder, f"{name}.json").read_bytes())
    return found


def asked_for(descriptor: Document) -> Document:
    """The part of a descriptor that its maker chooses, but for spaces, which nobody can register yet."""
    members = ("snapshot_id", "included_object_ids", "deterministic_clock", "deterministic_rng_seed")
    return {name: descriptor[name] for name in (*members, "evaluation_run_id", "sealed") if name in descriptor}


async def test_the_drafts_documents_about_snapshots(shared: Writer) -> None:
    given = vector("vectors-valid/evaluation-snapshot")
    changed = vector("vectors-invalid/evaluation-snapshot-membership-mutated")
    names = {*given["included_object_ids"], *changed["instance"]["included_object_ids"]}
    for name in names:
        await shared.create(object_id=name)
    found = await seal(shared, **asked_for(given))
    for name, value in asked_for(given).items():
        if name == "included_object_ids":
            assert found[name] == sorted(value)
        elif name != "deterministic_clock":
            assert found[name] == value
    assert found["deterministic_clock"].keys() == given["deterministic_clock"].keys()
    frozen = changed["instance"]
    await seal(shared, **{**asked_for(frozen), "included_object_ids": frozen["included_object_ids"][:-1]})
    assert (await refusal(shared, **asked_for(frozen)))[0] == changed["expected_failure"]
    unsealed = vector("vectors-invalid/evaluation-snapshot-unsealed")
    assert (await refusal(shared, **asked_for(unsealed["instance"])))[0] == unsealed["expected_failure"]
