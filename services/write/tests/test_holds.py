"""Legal holds over types and scopes: they bite at once, their job shows it object by object, nothing held is lost."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import NatsAddress
from pamspec_common.calls import HEADER_LEDGER_SEQUENCE, HEADER_REPLAYED, Answer
from services.write.tests.writer import KEY, KID, PROVENANCE, Document, Writer, claim, started, stopped, write_settings

NEVER_MS = 3_600_000
"""A job that does not run by itself during a test."""


@pytest_asyncio.fixture(loop_scope="session")
async def still(database: Database, write_bus: NatsAddress) -> AsyncIterator[Writer]:
    """A service whose job waits: what is seen is the hold's record alone."""
    writer = await started(database, write_settings(database, write_bus, hold_poll_ms=NEVER_MS))
    yield writer
    await stopped(writer)


@pytest_asyncio.fixture(loop_scope="session")
async def working(database: Database, write_bus: NatsAddress) -> AsyncIterator[Writer]:
    """A service whose job runs all the time, in small steps."""
    settings = write_settings(database, write_bus, hold_poll_ms=10, hold_group=7, hold_objects_per_s=1e6)
    writer = await started(database, settings)
    yield writer
    await stopped(writer)


async def place(writer: Writer, object_type: str | None = None, **more: Any) -> Document:
    """The answer of a new hold over the test's scope or a type of it."""
    about = {} if object_type is None else {"object_type": object_type}
    return await writer.ok("place_hold", {"scope_id": writer.scope, "policy_basis": "matter:1", **about, **more})


async def release(writer: Writer, hold: Document, **more: Any) -> Document:
    """The answer of its release."""
    return await writer.ok(
        "release_hold",
        {"scope_id": writer.scope, "hold_id": hold["hold_id"], "policy_basis": "matter:1 closed", **more},
    )


def retention(writer: Writer, of: Document, target: str) -> Document:
    """A retention transition after that answer."""
    return writer.change(of, dimension="retention", target_state=target, policy_basis="test")


async def retentions(writer: Writer) -> dict[str, str]:
    """The retention_state of every object of the test's scope."""
    rows = await writer.admin.fetch(
        "SELECT object_id, retention_state FROM core.object_head WHERE scope_key = $1", await writer.scope_key()
    )
    return {row["object_id"]: row["retention_state"] for row in rows}


async def settled(writer: Writer) -> None:
    """Wait until the job has nothing left to do in the test's scope."""
    async with asyncio.timeout(60):
        while await writer.admin.fetchval(
            "SELECT count(*) FROM core.legal_hold l JOIN core.scope_head h USING (scope_key) WHERE scope_key = $1"
            " AND NOT undone AND (released_at IS NOT NULL OR done_seq < last_seq)",
            await writer.scope_key(),
        ):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("object_type", [None, "claim"])
async def test_a_hold_bites_before_its_job_has_touched_anything(still: Writer, object_type: str | None) -> None:
    made = await still.create({"a": 1})
    expired = await still.ok("transition", retention(still, await still.create(), "expired"))
    other = await still.create(object_type="task")
    hold = await place(still, object_type)
    gone = still.change(made, policy_basis="test")
    removals: list[tuple[str, Document]] = [
        ("delete", gone),
        ("redact", {**gone, "redaction_target": {"whole": True}}),
        ("redact", {**gone, "redaction_target": {"paths": ["/a"]}}),
        ("transition", still.change(made, dimension="availability", target_state="redacted", policy_basis="test")),
        ("transition", still.change(made, dimension="availability", target_state="deleted", policy_basis="test")),
        ("transition", retention(still, made, "expired")),
        ("transition", retention(still, made, "pending_deletion")),
        ("transition", retention(still, expired, "pending_deletion")),
        ("delete", still.change(expired, policy_basis="test")),
    ]
    for operation, request in removals:
        error = await still.refused(operation, request)
        assert (error["code"], error["details"]) == ("legal_hold", {"hold_id": hold["hold_id"]}), request
    assert (await still.call("delete", still.change(other, policy_basis="test"))).status == (
        423 if object_type is None else 200
    )
    kept = await still.ok("transition", retention(still, expired, "retained"))
    held = await still.ok("transition", retention(still, kept, "legal_hold"))
    for target in ("retained", "expired", "pending_deletion"):
        assert (await still.refused("transition", retention(still, held, target)))["code"] == "legal_hold"
    changed = await still.update(made, "an update removes nothing")
    await release(still, hold)
    await still.delete(changed)
    assert (await still.refused("delete", still.change(held, policy_basis="test")))["code"] == "legal_hold"
    let_go = await still.ok("transition", retention(still, held, "retained"))
    await still.delete(let_go)
    await still.check_scope()


