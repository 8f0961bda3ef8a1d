"""CORE (18.4): identity, states, authoritative and derived state, errors, export."""

from __future__ import annotations

import json
from typing import Any

from pamspec_conformance import shapes
from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import PROVENANCE, Trial

LIST = CaseList("CORE")
case = LIST.case


@case("P35")
async def a_chosen_object_id_is_kept(t: Trial) -> None:
    """A client's object_id is kept, character by character, through every version."""
    object_id = "urn:Example.com/Path:1-2_3+4"
    made = await t.claim(object_id=object_id)
    t.same(made["object_id"], object_id, "the object_id")
    t.same((await t.update(made, {"n": 2}))["object_id"], object_id, "the object_id of the next version")
    t.same((await t.read(object_id))["object_id"], object_id, "the object_id of a read")
    await t.refused("object_not_found", "read", object_id=object_id.lower())


@case("P35", "P105")
async def an_object_id_is_never_reused(t: Trial) -> None:
    """A create under an id that exists, or that a deleted object had, is refused and changes nothing."""
    made = await t.claim(object_id="obj:once")
    again: dict[str, Any] = {
        "object_type": "claim",
        "canonical_content": 1,
        "provenance": PROVENANCE,
        "object_id": "obj:once",
    }
    await t.refused("version_conflict object_deleted", "create", **again)
    t.same(await t.read("obj:once"), made["envelope"], "the object")
    await t.delete(made)
    await t.refused("version_conflict object_deleted", "create", **again)


@case("P36", "P67", "P48", "P49")
async def version_ids_and_sequences_are_never_reused(t: Trial) -> None:
    """Every change has a version_id of its own and a sequence greater than any before."""
    made = await t.claim()
    seen = [made]
    for number in range(3):
        seen.append(await t.update(seen[-1], {"n": number}))
    seen.append(await t.transition(seen[-1], "lifecycle", "archived"))
    seen.append(await t.delete(seen[-1]))
    t.same(len({one["version_id"] for one in seen}), len(seen), "different version ids")
    sequences = [one["sequence"] for one in seen]
    t.same(sequences, sorted(set(sequences)), "the sequences")


@case("P84", "P42", "P43", "P44", "P41")
async def the_four_dimensions_are_independent(t: Trial) -> None:
    """A transition moves its own dimension and no other."""
    made = await t.claim()
    for dimension, target in (
        ("validation", "disputed"),
        ("retention", "expired"),
        ("lifecycle", "deprecated"),
        ("validation", "rejected"),
        ("retention", "legal_hold"),
    ):
        before = made["envelope"]
        made = await t.transition(made, dimension, target)
        due = {name: target if name == f"{dimension}_state" else before[name] for name in shapes.STATES}
        t.same({name: made["envelope"][name] for name in shapes.STATES}, due, f"states after {dimension} to {target}")


@case("P99", "P91")
async def a_state_of_another_dimension_is_refused(t: Trial) -> None:
    """A target that belongs to another dimension is invalid_state_transition."""
    made = await t.claim()
    for dimension, target in (("lifecycle", "redacted"), ("validation", "archived"), ("retention", "active")):
        await t.refused("invalid_state_transition", "transition", **t.on(made), **t.to(dimension, target))


@case("P92", "P94", "P98", "P91")
async def transitions_follow_the_tables(t: Trial) -> None:
    """Edges of the tables succeed; edges that no table has are invalid_state_transition."""
    for start, path, forbidden in (
        ({"lifecycle_state": "scratch"}, ["candidate", "active", "deprecated", "archived"], "scratch"),
        ({"lifecycle_state": "candidate"}, ["archived"], "candidate"),
    ):
        made = await t.claim(**start)
        for target in path:
            made = await t.transition(made, "lifecycle", target)
        await t.refused("invalid_state_transition", "transition", **t.on(made), **t.to("lifecycle", forbidden))
    made = await t.claim(validation_state="unverified")
    for target in ("rejected", "disputed", "corroborated"):
        made = await t.transition(made, "validation", target)
    await t.refused("invalid_state_transition", "transition", **t.on(made), **t.to("validation", "corroborated"))
    for target in ("expired", "pending_deletion", "legal_hold", "retained"):
        made = await t.transition(made, "retention", target)


