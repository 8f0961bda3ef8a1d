"""RELATIONSHIP (18.9): independent, versioned relationships and cross-scope policy."""

from __future__ import annotations

from typing import Any

from pamspec_conformance import shapes
from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import PROVENANCE, Made, Trial

LIST = CaseList("RELATIONSHIP")
case = LIST.case


def edge(source: Made, target: Made, kind: str = "supports", **members: Any) -> dict[str, Any]:
    """The members of relate between two objects."""
    return {
        "source_object_id": source["object_id"],
        "target_object_id": target["object_id"],
        "relationship_type": kind,
        "directionality": "directed",
        "provenance": PROVENANCE,
        **members,
    }


async def pair(t: Trial) -> tuple[Made, Made, Made]:
    """Two claims and a relationship between them."""
    source, target = await t.claim({"n": 1}), await t.claim({"n": 2})
    return source, target, await t.ok("relate", **edge(source, target))


@case("P71", "P224", "P118")
async def relate_makes_a_relationship(t: Trial) -> None:
    """Relate answers a relationship with its own id, version and whole envelope, and leaves relationship_created."""
    source, target, made = await pair(t)
    t.shape(shapes.envelope_faults(made["envelope"]), "the envelope of the relationship")
    envelope = made["envelope"]
    t.same((envelope["source_object_id"], envelope["target_object_id"]), (source["object_id"], target["object_id"]), "")
    answer = await t.ok("read", relationship_id=made["relationship_id"])
    t.same(answer["envelope"], envelope, "the relationship read")
    events = await t.events(event_classes=["relationship_created"])
    t.same([event.get("relationship_id") for event in events], [made["relationship_id"]], "the event")
    t.same(events[0].get("version_id"), made["version_id"], "the version of the event")


@case("P72", "P119")
async def objects_stay_as_they_are(t: Trial) -> None:
    """Relating two objects and changing the relationship makes no version of either."""
    source, target, made = await pair(t)
    await t.ok("relate", **edge(source, target), **_again(made), canonical_content={"weight": 2})
    for one in (source, target):
        t.same((await t.read(one["object_id"]))["version_id"], one["version_id"], "the version of an end")


def _again(made: Made) -> dict[str, Any]:
    return {"relationship_id": made["relationship_id"], "expected_version_id": made["version_id"]}


@case("P72", "P224", "P158")
async def relationships_have_versions(t: Trial) -> None:
    """A change of a relationship is its next version with relationship_updated; a stale one is version_conflict."""
    source, target, made = await pair(t)
    changed = await t.ok("relate", **edge(source, target), **_again(made), canonical_content={"weight": 2})
    t.same((changed["relationship_id"], changed["sequence"]), (made["relationship_id"], 2), "the next version")
    await t.refused(
        "version_conflict", "relate", **edge(source, target), **_again(made), canonical_content={"weight": 3}
    )
    history = await t.ok("inspect_history", relationship_id=made["relationship_id"])
    kinds = [event["event_type"] for event in history["events"]]
    t.same(kinds, ["relationship_created", "relationship_updated"], "the events")
    old = await t.ok("read", relationship_id=made["relationship_id"], version_id=made["version_id"])
    t.same(old["envelope"], made["envelope"], "the first version")


@case("P224", "P118")
async def ends_must_exist(t: Trial) -> None:
    """Relating to what is missing, deleted or in another scope is refused as if it were not there."""
    here, elsewhere = await t.claim(), await t.new_scope()
    there = await t.claim(scope_id=elsewhere)
    gone = await t.claim()
    await t.delete(gone)
    missing = Made(here.reply)
    missing["object_id"] = "obj:none"
    await t.refused("object_not_found", "relate", **edge(here, missing))
    await t.refused("object_not_found", "relate", **edge(missing, here))
    await t.refused("object_not_found", "relate", **edge(here, there))
    await t.refused("object_deleted object_not_found", "relate", **edge(here, gone))


@case("P74", "P13", "P224", "P119")
async def crossing_scopes_needs_policy(t: Trial) -> None:
    """A relationship into another scope without a policy basis is policy_denied."""
    here, elsewhere = await t.claim(), await t.new_scope()
    there = await t.claim(scope_id=elsewhere)
    await t.refused("policy_denied", "relate", **edge(here, there, target_scope_id=elsewhere))


@case("P12", "P76", "P13", "P224")
async def a_reference_grants_no_access(t: Trial) -> None:
    """Whatever a relationship or a reference names, the object elsewhere stays where it is."""
    elsewhere = await t.new_scope()
    there = await t.claim({"word": "secret-r1"}, scope_id=elsewhere)
    here = await t.claim(
        relationship_refs=["rel:made-up"], provenance={"activity": "told", "source_ref": there["object_id"]}
    )
    reply = await t.send("relate", **edge(here, there, target_scope_id=elsewhere, policy_basis="conformance"))
    t.check(b"secret-r1" not in reply.body, "the answer holds the other scope's content")
    await t.refused("object_not_found", "read", object_id=there["object_id"])
    t.same(await t.found({"trust": "all", "filters": {"object_type": ["claim"]}}), [here["object_id"]], "found")


