"""EVALUATION (18.11): sealed snapshots, comparison, deterministic clock, propagation and isolation."""

from __future__ import annotations

from typing import Any

from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import PROVENANCE, Trial

LIST = CaseList("EVALUATION")
case = LIST.case
CLOCK = {"clock_ref": "clock:conformance", "start_at": "2030-01-01T00:00:00Z", "tick_ms": 1000}


@case("P226")
async def a_seal_answers_the_descriptor(t: Trial) -> None:
    """Sealing answers the snapshot's id, scope, time and ledger watermark, and that it is sealed."""
    made = await t.claim()
    sealed = await t.seal()
    for name in ("snapshot_id", "scope_id", "created_at", "ledger_sequence_high_watermark"):
        t.check(name in sealed, f"the descriptor lacks {name}")
    t.same(sealed["sealed"], True, "sealed")
    t.check(sealed["ledger_sequence_high_watermark"] >= made["ledger_sequence"], "the watermark is below the write")


@case("P227", "P164")
async def a_snapshot_never_changes(t: Trial) -> None:
    """Reads, queries and history at a snapshot show the state at its sealing, whatever comes later."""
    made = await t.claim({"n": 1})
    sealed = await t.seal()
    at = {"snapshot_id": sealed["snapshot_id"]}
    changed = await t.update(made, {"n": 2})
    later = await t.claim({"n": 3})
    t.same(await t.read(made["object_id"], **at), made["envelope"], "read at the snapshot")
    t.same(await t.found(**at), [made["object_id"]], "found at the snapshot")
    versions = (await t.history(made["object_id"], **at))["versions"]
    t.same([one["version_id"] for one in versions], [made["version_id"]], "history at the snapshot")
    await t.refused("object_not_found", "read", object_id=later["object_id"], **at)
    t.same(await t.read(made["object_id"]), changed["envelope"], "read now")


@case("P227")
async def a_snapshot_id_is_sealed_once(t: Trial) -> None:
    """Sealing under the id of a snapshot that exists, with whatever members, is invalid_state_transition."""
    one, other = await t.claim(), await t.claim()
    sealed = await t.seal(included_object_ids=[one["object_id"]])
    for members in ([one["object_id"]], [one["object_id"], other["object_id"]]):
        about = {"snapshot_id": sealed["snapshot_id"], "included_object_ids": members}
        await t.refused("invalid_state_transition", "seal_snapshot", **about)
    await t.refused("object_not_found", "seal_snapshot", included_object_ids=["obj:none"])


@case("P227")
async def a_sealed_snapshot_cannot_be_sealed_otherwise(t: Trial) -> None:
    """Under a key, a seal answers the same snapshot again; with another membership it is refused."""
    one, other = await t.claim(), await t.claim()
    key = t.key()
    members: dict[str, Any] = {"included_object_ids": [one["object_id"]]}
    first = await t.ok("seal_snapshot", key=key, **members)
    again = await t.ok("seal_snapshot", key=key, **members)
    t.same(again.reply.body, first.reply.body, "the repetition")
    different: dict[str, Any] = {"included_object_ids": [one["object_id"], other["object_id"]]}
    await t.refused("duplicate_operation invalid_state_transition", "seal_snapshot", key=key, **different)


@case("P226", "P227")
async def membership_is_what_was_included(t: Trial) -> None:
    """A snapshot of certain objects shows those and no others."""
    one, other = await t.claim(), await t.claim()
    sealed = await t.seal(included_object_ids=[one["object_id"]])
    at = {"snapshot_id": sealed["snapshot_id"]}
    t.same(await t.found(**at), [one["object_id"]], "found at the snapshot")
    await t.refused("object_not_found", "read", object_id=other["object_id"], **at)


