"""An evaluation from end to end: frozen memory in, a run beside it, and the same again while the world goes on."""

from __future__ import annotations

from itertools import count
from typing import Any

import orjson

from services.query.tests.door import Door
from services.query.tests.writing import PROVENANCE, SCOPE, Writer

RUN = "run:spring"
CLOCK = {"clock_ref": "clock:spring", "start_at": "2026-03-01T00:00:00Z", "tick_ms": 10}
ALL: dict[str, Any] = {"kind": "structured", "trust": "all"}


async def evaluate(writer: Writer, door: Door, arena: str) -> None:
    """An agent that reads its memory at the snapshot, page by page, and writes what it makes of it."""
    steps = count(1)

    def named() -> dict[str, Any]:
        return {"scope_id": arena, "evaluation_run_id": RUN, "operation_id": f"op:{next(steps)}"}

    cursor: dict[str, str] = {}
    made: list[Any] = []
    while True:
        page = await door.ok(
            "query", scope_id=SCOPE, snapshot_id="snap:before", query=ALL, pagination={"limit": 2, **cursor}
        )
        for item in page["items"]:
            thought = {"about": item["envelope"]["object_id"], "was": item["envelope"]["canonical_content"]}
            made.append(await writer.create(thought, **named()))
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    for one in made[::2]:
        await writer.change(
            "transition", one, dimension="validation", target_state="disputed", policy_basis="test", **named()
        )
    await writer.change("delete", made[1], policy_basis="test", **named())


async def results(door: Door, arena: str) -> list[bytes]:
    """Every answer about the run's scope, but for its name and what rests on salts."""
    found = []
    for ordering in ({}, {"ordering": {"by": [{"field": "validation_state"}], "tie_break": ["object_id"]}}):
        found.append((await door("query", scope_id=arena, query=ALL, **ordering)).body)
    by_time = {
        "kind": "temporal",
        "trust": "all",
        "temporal_basis": "recorded_at",
        "range": {"to": "2026-03-01T00:00:00.05Z"},
    }
    found.append((await door("query", scope_id=arena, query=by_time)).body)
    history = await door.ok("inspect_history", scope_id=arena, after_sequence=0, pagination={"limit": 1000})
    for event in history["events"]:
        del event["payload"]["version_digest"]
    found.append(orjson.dumps(history))
    return [body.replace(arena.encode(), b"the arena") for body in found]


async def test_two_evaluations_of_one_snapshot_have_the_same_results(writer: Writer, door: Door) -> None:
    heads = [await writer.create({"n": n}, object_id=f"obj:{n}") for n in range(5)]
    await writer.ok(
        "seal_snapshot",
        snapshot_id="snap:before",
        evaluation_run_id=RUN,
        deterministic_clock=CLOCK,
        deterministic_rng_seed=1729,
    )
    found = []
    for arena in ("evaluation:first", "evaluation:second"):
        await writer.ok("create_scope", scope_id=arena, scope_kind="evaluation")
        await evaluate(writer, door, arena)
        await writer.ok("seal_snapshot", scope_id=arena, evaluation_run_id=RUN)
        found.append(await results(door, arena))
        for head in heads:
            await writer.change("update", head, canonical_content={"n": "the world goes on"}, provenance=PROVENANCE)
        heads = [(await door.ok("read", scope_id=SCOPE, object_id=head["object_id"]))["envelope"] for head in heads]
    assert found[0] == found[1]
    items = orjson.loads(found[0][0])["items"]
    assert len(items) == 5
    assert {item["envelope"]["recorded_at"][:19] for item in items} == {"2026-03-01T00:00:00"}
    assert len(orjson.loads(found[0][2])["items"]) not in (0, 5)


async def test_the_runs_of_a_production_scope_are_told_from_what_it_learned(writer: Writer, door: Door) -> None:
    """P230: what a run wrote is found by its name, in provenance and in the ledger."""
    await writer.ok("create_scope", scope_id="evaluation:mixed", scope_kind="evaluation")
    await writer.create("fixture", scope_id="evaluation:mixed", object_id="obj:fixture")
    await writer.create("of the run", scope_id="evaluation:mixed", object_id="obj:run", evaluation_run_id=RUN)
    where = {"field": "provenance.evidence_refs", "op": "contains", "value": f"evaluation-run:{RUN}"}
    found = await door.ok("query", scope_id="evaluation:mixed", query={**ALL, "where": where})
    assert [item["envelope"]["object_id"] for item in found["items"]] == ["obj:run"]
    events = (await door.ok("inspect_history", scope_id="evaluation:mixed", after_sequence=0))["events"]
    assert [event["payload"].get("evaluation_run_id") for event in events] == [None, RUN]