@case("P75")
async def an_equal_target_scope_is_the_same_scope(t: Trial) -> None:
    """A target scope that equals the scope needs no policy basis."""
    source, target = await t.claim(), await t.claim()
    made = await t.ok("relate", **edge(source, target, target_scope_id=await t.scope()))
    t.check(made["envelope"].get("target_scope_id") in (None, await t.scope()), "the target scope")


@case("P77", "P78")
async def unknown_labels_are_preserved(t: Trial) -> None:
    """Labels that nobody knows are kept as sent, the known ones too."""
    source, target = await t.claim(), await t.claim()
    for kind in ("derives_from", "derived_from", "com.example.rel.inspired-by", "https://rel.example.com/next"):
        made = await t.ok("relate", **edge(source, target, kind))
        t.same(made["envelope"]["relationship_type"], kind, "the label")


@case("P224", "P171")
async def a_second_equal_edge_conflicts(t: Trial) -> None:
    """A second active relationship of the same type between the same ends is relationship_conflict."""
    source, target, _ = await pair(t)
    await t.refused("relationship_conflict", "relate", **edge(source, target))
    await t.ok("relate", **edge(source, target, "contradicts"))


@case("P73", "P142")
async def relationships_outlive_their_ends(t: Trial) -> None:
    """Deleting an object leaves its relationships; deleting a relationship leaves its objects."""
    source, target, made = await pair(t)
    await t.delete(target)
    found = await t.ok("read", relationship_id=made["relationship_id"])
    t.same(found["envelope"], made["envelope"], "the relationship after its target is deleted")
    gone = await t.delete(made)
    t.same(gone["envelope"]["availability_state"], "deleted", "availability of the relationship")
    t.same(await t.read(source["object_id"]), source["envelope"], "the source")


@case("P71", "P116", "P224")
async def relationships_have_states(t: Trial) -> None:
    """A transition moves a relationship's state, with an event that names the relationship."""
    _, _, made = await pair(t)
    moved = await t.transition(made, "validation", "corroborated")
    t.same((moved["envelope"]["validation_state"], moved["sequence"]), ("corroborated", 2), "the relationship")
    event = (await t.events())[-1]
    t.same(event.get("relationship_id"), made["relationship_id"], "the event's relationship")
    t.check("object_id" not in event, "the event names an object")


@case("P137", "P138", "P139", "P141")
async def promotion_links_what_it_makes(t: Trial) -> None:
    """Promote makes the new object, supersedes the source and links both by derived_from, in one step."""
    content = {"task_ref": "task:1", "content": "the depot opens at six"}
    source = await t.ok("create", object_type="working_memory", canonical_content=content, provenance=PROVENANCE)
    members: dict[str, Any] = {
        "target_object_type": "claim",
        "target_canonical_content": {"statement": "it opens at six"},
    }
    about: dict[str, Any] = {"source_object_id": source["object_id"], "expected_version_id": source["version_id"]}
    made = await t.ok("promote", **about, **members, provenance=PROVENANCE)
    envelope = made["object"]["envelope"]
    t.same(envelope["provenance"].get("transformation_parent"), source["version_id"], "transformation_parent")
    t.same((await t.read(source["object_id"]))["lifecycle_state"], "superseded", "lifecycle of the source")
    link = (await t.ok("read", relationship_id=made["relationship_id"]))["envelope"]
    ends = (link["relationship_type"], link["source_object_id"], link["target_object_id"])
    t.same(ends, ("derived_from", envelope["object_id"], source["object_id"]), "the link")
    kinds = [event["event_type"] for event in (await t.events())[1:]]
    due = ["object_created", "lifecycle_transitioned", "relationship_created", "working_memory_promoted"]
    t.same(kinds, due, "the events")


@case("P140", "P137", "P181")
async def promotion_has_preconditions(t: Trial) -> None:
    """Promotion of another type is invalid_request, of a stale version version_conflict; neither makes anything."""
    claim = await t.claim()
    members: dict[str, Any] = {
        "target_object_type": "claim",
        "target_canonical_content": {"n": 1},
        "provenance": PROVENANCE,
    }
    about: dict[str, Any] = {"source_object_id": claim["object_id"], "expected_version_id": claim["version_id"]}
    await t.refused("invalid_request", "promote", **about, **members)
    note = {"task_ref": "task:1", "content": "x"}
    source = await t.ok("create", object_type="working_memory", canonical_content=note, provenance=PROVENANCE)
    about = {"source_object_id": source["object_id"], "expected_version_id": "ver:stale"}
    await t.refused("version_conflict", "promote", **about, **members)
    t.same(len(await t.events()), 2, "events")