async def test_a_hold_over_the_scope_covers_its_relationships(still: Writer) -> None:
    source, target = await still.create(), await still.create()
    related = await still.ok(
        "relate",
        {
            "scope_id": still.scope,
            "source_object_id": source["object_id"],
            "target_object_id": target["object_id"],
            "relationship_type": "supports",
            "directionality": "directed",
            "provenance": PROVENANCE,
        },
    )
    gone = {
        "scope_id": still.scope,
        "relationship_id": related["relationship_id"],
        "expected_version_id": related["version_id"],
        "policy_basis": "test",
    }
    await release(still, await place(still, "claim"))
    of_type, whole = await place(still, "claim"), await place(still)
    for operation, more in (
        ("delete", {}),
        ("redact", {"redaction_target": {"whole": True}}),
        ("transition", {"dimension": "retention", "target_state": "expired"}),
    ):
        error = await still.refused(operation, {**gone, **more})
        assert (error["code"], error["details"]) == ("legal_hold", {"hold_id": whole["hold_id"]})
    await release(still, whole)
    await still.ok("delete", gone)
    await release(still, of_type)


async def test_the_strictest_of_several_holds_counts(still: Writer) -> None:
    made = await still.create()
    whole, of_type, foreign = await place(still), await place(still, "claim"), await place(still, "task")
    for hold in (whole, of_type):
        assert (await still.call("delete", still.change(made, policy_basis="test"))).status == 423
        await release(still, hold)
    await still.delete(made)
    await release(still, foreign)


async def test_placing_and_releasing_are_audited_repeatable_and_bump_the_epoch(still: Writer) -> None:
    async def epoch() -> int:
        found: int = await still.admin.fetchval(
            "SELECT epoch_authz FROM core.scope_head WHERE scope_key = $1", await still.scope_key()
        )
        return found

    before = await epoch()
    request = {"scope_id": still.scope, "policy_basis": "matter:7", "object_type": "claim"}
    first = await still.call("place_hold", request, key="hold")
    again = await still.call("place_hold", request, key="hold")
    assert (again.body, again.headers[HEADER_REPLAYED]) == (first.body, "true")
    assert (await still.refused("place_hold", {**request, "policy_basis": "m"}, key="hold"))["code"] == (
        "duplicate_operation"
    )
    assert await epoch() == before + 1
    hold = orjson.loads(first.body)
    await release(still, hold, operation_id="op:release")
    assert await epoch() == before + 2
    error = await still.refused(
        "release_hold", {"scope_id": still.scope, "hold_id": hold["hold_id"], "policy_basis": "twice"}
    )
    assert error["code"] == "object_not_found"
    row = await still.admin.fetchrow("SELECT * FROM core.legal_hold WHERE hold_id = $1", hold["hold_id"])
    assert row is not None
    assert (row["object_type"], row["policy_basis"], row["actor_id"]) == ("claim", "matter:7", "agent:tester")
    assert (row["release_basis"], row["released_by"], row["release_operation_id"]) == (
        "matter:1 closed",
        "agent:tester",
        "op:release",
    )
    assert row["placed_at"] < row["released_at"]


