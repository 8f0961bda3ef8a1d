"""Evaluation runs: their clock and seed, their name in everything that they write, and where they may write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import orjson
import pytest

from pamspec_common.instants import parse, wire
from pamspec_common.principal import Principal
from services.write.tests.test_snapshots import seal
from services.write.tests.writer import ADMIN, PROVENANCE, SUBSCRIPTION, Document, Writer, claim

START = datetime(2020, 1, 1, tzinfo=UTC)
TICK = timedelta(milliseconds=5)
CLOCK = {"clock_ref": "clock:a", "start_at": "2020-01-01T00:00:00Z", "tick_ms": 5}
OPENED = {"event_type": "subscription_opened", "payload": {"subscription_id": "sub:1", "channel": "poll"}}
_names = count(1)


async def arena(writer: Writer) -> str:
    """A new evaluation scope."""
    return await writer.new_scope(kind="evaluation")


async def run_of(writer: Writer, **gifts: Any) -> str:
    """A run with a clock and a seed, or what is given, of a snapshot of the test's own scope."""
    run = f"run:{next(_names)}"
    gifts = gifts or {"deterministic_clock": CLOCK, "deterministic_rng_seed": 7}
    await seal(writer, evaluation_run_id=run, **gifts)
    return run


def ticks(start: datetime = START, tick: timedelta = TICK) -> Iterator[str]:
    for number in count():
        yield wire(start + number * tick)


async def times(writer: Writer, scope: str) -> list[str]:
    return [entry.event["recorded_at"] for entry in await writer.ledger(scope)]


async def perform(writer: Writer, scope: str, run: str) -> list[Document]:
    """Every kind of change, each with an operation_id of its own; the answers."""
    numbers = count(1)
    answers: list[Document] = []

    async def do(operation: str, **document: Any) -> Document:
        name = {"scope_id": scope, "operation_id": f"op:step-{next(numbers)}", "evaluation_run_id": run}
        answers.append(await writer.ok(operation, {**name, **document}))
        return answers[-1]

    def after(of: Document) -> Document:
        return {"object_id": of["object_id"], "expected_version_id": of["version_id"]}

    def body(content: Any, object_type: str = "claim") -> Document:
        return {"object_type": object_type, "canonical_content": content, "provenance": PROVENANCE}

    first = await do("create", **body("one"))
    second = await do("create", **body({"text": "two", "more": [1, 2]}))
    await do("create", **body({"tool_name": "x", "arguments": {}}, "tool_invocation"))
    note = await do("create", **body({"task_ref": "task:t", "content": "c"}, "working_memory"))
    await do(
        "promote",
        source_object_id=note["object_id"],
        expected_version_id=note["version_id"],
        target_object_type="claim",
        target_canonical_content="kept",
        provenance=PROVENANCE,
    )
    start = first
    first = await do("update", **after(first), canonical_content="uno", provenance=PROVENANCE)
    first = await do("update", **after(first), provenance={"activity": "corrected"})
    first = await do("update", **after(first), restore_version_id=start["version_id"], provenance=PROVENANCE)
    for dimension, state in (("lifecycle", "archived"), ("validation", "disputed"), ("retention", "expired")):
        first = await do("transition", **after(first), dimension=dimension, target_state=state, policy_basis="test")
    edge = {"source_object_id": first["object_id"], "target_object_id": second["object_id"]}
    edge |= {"relationship_type": "supports", "directionality": "directed", "provenance": PROVENANCE}
    related = await do("relate", **edge)
    of_edge = {"relationship_id": related["relationship_id"], "expected_version_id": related["version_id"]}
    await do("relate", **of_edge, **edge, canonical_content={"weight": 1})
    second = await do(
        "redact", **after(second), policy_basis="test", redaction_target={"paths": ["/more"]}, provenance=PROVENANCE
    )
    items = [{"operation": "create", **body(number)} for number in range(3)]
    await do("batch", items=items)
    await do("batch", items=items, atomic=True)
    await do("delete", **after(second), policy_basis="test")
    return answers