@case("P90")
async def a_transition_needs_a_policy_basis(t: Trial) -> None:
    """A transition or deletion without a policy basis is refused."""
    made = await t.claim()
    members: dict[str, Any] = {**t.on(made), "dimension": "lifecycle", "target_state": "archived"}
    await t.refused("invalid_request policy_denied", "transition", **members)
    await t.refused("invalid_request policy_denied", "transition", **members, policy_basis="")
    await t.refused("invalid_request policy_denied", "delete", **t.on(made))


@case("P37")
async def the_scope_is_immutable(t: Trial) -> None:
    """No update moves an object to another scope."""
    made, elsewhere = await t.claim(), await t.new_scope()
    for content in ({"scope_id": elsewhere, "tenant": "other"}, elsewhere):
        made = await t.update(made, content)
        t.same(made["envelope"]["scope_id"], await t.scope(), "the scope")
    await t.refused("object_not_found", "read", scope_id=elsewhere, object_id=made["object_id"])


@case("P45", "P46", "P165")
async def client_times_change_no_state(t: Trial) -> None:
    """Client times are kept as sent and change no state, a valid_until of the past included."""
    times = {
        "observed_at": "2001-01-01T00:00:00.000000Z",
        "asserted_at": "2002-01-01T00:00:00.000000Z",
        "valid_from": "2003-01-01T00:00:00.000000Z",
        "valid_until": "2004-01-01T00:00:00.000000Z",
    }
    made = await t.claim(**times)
    t.same({name: made["envelope"].get(name) for name in times}, times, "the times")
    t.same(made["envelope"]["lifecycle_state"], "active", "lifecycle")
    t.same(made["envelope"]["retention_state"], "retained", "retention")
    t.check(made["envelope"]["committed_at"] > "2005", "committed_at follows a client's time")
    t.same(await t.found(), [made["object_id"]], "found by default")


@case("P47", "P165")
async def service_times_cannot_be_forged(t: Trial) -> None:
    """committed_at, recorded_at and sequence are the service's: a request that brings them is refused or ignored."""
    for name, value in (
        ("committed_at", "2099-01-01T00:00:00Z"),
        ("recorded_at", "2099-01-01T00:00:00Z"),
        ("sequence", 7),
    ):
        forged: dict[str, Any] = {name: value}
        reply = await t.send("create", object_type="claim", canonical_content=1, provenance=PROVENANCE, **forged)
        if reply.refusal is None:
            t.check(reply.document["envelope"][name] != value, f"{name} is the client's")
        else:
            t.refusal(reply, "invalid_request", f"create with {name}")


@case("P55")
async def quality_signals_decide_nothing(t: Trial) -> None:
    """Quality signals are kept, never change the validation state, and are invalid_object out of range."""
    signals = {"assessed_confidence": 1, "contradiction_score": 0.25}
    made = await t.claim(quality_signals=signals, validation_state="unverified")
    t.same(made["envelope"]["validation_state"], "unverified", "validation")
    kept = made["envelope"]["quality_signals"]
    t.check(kept == signals, f"the signals are {kept}")
    t.same(await t.found(), [], "trusted retrieval of something unverified")
    members: dict[str, Any] = {"object_type": "claim", "canonical_content": 1, "provenance": PROVENANCE}
    for value in (1.5, -0.1):
        await t.refused("invalid_object", "create", **members, quality_signals={"assessed_confidence": value})


@case("P52", "P82", "P79")
async def provenance_is_required_and_attributed(t: Trial) -> None:
    """Provenance is required; the service says who and when; a change of it alone is provenance_updated."""
    members: dict[str, Any] = {"object_type": "claim", "canonical_content": 1}
    await t.refused("invalid_request invalid_object", "create", **members)
    await t.refused("invalid_request invalid_object", "create", **members, provenance={"source_ref": "no activity"})
    made = await t.claim(provenance={"activity": "told", "source_ref": "conversation:1", "source_confidence": 0.5})
    found = made["envelope"]["provenance"]
    t.same((found["activity"], found["source_ref"]), ("told", "conversation:1"), "provenance as sent")
    t.same(found["actor"]["actor_id"], made["envelope"]["actor"]["actor_id"], "the actor of the provenance")
    changed = await t.ok("update", **t.on(made), provenance={"activity": "corrected", "source_ref": "conversation:2"})
    t.same(changed["envelope"]["canonical_content"], made["envelope"]["canonical_content"], "the content")
    kinds = [event["event_type"] for event in await t.events(made["object_id"])]
    t.same(kinds, ["object_created", "provenance_updated"], "the events")


