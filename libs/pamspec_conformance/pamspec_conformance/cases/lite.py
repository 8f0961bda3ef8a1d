"""LITE (18.1): scope, envelope, the small state sets and the ledger."""

from __future__ import annotations

import asyncio
from typing import Any

from pamspec_conformance import shapes
from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import PROVENANCE, Trial

LIST = CaseList("LITE")
case = LIST.case


@case("P107", "P198", "P34", "P36", "P47", "P48")
async def create_answers_the_envelope(t: Trial) -> None:
    """Create answers object, version, scope and event ids and the committed envelope, whose sequence is 1."""
    made = await t.ok("create", object_type="claim", canonical_content={"statement": "it rains"}, provenance=PROVENANCE)
    envelope = made["envelope"]
    t.shape(shapes.envelope_faults(envelope), "the envelope of create")
    for name in ("object_id", "version_id", "scope_id", "sequence"):
        t.same(made[name], envelope[name], f"{name} beside the envelope")
    t.check(shapes.is_id(made.get("event_id")), "create names no event")
    t.same(envelope["sequence"], 1, "sequence of the first version")
    t.same(envelope["canonical_content"], {"statement": "it rains"}, "the content of create")
    t.same(envelope["scope_id"], await t.scope(), "the scope of create")


@case("P110", "P154", "P163")
async def read_answers_what_was_committed(t: Trial) -> None:
    """A read right after a write answers the very envelope that the write answered, each time."""
    made = await t.claim()
    for _ in range(2):
        t.same(await t.read(made["object_id"]), made["envelope"], "the envelope of read")


@case("P9", "P10", "P197")
async def scope_bounds_reads(t: Trial) -> None:
    """An object is read in its scope alone; elsewhere it is object_not_found, also by its version."""
    made, elsewhere = await t.claim(), await t.new_scope()
    await t.refused("object_not_found", "read", scope_id=elsewhere, object_id=made["object_id"])
    await t.refused(
        "object_not_found", "read", scope_id=elsewhere, object_id=made["object_id"], version_id=made["version_id"]
    )
    await t.refused("object_not_found", "inspect_history", scope_id=elsewhere, object_id=made["object_id"])


@case("P10", "P197", "P172")
async def scope_bounds_writes(t: Trial) -> None:
    """No write reaches an object through another scope."""
    made, elsewhere = await t.claim(), await t.new_scope()
    about: dict[str, Any] = {**t.on(made), "scope_id": elsewhere}
    await t.refused("object_not_found", "update", **about, canonical_content=0, provenance=PROVENANCE)
    await t.refused("object_not_found", "transition", **about, **t.to("lifecycle", "archived"))
    await t.refused("object_not_found", "delete", **about, policy_basis="conformance")
    t.same(await t.read(made["object_id"]), made["envelope"], "the object in its own scope")


@case("P11", "P122", "P197")
async def scope_bounds_queries(t: Trial) -> None:
    """A query answers objects of its scope alone."""
    here, elsewhere = await t.claim(), await t.new_scope()
    there = await t.claim(scope_id=elsewhere)
    t.same(await t.found(), [here["object_id"]], "found here")
    t.same(await t.found(scope_id=elsewhere), [there["object_id"]], "found elsewhere")


@case("P11", "P10")
async def query_without_a_scope_is_refused(t: Trial) -> None:
    """No query is global: a scope that is missing, empty or a wildcard is refused."""
    await t.claim()
    reply = await t.binding.call("query", {"query": {"kind": "structured", "trust": "all"}})
    t.refusal(t.offered(reply, "query"), "invalid_request", "a query without a scope")
    for scope_id in ("", "*", None, " ", "workspace:*"):
        await t.refused("invalid_request scope_not_found", "query", scope_id=scope_id, query={"kind": "structured"})


@case("P10", "P111")
async def unknown_scope_is_refused(t: Trial) -> None:
    """Every operation on a scope that is not there is scope_not_found."""
    scope_id = f"{await t.scope()}-missing"
    await t.refused("scope_not_found", "read", scope_id=scope_id, object_id="obj:any")
    await t.refused("scope_not_found", "query", scope_id=scope_id, query={"kind": "structured"})
    await t.refused(
        "scope_not_found", "create", scope_id=scope_id, object_type="claim", canonical_content=1, provenance=PROVENANCE
    )


@case("P197", "P12", "P111", needs=("stranger",))
async def strangers_see_no_scope(t: Trial) -> None:
    """A principal without rights in the scope is answered as if neither scope nor object were there."""
    made = await t.claim({"statement": "secret-7f3"})
    about: dict[str, Any] = {"scope_id": made["scope_id"], "object_id": made["object_id"]}
    for operation, members in (
        ("read", about),
        ("inspect_history", about),
        ("query", {"scope_id": made["scope_id"], "query": {"kind": "structured", "trust": "all"}}),
        ("delete", {**t.on(made), "policy_basis": "none"}),
    ):
        refusal = await t.refused("scope_not_found access_denied", operation, by=t.stranger, **members)
        t.check("secret-7f3" not in f"{refusal.message}{refusal.details}", "the refusal tells content")