def without_scope(document: Any, scope: str) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).replace(scope.encode(), b"the scope")


async def recorded(writer: Writer, scope: str) -> list[bytes]:
    """Everything that the scope's ledger and versions hold, but for what rests on salts."""
    found: list[Any] = []
    for entry in await writer.ledger(scope):
        entry.event["payload"].pop("version_digest", None)
        found.append(entry.event)
    for row in await writer.admin.fetch(
        "SELECT v.metadata, p.content, p.private FROM core.version v JOIN core.version_private p"
        " USING (scope_key, ledger_seq) WHERE v.scope_key = $1 ORDER BY v.ledger_seq",
        await writer.scope_key(scope),
    ):
        metadata = orjson.loads(row["metadata"])
        assert metadata.pop("private_digest").startswith("hmac-sha256:")
        metadata.pop("content_digest", None)
        found.append([metadata, *(None if part is None else orjson.loads(part) for part in row[1:])])
    return [without_scope(one, scope) for one in found]


async def test_two_runs_of_the_same_steps_are_equal(shared: Writer) -> None:
    """P228-P230: ids, times, states, provenance and events, whatever the wall clock says."""
    run = await run_of(shared)
    first, second = await arena(shared), await arena(shared)
    one = await perform(shared, first, run)
    await asyncio.sleep(0)
    two = await perform(shared, second, run)
    assert [without_scope(answer, second) for answer in two] == [without_scope(answer, first) for answer in one]
    assert await recorded(shared, second) == await recorded(shared, first)
    for scope in (first, second):
        await shared.check_scope(scope)


async def test_salts_and_what_rests_on_them_are_never_repeated(shared: Writer) -> None:
    """An erased value could be guessed back from a salt that can be computed again."""
    run = await run_of(shared)
    found: list[set[bytes]] = []
    for scope in (await arena(shared), await arena(shared)):
        await perform(shared, scope, run)
        key = await shared.scope_key(scope)
        for table in ("version_private", "operation_record"):
            rows = await shared.admin.fetch(f"SELECT salt FROM core.{table} WHERE scope_key = $1", key)
            salts = [row["salt"] for row in rows if row["salt"] is not None]
            assert len(set(salts)) == len(salts)
            found.append(set(salts))
        found.append({entry.entry_hash for entry in await shared.ledger(scope)})
    assert not found[0] & found[3]
    assert not found[1] & found[4]
    assert not found[2] & found[5]


async def test_every_version_and_entry_names_its_run(shared: Writer) -> None:
    """P230, S4, for every operation."""
    run, scope = await run_of(shared), await arena(shared)
    await perform(shared, scope, run)
    entries = await shared.ledger(scope)
    kinds = {entry.event["event_type"] for entry in entries}
    assert kinds >= {
        *("object_created", "object_updated", "provenance_updated", "object_redacted", "object_deleted"),
        *("lifecycle_transitioned", "validation_transitioned", "retention_transitioned", "tool_invoked"),
        *("relationship_created", "relationship_updated", "working_memory_promoted"),
    }
    assert {entry.event["payload"]["evaluation_run_id"] for entry in entries} == {run}
    rows = await shared.admin.fetch(
        "SELECT private FROM core.version_private WHERE scope_key = $1 AND private IS NOT NULL",
        await shared.scope_key(scope),
    )
    assert len(rows) >= 12
    for row in rows:
        assert f"evaluation-run:{run}" in orjson.loads(row["private"])["provenance"]["evidence_refs"]


async def test_the_clock_ticks_once_for_each_operation(shared: Writer) -> None:
    run, scope = await run_of(shared), await arena(shared)
    body = {"evaluation_run_id": run, "object_type": "tool_invocation"}
    made = [await shared.ok("create", claim(scope, {"tool_name": "x", "arguments": {}}, **body)) for _ in range(3)]
    expected = [time for time, _ in zip(ticks(), made, strict=False)]
    assert [one["envelope"]["recorded_at"] for one in made] == expected
    assert [one["envelope"]["committed_at"] for one in made] == expected
    assert [one["envelope"]["provenance"]["recorded_at"] for one in made] == expected
    assert await times(shared, scope) == [time for time in expected for _ in range(2)]