async def test_a_basis_that_no_column_can_hold_is_refused(still: Writer) -> None:
    hold = await place(still)
    basis = {"scope_id": still.scope, "policy_basis": "matter\0 1"}
    for operation, request in (
        ("place_hold", basis),
        ("release_hold", {**basis, "hold_id": hold["hold_id"]}),
        ("update_scope", {**basis, "policy": {}, "expected_policy_version": 0}),
    ):
        error = await still.refused(operation, request)
        assert (error["code"], error["details"]["field"]) == ("invalid_request", "policy_basis")
    await release(still, hold)


async def test_a_hold_names_a_type_that_an_object_can_have(still: Writer) -> None:
    for wrong in ("Claim", "relationship", "com.example"):
        error = await still.refused(
            "place_hold", {"scope_id": still.scope, "policy_basis": "matter:1", "object_type": wrong}
        )
        assert (error["code"], error["details"]["field"]) == ("invalid_request", "object_type")
    await place(still, "com.example.note")


async def test_the_job_moves_what_is_covered_and_back_to_what_it_was(working: Writer) -> None:
    kept = [await working.create(n) for n in range(10)]
    expired = await working.ok("transition", retention(working, await working.create(), "expired"))
    own = await working.ok("transition", retention(working, await working.create(), "legal_hold"))
    gone = await working.create()
    await working.delete(gone)
    redacted = await working.ok(
        "redact",
        working.change(await working.create(), policy_basis="test", redaction_target={"whole": True}),
    )
    other = await working.create(object_type="task")
    hold = await place(working, "claim")
    later = await working.create("after the hold")
    await settled(working)
    states = await retentions(working)
    assert {name: state for name, state in states.items() if state != "legal_hold"} == {
        gone["object_id"]: "retained",
        other["object_id"]: "retained",
    }
    entries = [entry.event for entry in await working.ledger()]
    moved = [event for event in entries if event["actor"]["actor_id"] == "service:legal-hold"]
    assert {event["event_type"] for event in moved} == {"retention_transitioned"}
    assert sorted(event["object_id"] for event in moved) == sorted(
        one["object_id"] for one in (*kept, expired, redacted, later)
    )
    await release(working, hold)
    await settled(working)
    states = await retentions(working)
    assert states[expired["object_id"]] == "expired"
    assert states[own["object_id"]] == "legal_hold"
    assert {states[one["object_id"]] for one in (*kept, redacted, later)} == {"retained"}
    assert await working.count("core.held_object") == 0
    await working.check_scope()


async def test_what_another_hold_covers_stays_held_until_that_one_is_released(working: Writer) -> None:
    made = [await working.create(n) for n in range(20)]
    whole, of_type = await place(working), await place(working, "claim")
    await settled(working)
    assert set((await retentions(working)).values()) == {"legal_hold"}
    await release(working, whole)
    await settled(working)
    assert set((await retentions(working)).values()) == {"legal_hold"}
    assert (await working.call("delete", working.change(made[0], policy_basis="test"))).status in (409, 423)
    await release(working, of_type)
    await settled(working)
    assert set((await retentions(working)).values()) == {"retained"}


async def test_several_processes_move_each_object_once(
    database: Database, write_bus: NatsAddress, still: Writer
) -> None:
    for batch in range(3):
        items = [{**claim(still.scope, n), "operation": "create"} for n in range(100)]
        await still.ok("batch", {"scope_id": still.scope, "items": items, "operation_id": f"op:b{batch}"})
    hold = await place(still)
    quick = {"hold_poll_ms": 10, "hold_group": 11, "hold_objects_per_s": 1e6, "lock_timeout_ms": 8000}
    others = [await started(database, write_settings(database, write_bus, **quick)) for _ in range(3)]
    await settled(still)
    assert set((await retentions(still)).values()) == {"legal_hold"}
    moved = [entry for entry in await still.ledger() if entry.event["event_type"] == "retention_transitioned"]
    assert len(moved) == len({entry.event["object_id"] for entry in moved}) == 300
    await release(still, hold)
    await settled(still)
    assert set((await retentions(still)).values()) == {"retained"}
    moved = [entry for entry in await still.ledger() if entry.event["event_type"] == "retention_transitioned"]
    assert len(moved) == 600
    for other in others:
        await stopped(other)
    await still.check_scope()