@case("P199", "P91", "P92")
async def lifecycle_active_superseded_archived(t: Trial) -> None:
    """An object goes from active to superseded to archived, each step a new version."""
    made = await t.claim()
    t.same(made["envelope"]["lifecycle_state"], "active", "lifecycle of a new claim")
    for number, target in enumerate(("superseded", "archived"), start=2):
        made = await t.transition(made, "lifecycle", target)
        t.same((made["sequence"], made["envelope"]["lifecycle_state"]), (number, target), "the step")


@case("P91", "P93")
async def lifecycle_refuses_forbidden_edges(t: Trial) -> None:
    """An edge that no table allows is invalid_state_transition and leaves no version."""
    made = await t.claim()
    await t.refused("invalid_state_transition", "transition", **t.on(made), **t.to("lifecycle", "scratch"))
    t.same((await t.read(made["object_id"]))["sequence"], 1, "versions after the refusal")


@case("P200", "P142", "P102")
async def delete_leaves_a_terminal_tombstone(t: Trial) -> None:
    """Delete writes a last version with availability deleted; after it every change and read is object_deleted."""
    made = await t.claim({"statement": "secret-2b9"})
    gone = await t.delete(made)
    t.same(gone["envelope"]["availability_state"], "deleted", "availability of the tombstone")
    t.check("secret-2b9" not in gone.reply.body.decode(), "the tombstone holds content")
    await t.refused("object_deleted", "read", object_id=made["object_id"])
    await t.refused("object_deleted", "update", **t.on(gone), canonical_content=1, provenance=PROVENANCE)
    await t.refused("object_deleted", "transition", **t.on(gone), **t.to("lifecycle", "archived"))
    await t.refused("object_deleted", "delete", **t.on(gone), policy_basis="conformance")
    t.check(made["object_id"] not in await t.found({"trust": "working"}), "a query answers a deleted object")


@case("P201", "P98")
async def retention_pending_deletion(t: Trial) -> None:
    """An object goes from retained to pending_deletion and back."""
    made = await t.claim()
    pending = await t.transition(made, "retention", "pending_deletion")
    t.same(pending["envelope"]["retention_state"], "pending_deletion", "retention")
    t.check(made["object_id"] not in await t.found(), "trusted retrieval shows what is pending deletion")
    back = await t.transition(pending, "retention", "retained")
    t.same(back["envelope"]["retention_state"], "retained", "retention")


@case("P202", "P94")
async def validation_unverified_corroborated(t: Trial) -> None:
    """A new claim is unverified until a transition corroborates it."""
    made = await t.ok("create", object_type="claim", canonical_content={"n": 1}, provenance=PROVENANCE)
    t.same(made["envelope"]["validation_state"], "unverified", "validation of a new claim")
    t.same((await t.transition(made, "validation", "corroborated"))["envelope"]["validation_state"], "corroborated", "")


@case("P203", "P144", "P162")
async def every_write_has_its_event(t: Trial) -> None:
    """Each write leaves one version and one event of its kind, which names that version."""
    made = await t.claim()
    steps: list[Any] = [made, await t.update(made, {"n": 2})]
    steps.append(await t.transition(steps[-1], "lifecycle", "superseded"))
    steps.append(await t.transition(steps[-1], "validation", "disputed"))
    steps.append(await t.delete(steps[-1]))
    history = await t.history(made["object_id"])
    kinds = ["object_created", "object_updated", "lifecycle_transitioned", "validation_transitioned", "object_deleted"]
    t.same([event["event_type"] for event in history["events"]], kinds, "the events")
    due = [step["version_id"] for step in steps]
    t.same([event["version_id"] for event in history["events"]], due, "the versions that the events name")
    t.same([version["version_id"] for version in history["versions"]], due, "the versions")


@case("P203", "P162", "P69")
async def refused_writes_leave_nothing(t: Trial) -> None:
    """A refused write leaves neither a version nor an event."""
    made = await t.claim()
    await t.update(made, {"n": 2})
    before = await t.history()
    await t.refused("version_conflict", "update", **t.on(made), canonical_content={"n": 3}, provenance=PROVENANCE)
    await t.refused("version_conflict", "delete", **t.on(made), policy_basis="conformance")
    await t.refused("invalid_request invalid_object", "create", object_type="claim", canonical_content=1)
    t.same((await t.history())["events"], before["events"], "the ledger after refusals")


@case("P22", "P203", "P21")
async def ledger_is_append_only(t: Trial) -> None:
    """What the ledger holds stays, to the byte, whatever is written later, a deletion included."""
    made = await t.claim()
    changed = await t.update(made, {"n": 2})
    before = await t.events()
    await t.delete(changed)
    await asyncio.gather(*(t.claim({"n": number}) for number in range(5)))
    after = await t.events()
    t.same(after[: len(before)], before, "the first events, later")
    t.same(len(after), len(before) + 6, "the number of events")