async def test_refused_operations_and_repetitions_take_no_tick(shared: Writer) -> None:
    run, scope = await run_of(shared), await arena(shared)
    made = await shared.ok("create", claim(scope, evaluation_run_id=run), key="first")
    await shared.ok("create", claim(scope, evaluation_run_id=run), key="first")
    await shared.refused("create", claim(scope, object_id=made["object_id"], evaluation_run_id=run))
    await shared.ok("seal_snapshot", {"scope_id": scope, "evaluation_run_id": run})
    later = await shared.ok("create", claim(scope, evaluation_run_id=run))
    assert later["envelope"]["recorded_at"] == wire(START + TICK)


async def test_who_watches_does_not_move_the_clock(shared: Writer) -> None:
    """Entries of services without a run stand between the ticks, from before the first on."""
    run, scope = await run_of(shared), await arena(shared)
    for _ in range(3):
        await shared.ok("record_event", {"scope_id": scope, **OPENED}, by=SUBSCRIPTION)
        await shared.ok("create", claim(scope, evaluation_run_id=run))
    found = await times(shared, scope)
    assert found[1::2] == [wire(START + number * TICK) for number in range(3)]
    assert found == sorted(set(found))
    assert found[0] == "1970-01-01T00:00:00.000001Z"
    assert found[2] == wire(START + timedelta(microseconds=1))


async def test_entries_before_the_run_leave_it_the_next_tick(shared: Writer) -> None:
    """The ledger's times never fall: what was written by the wall clock is followed by the first tick after it."""
    run, scope = await run_of(shared), await arena(shared)
    fixture = await shared.ok("create", claim(scope))
    before = parse(fixture["envelope"]["recorded_at"])
    assert before > datetime.now(UTC) - timedelta(minutes=5)
    made = await shared.ok("create", claim(scope, evaluation_run_id=run))
    time = parse(made["envelope"]["recorded_at"])
    assert (time - START) % TICK == timedelta(0)
    assert timedelta(0) < time - before <= TICK
    await shared.check_scope(scope)


async def test_a_clock_of_the_future_holds_back_no_other_write(shared: Writer) -> None:
    run = await run_of(shared, deterministic_clock={**CLOCK, "start_at": "2999-01-01T00:00:00Z"})
    scope = await arena(shared)
    await shared.ok("create", claim(scope, evaluation_run_id=run))
    after = await shared.ok("create", claim(scope))
    assert after["envelope"]["recorded_at"] == "2999-01-01T00:00:00.000001Z"


async def test_a_clock_ends_with_the_year_9999(shared: Writer) -> None:
    run = await run_of(shared, deterministic_clock={**CLOCK, "start_at": "9999-12-31T23:59:59.998Z", "tick_ms": 1})
    scope = await arena(shared)
    for _ in range(2):
        await shared.ok("create", claim(scope, evaluation_run_id=run))
    error = await shared.refused("create", claim(scope, evaluation_run_id=run))
    assert error["code"] == "invalid_state_transition"


async def test_a_seed_decides_ids_and_nothing_else_does(shared: Writer) -> None:
    async def ids(seed: int, run: str) -> list[str]:
        await seal(shared, evaluation_run_id=run, deterministic_clock=CLOCK, deterministic_rng_seed=seed)
        made = await shared.ok("create", claim(await arena(shared), evaluation_run_id=run))
        names = [made["object_id"], made["version_id"], made["event_id"]]
        return [*names, made["envelope"]["provenance"]["provenance_id"]]

    found = [await ids(seed, f"run:seed-{seed}") for seed in (1, 2)]
    assert not set(found[0]) & set(found[1])
    for name in found[0]:
        assert name.split("-")[2].startswith("7")
        ms = int(name.partition(":")[2].replace("-", "")[:12], 16)
        assert ms == START.timestamp() * 1000


