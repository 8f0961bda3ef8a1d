"""read: heads, versions, past positions, and everything that must look like nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import orjson

from pamspec_common.calls import Call
from pamspec_common.instants import wire
from pamspec_common.internal import answer
from pamspec_common.service import Service
from services.query.tests.door import Conn, Door
from services.query.tests.seeds import START, Scope


async def test_head_and_versions(seeding: Conn, door: Door) -> None:
    scope = Scope("workspace:a")
    first = scope.put("obj:x", {"n": 1})
    second = scope.put("obj:x", {"n": 2})
    await scope.flush(seeding)
    head = await door("read", scope_id="workspace:a", object_id="obj:x")
    document = orjson.loads(head.body)["envelope"]
    assert document["canonical_content"] == {"n": 2}
    assert document["sequence"] == 2
    assert head.headers["Pamspec-As-Of-Sequence"] == "2"
    assert head.headers["Pamspec-Ledger-Epoch"] == "1"
    old = await door("read", scope_id="workspace:a", object_id="obj:x", version_id=first.version_id)
    assert orjson.loads(old.body)["envelope"]["canonical_content"] == {"n": 1}
    assert old.headers["ETag"] != head.headers["ETag"]
    same = await door("read", scope_id="workspace:a", object_id="obj:x", version_id=second.version_id)
    assert (same.body, same.headers["ETag"]) == (head.body, head.headers["ETag"])


async def test_content_comes_back_as_it_was_sent(seeding: Conn, door: Door) -> None:
    """M050, M057: NUL, integers beyond 64 bits, and number tokens."""
    scope = Scope("workspace:a")
    raw = b'{"t":"a\\u0000b","big":123456789012345678901234567890,"f":1.10,"e":1e3,"n":null}'
    scope.put("obj:x", raw=raw)
    await scope.flush(seeding)
    found = await door("read", scope_id="workspace:a", object_id="obj:x")
    assert b'"canonical_content":' + raw in found.body


async def test_missing_foreign_and_forbidden_look_alike(seeding: Conn, door: Door) -> None:
    """S15, M011, M102: one answer, whatever the reason; a foreign scope is no scope."""
    mine, other, foreign = Scope("workspace:a"), Scope("workspace:b"), Scope("workspace:c", tenant_id="tenant:other")
    for scope in (mine, other, foreign):
        scope.put(f"obj:{scope.scope_id[-1]}", "text")
        scope.put(f"rel:{scope.scope_id[-1]}", "text", kind="r", object_type="supports")
        await scope.flush(seeding)
    answers = [
        await door("read", scope_id="workspace:a", object_id=name, operation_id="op:1")
        for name in ("obj:none", "obj:b", "obj:c", "rel:a")
    ]
    answers.append(await door("read", scope_id="workspace:a", relationship_id="obj:a", operation_id="op:1"))
    answers.append(await door("read", scope_id="workspace:a", delegation_id="obj:a", operation_id="op:1"))
    assert {one.body for one in answers} == {answers[0].body}
    assert orjson.loads(answers[0].body)["error"]["code"] == "object_not_found"
    for name in ("workspace:c", "workspace:none"):
        assert (await door.refused("read", scope_id=name, object_id="obj:c"))["code"] == "scope_not_found"
    assert (await door.ok("read", scope_id="workspace:a", relationship_id="rel:a"))["envelope"]


async def test_no_scope_is_no_query(seeding: Conn, door: Door) -> None:
    """M007: an empty or odd scope never widens anything."""
    scope = Scope("workspace:a")
    scope.put("obj:x", "text")
    await scope.flush(seeding)
    odd: list[Any] = ["", "*", " ", "%00", "workspace:a ", "workspace:a\n", None, 7, ["workspace:a"]]
    for operation, rest in (("read", {"object_id": "obj:x"}), ("query", {"query": {"kind": "structured"}})):
        assert (await door.refused(operation, **rest))["code"] == "invalid_request"
        for scope_id in odd:
            assert (await door.refused(operation, scope_id=scope_id, **rest))["code"] == "invalid_request", scope_id


async def test_scopes_match_byte_for_byte(seeding: Conn, door: Door) -> None:
    """M003, M009: no wildcard, no tokens, no case folding."""
    names = ["a:john-doe", "a:john_doe", "a:johnXdoe", "a:test_user", "a:test_user1", "a:Test_User", "A:test_user"]
    for name in names:
        scope = Scope(name)
        scope.put("obj:x", name)
        await scope.flush(seeding)
    for name in names:
        assert (await door.ok("read", scope_id=name, object_id="obj:x"))["envelope"]["canonical_content"] == name
        found = await door.ok("query", scope_id=name, query={"kind": "structured"})
        assert [item["envelope"]["canonical_content"] for item in found["items"]] == [name]


async def test_erased_versions_answer_gone(seeding: Conn, door: Door) -> None:
    """S21, P110, P111: a tombstone by head, by version and by past position."""
    scope = Scope("workspace:a")
    gone = scope.put("obj:gone", "secret")
    scope.put("obj:gone", availability_state="deleted", note="erasure request")
    hidden = scope.put("obj:hidden", "secret")
    scope.put("obj:hidden", "", availability_state="redacted", event_type="object_redacted",
              payload={"erased": [{"from_sequence": 1, "to_sequence": 1}]})  # fmt: skip
    scope.erase("obj:hidden", [1])
    partly = scope.put("obj:partly", {"a": 1}, availability_state="partially_redacted")
    await scope.flush(seeding)
    read = {"scope_id": "workspace:a"}
    for more in ({}, {"version_id": gone.version_id}, {"as_of": {"ledger_sequence": 1}}):
        error = await door.refused("read", object_id="obj:gone", **read, **more)
        assert error["code"] == "object_deleted"
    for more in ({}, {"version_id": hidden.version_id}, {"as_of": {"ledger_sequence": 3}}):
        found = await door("read", object_id="obj:hidden", **read, **more)
        assert (found.status, orjson.loads(found.body)["error"]["code"]) == (410, "object_redacted")
    assert (await door.ok("read", object_id="obj:partly", **read))["envelope"]["version_id"] == partly.version_id


async def test_as_of_record_and_valid_time(seeding: Conn, door: Door) -> None:
    scope = Scope("workspace:a", tick=timedelta(seconds=10))
    day = timedelta(days=1)
    scope.put("obj:x", "old", valid_from=START, valid_until=START + 2 * day)
    scope.put("obj:y", "between")
    scope.put("obj:x", "new", valid_from=START + 2 * day, valid_until=None)
    await scope.flush(seeding)

    async def content(**as_of: object) -> object:
        found = await door("read", scope_id="workspace:a", object_id="obj:x", as_of=as_of)
        document = orjson.loads(found.body)
        return document["envelope"]["canonical_content"] if found.status == 200 else document["error"]["code"]

    assert await content(ledger_sequence=2) == "old"
    assert await content(ledger_sequence=3) == "new"
    assert await content(ledger_sequence=0) == "object_not_found"
    assert await content(ledger_sequence=4) == "invalid_request"
    assert await content(recorded_at=wire(START + timedelta(seconds=29.999))) == "old"
    assert await content(recorded_at=wire(START + timedelta(seconds=30))) == "new"
    assert await content(recorded_at=wire(START)) == "object_not_found"
    assert await content(valid_at=wire(START + day)) == "old"
    assert await content(valid_at=wire(START + 2 * day)) == "new"
    assert await content(valid_at=wire(START - day)) == "object_not_found"
    assert await content(valid_at=wire(START + 3 * day), ledger_sequence=1) == "object_not_found"
    found = await door("read", scope_id="workspace:a", object_id="obj:x", as_of={"ledger_sequence": 2})
    assert found.headers["Pamspec-As-Of-Sequence"] == "2"


async def test_fields_project_the_envelope(seeding: Conn, door: Door) -> None:
    scope = Scope("workspace:a")
    scope.put("obj:x", {"n": 1})
    await scope.flush(seeding)
    read = {"scope_id": "workspace:a", "object_id": "obj:x"}
    found = await door("read", fields=["sequence", "canonical_content", "schema_id"], **read)
    assert found.body == b'{"projection":{"canonical_content":{"n":1},"sequence":1}}'
    for wrong in ([], ["secret"], ["sequence", "sequence"], "sequence", [1]):
        assert (await door.refused("read", fields=wrong, **read))["code"] == "invalid_request"


async def test_what_is_not_there_yet_says_so(seeding: Conn, door: Door) -> None:
    scope = Scope("workspace:a")
    version = scope.put("obj:x", "text")
    await scope.flush(seeding)
    read = {"scope_id": "workspace:a", "object_id": "obj:x"}
    assert (await door.refused("read", snapshot_id="snap:1", **read))["code"] == "snapshot_not_found"
    assert (await door.refused("read", delegation_id="dlg:1", **read))["code"] == "object_not_found"
    both = {"version_id": version.version_id, "as_of": {"ledger_sequence": 1}}
    refused: list[dict[str, Any]] = [
        both,
        {"as_of": {}},
        {"as_of": {"recorded_at": "2026-01-01"}},
        {"as_of": {"ledger_sequence": 1, "recorded_at": "2026-01-01T00:00:00Z"}},
        {"relationship_id": "rel:1"},
        {"unknown": 1},
        {"object_id": None},
        {"object_id": "obj:" + "x" * 300},
        {"object_id": 7},
        {"object_id": "obj:x\n"},
        {"wait_ms": 30_001},
        {"min_sequence": -1},
        {"min_sequence": 1.0},
    ]
    for wrong in refused:
        assert (await door.refused("read", **{**read, **wrong}))["code"] == "invalid_request", wrong


async def test_another_actor_needs_the_right(seeding: Conn, door: Door) -> None:
    """S9."""
    scope = Scope("workspace:a")
    scope.put("obj:x", "text")
    await scope.flush(seeding)
    read = {"scope_id": "workspace:a", "object_id": "obj:x"}
    own = {"actor_id": "agent:reader", "actor_kind": "agent"}
    other = {"actor_id": "agent:other", "actor_kind": "agent"}
    assert await door.ok("read", actor=own, **read)
    assert (await door.refused("read", actor=other, **read))["code"] == "access_denied"
    assert await door.as_("agent:backend", "assert_actor").ok("read", actor=other, **read)


async def test_version_floor(seeding: Conn, door: Door) -> None:
    """K1, K2, K4: never below the floor; waiting ends when it is reached."""
    scope = Scope("workspace:a")
    scope.put("obj:x", 1)
    await scope.flush(seeding)
    for operation, rest in (("read", {"object_id": "obj:x"}), ("query", {"query": {"kind": "structured"}})):
        call = {"scope_id": "workspace:a", **rest}
        assert await door.ok(operation, min_sequence=1, **call)
        below = await door(operation, min_sequence=2, **call)
        assert (below.status, below.headers["Retry-After"]) == (503, "1")
        error = orjson.loads(below.body)["error"]
        assert (error["code"], error["details"]["reason"]) == ("service_unavailable", "stale_session")
        assert error["details"]["head_sequence"] == 1
        late = await door.refused(operation, min_sequence=2, wait_ms=60, **call)
        assert late["details"]["reason"] == "stale_session"
    waiting = [
        asyncio.create_task(door("read", scope_id="workspace:a", object_id="obj:x", min_sequence=2, wait_ms=20_000))
        for _ in range(5)
    ]
    await asyncio.wait(waiting, timeout=0.1)
    assert not any(one.done() for one in waiting)
    scope.put("obj:x", 2)
    await scope.flush(seeding)
    for found in await asyncio.gather(*waiting):
        assert orjson.loads(found.body)["envelope"]["canonical_content"] == 2
        assert found.headers["Pamspec-As-Of-Sequence"] == "2"


async def test_positions_of_another_epoch(seeding: Conn, door: Door) -> None:
    scope = Scope("workspace:a", epoch=3)
    scope.put("obj:x", 1)
    await scope.flush(seeding)
    read = {"scope_id": "workspace:a", "object_id": "obj:x"}
    assert await door.ok("read", ledger_epoch=3, min_sequence=1, **read)
    for epoch, reason in ((2, "position_outdated"), (4, "position_future")):
        for more in ({}, {"min_sequence": 9, "wait_ms": 5000}):
            error = await door.refused("read", ledger_epoch=epoch, **read, **more)
            assert error["code"] == "invalid_request"
            assert error["details"] == {
                "reason": reason, "ledger_epoch": 3, "head_sequence": 1, "resume_after": 1,
            }  # fmt: skip


async def test_forged_and_missing_principals(service: Service, door: Door) -> None:
    for token in ("", "k1.x.y", "k2.AAAA.00"):
        found = await answer(service.operations, Call("read", token, b"{}"))
        assert found.status == 401
    assert (await door.raw("read", b"{")).status == 400
    assert (await door.raw("read", b'{"scope_id":"a:b","scope_id":"a:c"}')).status == 400
    assert (await door.raw("read", b"[]")).status == 400