async def test_a_small_hold_does_not_wait_for_the_end_of_a_large_one(working: Writer) -> None:
    """Groups of 7, ten of them a turn: the large scope takes four turns, the small one has its own after the first."""
    for batch in range(3):
        items = [{**claim(working.scope, n), "operation": "create"} for n in range(100)]
        await working.ok("batch", {"scope_id": working.scope, "items": items, "operation_id": f"op:l{batch}"})
    small = await working.new_scope()
    only = await working.ok("create", claim(small))
    large = working.scope
    await place(working)
    await working.ok("place_hold", {"scope_id": small, "policy_basis": "matter:2"})
    await settled(working)
    working.scope = small
    await settled(working)
    working.scope = large
    last, mine = (
        await working.admin.fetchval("SELECT max(recorded_at) FROM core.ledger"),
        await working.admin.fetchval(
            "SELECT recorded_at FROM core.ledger WHERE subject_id = $1 AND event_type = 'retention_transitioned'",
            only["object_id"],
        ),
    )
    assert mine < last


async def test_a_lease_that_a_killed_process_left_is_taken_up(
    database: Database, write_bus: NatsAddress, still: Writer
) -> None:
    for n in range(30):
        await still.create(n)
    hold = await place(still)
    await still.admin.execute(
        "UPDATE core.legal_hold SET leased_until = clock_timestamp() + interval '500 ms' WHERE hold_id = $1",
        hold["hold_id"],
    )
    other = await started(database, write_settings(database, write_bus, hold_poll_ms=10, hold_objects_per_s=1e6))
    await settled(still)
    assert set((await retentions(still)).values()) == {"legal_hold"}
    await stopped(other)


async def test_a_lease_from_before_the_stores_clock_jumped_back_is_not_waited_for(
    database: Database, write_bus: NatsAddress, still: Writer
) -> None:
    await still.create(1)
    hold = await place(still)
    await still.admin.execute(
        "UPDATE core.legal_hold SET leased_until = clock_timestamp() + interval '1 hour' WHERE hold_id = $1",
        hold["hold_id"],
    )
    other = await started(database, write_settings(database, write_bus, hold_poll_ms=10))
    await settled(still)
    assert set((await retentions(still)).values()) == {"legal_hold"}
    await stopped(other)


async def test_a_process_that_is_killed_at_work_loses_nothing_and_repeats_nothing(
    database: Database, write_bus: NatsAddress, still: Writer
) -> None:
    for batch in range(3):
        items = [{**claim(still.scope, n), "operation": "create"} for n in range(100)]
        await still.ok("batch", {"scope_id": still.scope, "items": items, "operation_id": f"op:k{batch}"})
    hold = await place(still)
    environment = {
        **os.environ,
        "PAMSPEC_DATABASE_URL": database.role("write"),
        "PAMSPEC_NATS_URL": write_bus.url,
        "PAMSPEC_NATS_NKEY_SEED": write_bus.service_seed,
        "PAMSPEC_TOKEN_KEYS": json.dumps({KID: KEY.decode()}),
        "PAMSPEC_HOLD_POLL_MS": "10",
        "PAMSPEC_HOLD_GROUP": "5",
        "PAMSPEC_HOLD_OBJECTS_PER_S": "200",
    }
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pamspec_write", env=environment, stdout=asyncio.subprocess.DEVNULL
        )
        before = await moved(still)
        async with asyncio.timeout(60):
            while await moved(still) < before + 20:
                await asyncio.sleep(0.01)
        process.kill()
        await process.wait()
    assert 40 <= await moved(still) < 300
    row = await still.admin.fetchrow(
        "SELECT done_seq, leased_until FROM core.legal_hold WHERE hold_id = $1", hold["hold_id"]
    )
    assert row is not None
    assert row["done_seq"] >= 30
    await still.admin.execute("UPDATE core.legal_hold SET leased_until = '-infinity'")
    other = await started(database, write_settings(database, write_bus, hold_poll_ms=10, hold_objects_per_s=1e6))
    await settled(still)
    await stopped(other)
    entries = [e.event for e in await still.ledger() if e.event["event_type"] == "retention_transitioned"]
    assert len(entries) == len({event["object_id"] for event in entries}) == 300
    await still.check_scope()