async def test_a_run_without_a_seed_or_without_a_clock_has_just_the_other(shared: Writer) -> None:
    clock = await run_of(shared, deterministic_clock=CLOCK)
    one, two = [await shared.ok("create", claim(await arena(shared), evaluation_run_id=clock)) for _ in range(2)]
    assert one["object_id"] != two["object_id"]
    assert one["envelope"]["recorded_at"] == two["envelope"]["recorded_at"] == wire(START)
    seeded = await run_of(shared, deterministic_rng_seed=7)
    one, two = [await shared.ok("create", claim(await arena(shared), evaluation_run_id=seeded)) for _ in range(2)]
    assert one["object_id"] == two["object_id"]
    for made in (one, two):
        assert parse(made["envelope"]["recorded_at"]) > datetime.now(UTC) - timedelta(minutes=5)


async def test_snapshots_of_equal_runs_have_ids_of_their_own(shared: Writer) -> None:
    run = await run_of(shared)
    found = [await seal(shared, await arena(shared), evaluation_run_id=run) for _ in range(2)]
    found += [await seal(shared, found[0]["scope_id"], evaluation_run_id=run) for _ in range(2)]
    assert len({one["snapshot_id"] for one in found}) == 4
    assert {one["created_at"] for one in found} == {wire(START)}


async def test_a_run_that_no_snapshot_defines_is_a_name_alone(shared: Writer) -> None:
    made = await shared.ok("create", claim(await arena(shared), evaluation_run_id="run:nobody"))
    assert parse(made["envelope"]["recorded_at"]) > datetime.now(UTC) - timedelta(minutes=5)
    assert made["envelope"]["provenance"]["evidence_refs"] == ["evaluation-run:run:nobody"]


async def test_a_run_of_another_tenant_is_another_run(shared: Writer) -> None:
    run = await run_of(shared)
    await shared.admin.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING", "tenant:far")
    far = Principal("tenant:far", "agent:far", "agent", roles=ADMIN)
    await shared.ok("create_scope", {"scope_id": "evaluation:far", "scope_kind": "evaluation"}, by=far)
    made = await shared.ok("create", claim("evaluation:far", evaluation_run_id=run), by=far)
    assert parse(made["envelope"]["recorded_at"]) > START + timedelta(days=365)


async def test_records_of_operations_keep_to_the_wall_clock(shared: Writer) -> None:
    """How long a record lives is counted in real time."""
    run, scope = await run_of(shared), await arena(shared)
    await shared.ok("create", claim(scope, evaluation_run_id=run), key="a")
    created = await shared.admin.fetchval(
        "SELECT created_at FROM core.operation_record WHERE scope_key = $1", await shared.scope_key(scope)
    )
    assert created > datetime.now(UTC) - timedelta(minutes=5)