@case("P82", "P190")
async def provenance_is_never_dropped(t: Trial) -> None:
    """Every past version keeps the provenance that it was committed with."""
    made = await t.claim(provenance={"activity": "told", "source_ref": "conversation:1"})
    await t.update(made, {"n": 2}, provenance={"activity": "corrected", "source_ref": "conversation:2"})
    versions = (await t.history(made["object_id"]))["versions"]
    t.same([version["provenance"].get("source_ref") for version in versions], ["conversation:1", "conversation:2"], "")


@case("P219", "P170", "P171")
async def errors_are_the_core_envelope(t: Trial) -> None:
    """Refusals of many kinds come in the closed error envelope with a code of the 19 and its retryability."""
    made = await t.claim()
    await t.refused("object_not_found", "read", object_id="obj:none")
    await t.refused("scope_not_found", "read", scope_id="workspace:none-such", object_id="obj:none")
    await t.refused(
        "version_conflict", "delete", object_id=made["object_id"], expected_version_id="ver:0", policy_basis="x"
    )
    await t.refused("invalid_request", "read", object_id="no id")
    await t.refused("invalid_request", "read", object_id=made["object_id"], no_such_member=1)
    await t.refused("invalid_state_transition", "transition", **t.on(made), **t.to("lifecycle", "scratch"))


@case("P170", "P195")
async def errors_tell_no_content(t: Trial) -> None:
    """No refusal repeats content, neither the request's nor the store's."""
    made = await t.claim({"statement": "secret-51c"})
    asked: list[tuple[str, dict[str, Any]]] = [
        ("create", {"object_type": "claim", "canonical_content": "secret-51c", "provenance": {}}),
        ("create", {"object_type": "secret-51c!", "canonical_content": "secret-51c", "provenance": PROVENANCE}),
        (
            "update",
            {**t.on(made), "expected_version_id": "ver:0", "canonical_content": "secret-51c", "provenance": PROVENANCE},
        ),
        (
            "query",
            {
                "query": {
                    "kind": "structured",
                    "where": {"field": "content:/statement", "op": "gt", "value": {"secret-51c": 1}},
                }
            },
        ),
    ]
    for operation, members in asked:
        reply = await t.send(operation, **members)
        t.check(reply.refusal is not None, f"{operation} succeeded where it must be refused")
        t.check(b"secret-51c" not in reply.body, f"the refusal of {operation} repeats content")


@case("P17", "P219", "P18")
async def reading_changes_nothing_authoritative(t: Trial) -> None:
    """Reads, queries and history make neither versions nor events."""
    made = await t.claim()
    for _ in range(3):
        await t.read(made["object_id"])
        await t.found()
        await t.history(made["object_id"])
    await t.refused("object_not_found", "read", object_id="obj:none")
    t.same(len(await t.events(event_classes=["object_created", "object_updated"])), 1, "events")
    t.same((await t.read(made["object_id"]))["version_id"], made["version_id"], "the version")


@case("P219", "P15", "P58", "P192")
async def export_is_a_whole_representation(t: Trial) -> None:
    """Export names the scope and holds every version and event of it, unknown types included."""
    made = await t.claim()
    await t.update(made, {"n": 2})
    kind = "com.example.conformance.reading"
    other = await t.claim({"raw": [1]}, object_type=kind, schema_id="https://schemas.example.com/reading")
    reply = t.offered(await t.binding.call("export", {"scope_id": await t.scope()}), "export")
    t.check(reply.refusal is None, "export was refused")
    text = reply.body.decode()
    for line in text.splitlines():
        t.check(isinstance(json.loads(line), dict), "a line of the export is no JSON object")
    for due in (await t.scope(), made["object_id"], made["version_id"], other["version_id"], kind):
        t.check(due in text, f"the export lacks {due}")
    for event in await t.events():
        t.check(event["event_id"] in text, "the export lacks an event")