async def moved(writer: Writer) -> int:
    """How many objects the job has moved."""
    return await writer.count("core.held_object")


async def test_the_job_keeps_its_rate(database: Database, write_bus: NatsAddress, still: Writer) -> None:
    items = [{**claim(still.scope, n), "operation": "create"} for n in range(60)]
    await still.ok("batch", {"scope_id": still.scope, "items": items})
    await place(still)
    settings = write_settings(database, write_bus, hold_poll_ms=10, hold_group=10, hold_objects_per_s=60)
    other = await started(database, settings)
    await settled(still)
    await stopped(other)
    taken = await still.admin.fetchval(
        "SELECT max(recorded_at) - min(recorded_at) FROM core.ledger WHERE event_type = 'retention_transitioned'"
    )
    assert taken.total_seconds() >= 0.8


async def _race(placing: Writer, deleting: Writer, kind: str, one: Document, *, ahead: bool) -> tuple[Answer, Answer]:
    """The answers of a hold over a type and of the deletion of its object, at once or with the deletion ahead."""

    async def delete() -> Answer:
        return await deleting.call("delete", deleting.change(one, policy_basis="race"))

    gone = await delete() if ahead else None
    document = {"scope_id": placing.scope, "policy_basis": "race", "object_type": kind}
    placed = placing.call("place_hold", document)
    if gone is not None:
        return await placed, gone
    return await asyncio.gather(placed, delete())


async def test_a_thousand_races_of_hold_and_delete_lose_nothing_that_is_held(writers: tuple[Writer, Writer]) -> None:
    """A deletion either precedes the hold in the ledger, or is refused; half of them through another process.

    One in ten deletions goes ahead, so that some precede however fast the machine is.
    """
    rounds, width = 20, 50
    refused = deleted = 0
    for number in range(rounds):
        placing, deleting = writers if number % 2 else writers[::-1]
        kinds = [f"com.example.race{number}.n{n}" for n in range(width)]
        made = [await placing.create(object_type=kind, schema_id="https://schemas.example.com/s") for kind in kinds]
        races = [
            _race(placing, deleting, kind, one, ahead=n % 10 == 0)
            for n, (kind, one) in enumerate(zip(kinds, made, strict=True))
        ]
        answers = await asyncio.gather(*races)
        for placed, gone in answers:
            hold = orjson.loads(placed.body)
            assert placed.status == 200, hold
            if gone.status == 423:
                refused += 1
            else:
                assert gone.status == 200, gone.body
                deleted += 1
                placed_seq = await placing.admin.fetchval(
                    "SELECT placed_seq FROM core.legal_hold WHERE hold_id = $1", hold["hold_id"]
                )
                assert int(gone.headers[HEADER_LEDGER_SEQUENCE]) <= placed_seq
        held = await placing.admin.fetchval(
            "SELECT count(*) FROM core.version_private p JOIN core.object_head h"
            " ON h.scope_key = p.scope_key AND h.from_seq = p.ledger_seq"
            " WHERE h.object_type = ANY($1::text[]) AND h.availability_state = 'available' AND p.content IS NOT NULL",
            kinds,
        )
        assert held == sum(gone.status == 423 for _, gone in answers)
        for placed, _ in answers:
            await release(placing, orjson.loads(placed.body))
    assert (refused + deleted, refused > 0, deleted > 0) == (1000, True, True)