async def test_a_run_changes_no_other_scope(shared: Writer) -> None:
    """P232: not by any operation that changes something, unless the scope's policy lists the run."""
    run = await run_of(shared)
    made, other = await shared.create(), await shared.create({"a": 1})
    edge = {"source_object_id": made["object_id"], "target_object_id": other["object_id"]}
    edge |= {"relationship_type": "supports", "directionality": "directed", "provenance": PROVENANCE}
    related = await shared.ok("relate", {"scope_id": shared.scope, **edge})
    of_edge = {"relationship_id": related["relationship_id"], "expected_version_id": related["version_id"]}
    basis = {"policy_basis": "test"}
    note = await shared.create({"task_ref": "task:t", "content": "c"}, object_type="working_memory")
    promotion = {"source_object_id": note["object_id"], "expected_version_id": note["version_id"]}
    promotion |= {"target_object_type": "claim", "target_canonical_content": 1, "provenance": PROVENANCE}
    before = await shared.ledger()
    attempts: list[tuple[str, Document]] = [
        ("create", claim(shared.scope)),
        ("update", shared.change(made, canonical_content=2, provenance=PROVENANCE)),
        ("transition", shared.change(made, dimension="lifecycle", target_state="archived", **basis)),
        ("redact", shared.change(other, redaction_target={"whole": True}, **basis)),
        ("delete", shared.change(other, **basis)),
        ("relate", {"scope_id": shared.scope, **edge, "relationship_type": "references"}),
        ("delete", {"scope_id": shared.scope, **of_edge, **basis}),
        ("promote", {"scope_id": shared.scope, **promotion}),
        ("update_scope", {"scope_id": shared.scope, "policy": {}, "expected_policy_version": 0, **basis}),
    ]
    for operation, document in attempts:
        error = await shared.refused(operation, {**document, "evaluation_run_id": run})
        assert (error["code"], error["details"]["reason"]) == ("policy_denied", "outside_evaluation"), operation
        assert error["policy_rule_id"] == "scope-policy/0/evaluation_runs"
    items = [{"operation": "create", **claim(shared.scope)}]
    found = await shared.ok("batch", {"scope_id": shared.scope, "items": items, "evaluation_run_id": run})
    assert found["results"][0]["error"]["code"] == "policy_denied"
    whole = {"scope_id": shared.scope, "items": items, "evaluation_run_id": run, "atomic": True}
    assert (await shared.refused("batch", whole))["code"] == "policy_denied"
    assert await shared.ledger() == before
    await shared.ok("record_event", {"scope_id": shared.scope, **OPENED, "evaluation_run_id": run}, by=SUBSCRIPTION)


async def test_a_refusal_for_the_run_can_be_tried_again(shared: Writer) -> None:
    """policy_denied is no outcome that sticks: once the policy allows it, the same key goes through."""
    run = await run_of(shared)
    document = claim(shared.scope, evaluation_run_id=run)
    assert (await shared.refused("create", document, key="again"))["code"] == "policy_denied"
    change = {"policy": {"evaluation_runs": ["run:*"]}, "expected_policy_version": 0, "policy_basis": "allowed"}
    await shared.ok("update_scope", {"scope_id": shared.scope, **change})
    made = await shared.ok("create", document, key="again")
    assert made["envelope"]["provenance"]["evidence_refs"] == [f"evaluation-run:{run}"]
    assert parse(made["envelope"]["recorded_at"]) > START + timedelta(days=365), "another scope keeps its own clock"
    await shared.check_scope()


async def test_a_policy_lists_ids_and_patterns_of_runs(shared: Writer) -> None:
    for bad in (["*a*"], ["no id"], [""]):
        change = {"policy": {"evaluation_runs": bad}, "expected_policy_version": 0, "policy_basis": "b"}
        error = await shared.refused("update_scope", {"scope_id": shared.scope, **change})
        assert error["code"] == "invalid_request"


async def test_two_writers_keep_one_clock(writers: tuple[Writer, Writer]) -> None:
    """Each operation gets a tick of its own, whichever process decides it."""
    first, second = writers
    run, scope = await run_of(first), await arena(first)

    async def write(writer: Writer) -> None:
        for _ in range(15):
            await writer.ok("create", claim(scope, evaluation_run_id=run))

    await asyncio.gather(write(first), write(second), write(first), write(second))
    assert await times(first, scope) == [wire(START + number * TICK) for number in range(60)]
    await first.check_scope(scope)


@pytest.mark.parametrize("kind", ["evaluation", "workspace"])
async def test_only_the_kind_makes_an_evaluation_scope(shared: Writer, kind: str) -> None:
    run, scope = await run_of(shared), f"{kind}:kind"
    await shared.ok("create_scope", {"scope_id": scope, "scope_kind": kind})
    answer = await shared.call("create", claim(scope, evaluation_run_id=run))
    assert answer.status == (201 if kind == "evaluation" else 403)
