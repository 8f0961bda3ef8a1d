"""Operation look-up: committed, in_progress, failed, and unknown for good (K8, S18)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import orjson
import pytest

from services.write.tests.test_faults import waiting_backends
from services.write.tests.writer import AUDITOR, BACKEND, OTHER, PROVENANCE, Document, Writer, claim

Hold = Callable[[int], AbstractAsyncContextManager[None]]
TESTER = {"actor_id": "agent:tester", "actor_kind": "agent"}


def by_id(writer: Writer, operation_id: str, **more: object) -> Document:
    """A look-up by operation id."""
    return {"scope_id": writer.scope, "operation_id": operation_id, **more}


def by_key(writer: Writer, operation: str, key: str, **more: object) -> Document:
    """A look-up by key."""
    return {"scope_id": writer.scope, "operation": operation, "idempotency_key": key, **more}


async def test_a_committed_operation_shows_its_answer(writer: Writer) -> None:
    answer = await writer.call("create", claim(writer.scope), key="k")
    made = orjson.loads(answer.body)
    for request in (by_id(writer, made["operation_id"]), by_key(writer, "create", "k")):
        found = await writer.ok("get_operation", request)
        assert found == {"state": "committed", "operation_id": made["operation_id"], "outcome": made}
    gone = await writer.delete(made)
    found = await writer.ok("get_operation", by_id(writer, gone["operation_id"]))
    assert found["outcome"] == gone
    found = await writer.ok("get_operation", by_id(writer, made["operation_id"]))
    assert found["state"] == "committed"
    assert found["outcome"]["error"]["code"] == "object_deleted"


async def test_a_failed_operation_shows_its_error(writer: Writer) -> None:
    document = {"scope_id": writer.scope, "object_id": "obj:none", "expected_version_id": "ver:1"}
    error = await writer.refused("update", {**document, "provenance": PROVENANCE}, key="k")
    found = await writer.ok("get_operation", by_id(writer, error["operation_id"]))
    assert (found["state"], found["outcome"]["error"]) == ("failed", error)


@pytest.mark.parametrize("keyed", [True, False])
async def test_unknown_is_final(writer: Writer, keyed: bool) -> None:
    request = by_key(writer, "create", "k") if keyed else by_id(writer, "op:lost")
    shown = None if keyed else "op:lost"
    for _ in range(2):
        found = await writer.ok("get_operation", request)
        assert found == {"state": "unknown", "operation_id": shown, "outcome": None}
    late = claim(writer.scope, **({"idempotency_key": "k"} if keyed else {"operation_id": "op:lost"}))
    error = await writer.refused("create", late)
    assert (error["code"], error["details"]["reason"]) == ("duplicate_operation", "abandoned")
    assert await writer.count("core.ledger") == 0
    again = claim(writer.scope, **({"idempotency_key": "k2"} if keyed else {"operation_id": "op:new"}))
    await writer.ok("create", again)
    await writer.check_scope()


async def test_a_late_batch_is_refused_too(writer: Writer) -> None:
    await writer.ok("get_operation", by_id(writer, "op:b"))
    batch = {
        "scope_id": writer.scope,
        "operation_id": "op:b",
        "items": [{"operation": "create", **claim(writer.scope)}],
    }
    assert (await writer.refused("batch", batch))["details"]["reason"] == "abandoned"
    await writer.ok("get_operation", by_id(writer, "op:c/0"))
    results = (await writer.ok("batch", {**batch, "operation_id": "op:c"}))["results"]
    assert results[0]["error"]["details"]["reason"] == "abandoned"


async def test_a_conflict_leaves_nothing_to_look_up(writer: Writer) -> None:
    made = await writer.create()
    change = writer.change(made, expected_version_id="ver:old", provenance=PROVENANCE, operation_id="op:1")
    await writer.refused("update", change)
    assert (await writer.ok("get_operation", by_id(writer, "op:1")))["state"] == "unknown"


async def test_in_progress_while_it_waits_here(writer: Writer, hold: Hold) -> None:
    async with hold(await writer.scope_key()):
        task = asyncio.create_task(writer.call("create", claim(writer.scope, operation_id="op:1"), key="k"))
        await waiting_backends(writer, 1)
        for request in (by_id(writer, "op:1"), by_key(writer, "create", "k"), by_id(writer, "op:1", wait_ms=50)):
            assert (await writer.ok("get_operation", request))["state"] == "in_progress"
    assert (await task).status == 201
    assert (await writer.ok("get_operation", by_id(writer, "op:1")))["state"] == "committed"


async def test_in_progress_while_it_waits_in_another_process(writers: tuple[Writer, Writer], hold: Hold) -> None:
    first, second = writers
    async with hold(await first.scope_key()):
        task = asyncio.create_task(first.call("create", claim(first.scope, operation_id="op:1")))
        await waiting_backends(first, 1)
        began = time.monotonic()
        found = await second.ok("get_operation", by_id(second, "op:1", wait_ms=120))
        assert found["state"] == "in_progress"
        assert 0.1 < time.monotonic() - began < 15
        asking = asyncio.create_task(second.ok("get_operation", by_id(second, "op:1", wait_ms=5000)))
        await waiting_backends(first, 2)
    made = orjson.loads((await task).body)
    assert await asking == {"state": "committed", "operation_id": "op:1", "outcome": made}


async def test_waiting_look_ups_leave_connections_for_writes(writer: Writer, hold: Hold) -> None:
    free = await writer.new_scope()
    async with hold(await writer.scope_key()):
        asking = [
            asyncio.create_task(writer.ok("get_operation", by_id(writer, f"op:{number}", wait_ms=12_000)))
            for number in range(30)
        ]
        await waiting_backends(writer, 1)
        began = time.monotonic()
        for _ in range(10):
            await writer.ok("create", claim(free))
        assert time.monotonic() - began < 11.5
        assert {found["state"] for found in await asyncio.gather(*asking)} == {"in_progress"}


async def test_only_the_same_principal_or_an_auditor_may_look(writer: Writer) -> None:
    made = await writer.create()
    mine = by_id(writer, made["operation_id"])
    assert (await writer.ok("get_operation", mine, by=OTHER))["state"] == "unknown"
    assert (await writer.ok("get_operation", mine))["state"] == "committed"
    named = {**mine, "actor": TESTER}
    assert (await writer.ok("get_operation", named, by=AUDITOR))["state"] == "committed"
    assert (await writer.refused("get_operation", named, by=OTHER))["code"] == "access_denied"
    assert (await writer.ok("get_operation", named, by=BACKEND))["state"] == "unknown"


async def test_an_asserted_actor_is_looked_up_by_its_principal(writer: Writer) -> None:
    document = claim(writer.scope, actor=TESTER, operation_id="op:1")
    made = await writer.ok("create", document, by=BACKEND)
    found = await writer.ok("get_operation", by_id(writer, "op:1", actor=TESTER), by=BACKEND)
    assert found["outcome"] == made


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"operation_id": "op:1", "operation": "create"},
        {"operation_id": "op:1", "operation": "create", "idempotency_key": "k"},
        {"idempotency_key": "k"},
        {"operation": "create"},
        {"operation": "a\x00b", "idempotency_key": "k"},
        {"operation_id": "op:1", "wait_ms": 30_001},
    ],
)
async def test_a_look_up_names_one_operation(writer: Writer, more: Document) -> None:
    assert (await writer.refused("get_operation", {"scope_id": writer.scope, **more}))["code"] == "invalid_request"


async def test_a_scope_that_nobody_sees(writer: Writer) -> None:
    request = {"scope_id": "scope:none", "operation_id": "op:1"}
    assert (await writer.refused("get_operation", request))["code"] == "scope_not_found"