@case("P231")
async def snapshots_can_be_compared(t: Trial) -> None:
    """Comparing two snapshots tells what was added and removed, and which versions and states changed."""
    kept, changed, gone = [await t.claim({"n": number}) for number in range(3)]
    base = await t.seal()
    await t.transition(await t.update(changed, {"n": -1}), "validation", "disputed")
    await t.delete(gone)
    added = await t.claim({"n": 9})
    other = await t.seal()
    ids = {"base_snapshot_id": base["snapshot_id"], "other_snapshot_id": other["snapshot_id"]}
    answer = await t.ok("compare_snapshots", **ids)
    text = {name: str(answer[name]) for name in ("added", "removed", "changed")}
    t.check(added["object_id"] in text["added"], "what was added is missing")
    t.check(changed["object_id"] in text["changed"] and "disputed" in text["changed"], "the change is missing")
    t.check(gone["object_id"] in text["removed"] + text["changed"], "what was deleted is missing")
    t.check(kept["object_id"] not in "".join(text.values()), "what stayed is told as a change")


@case("P227", "P111")
async def unknown_snapshots_are_refused(t: Trial) -> None:
    """A read, query or history at a snapshot that is not there is snapshot_not_found."""
    made = await t.claim()
    await t.seal()
    at: dict[str, Any] = {"snapshot_id": "snap:none"}
    await t.refused("snapshot_not_found", "read", object_id=made["object_id"], **at)
    await t.refused("snapshot_not_found", "query", query={"kind": "structured"}, **at)
    await t.refused("snapshot_not_found", "inspect_history", object_id=made["object_id"], **at)


@case("P230")
async def the_run_id_is_propagated(t: Trial) -> None:
    """A write of an evaluation run names the run in its provenance and in its event."""
    run, at = "run:conformance-1", {"scope_id": await t.new_scope(scope_kind="evaluation")}
    made = await t.claim(**at, evaluation_run_id=run)
    refs = made["envelope"]["provenance"].get("evidence_refs", [])
    t.check(f"evaluation-run:{run}" in refs, "the provenance does not name the run")
    event = (await t.events(**at))[0]
    t.same(event.get("payload", {}).get("evaluation_run_id"), run, "the run in the event")
    changed = await t.update(made, {"n": 2})
    t.check("evaluation_run_id" not in (await t.events(**at))[1].get("payload", {}), "a run sticks to later writes")
    t.check(changed["sequence"] == 2, "the update made no version")


@case("P228", "P229")
async def the_clock_of_a_run_is_deterministic(t: Trial) -> None:
    """Two runs over the same steps with the same clock and seed have the same authoritative times."""
    times = []
    for _ in range(2):
        scope_id, run = await t.new_scope(scope_kind="evaluation"), f"run:{t.key().removeprefix('key:')}"
        members: dict[str, Any] = {"deterministic_clock": CLOCK, "deterministic_rng_seed": 7, "evaluation_run_id": run}
        sealed = await t.seal(scope_id=scope_id, **members)
        t.same(sealed.get("deterministic_rng_seed"), 7, "the seed in the descriptor")
        made = await t.claim({"n": 1}, scope_id=scope_id, evaluation_run_id=run)
        changed = await t.update(made, {"n": 2}, evaluation_run_id=run)
        times.append([one["envelope"]["recorded_at"] for one in (made, changed)])
    t.same(times[1], times[0], "the times of the second run")
    t.check(times[0][0].startswith("2030-01-01T00:00"), "the times are not the clock's")


@case("P232")
async def an_evaluation_stays_in_its_scope(t: Trial) -> None:
    """A write under a run's snapshot changes nothing outside the evaluation's scope."""
    sealed = await t.seal(evaluation_run_id="run:isolated")
    outside = await t.new_scope()
    there = await t.claim({"n": 1}, scope_id=outside)
    about: dict[str, Any] = {**t.on(there), "canonical_content": {"n": 2}, "provenance": PROVENANCE}
    reply = await t.send("update", **about, evaluation_run_id="run:isolated")
    t.refusal(reply, "policy_denied access_denied", "a write outside the evaluation scope")
    t.same(await t.read(there["object_id"], scope_id=outside), there["envelope"], "the object outside")
    t.check(sealed["snapshot_id"], "no snapshot")
