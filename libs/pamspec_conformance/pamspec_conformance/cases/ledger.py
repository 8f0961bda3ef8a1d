"""LEDGER (18.6): append-only, linked, ordered, with event-only entries, tombstones and holds."""

from __future__ import annotations

import asyncio

from pamspec_conformance import shapes
from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import PROVENANCE, Trial

LIST = CaseList("LEDGER")
case = LIST.case


@case("P143", "P144", "P145")
async def events_have_the_closed_form(t: Trial) -> None:
    """Every event has exactly the members of the model, a type of the 22, and its version where one is due."""
    made = await t.claim()
    made = await t.transition(await t.update(made, {"n": 2}), "retention", "expired")
    await t.delete(made)
    opened = await t.ok("subscribe")
    await t.ok("unsubscribe", subscription_id=opened["subscription_id"])
    events = await t.events()
    t.same(len(events), 6, "events")
    for event in events:
        t.shape(shapes.event_faults(event), f"the event {event.get('event_type')}")
        t.same(event["scope_id"], await t.scope(), "the scope of an event")
    t.same(len({event["event_id"] for event in events}), 6, "different event ids")


@case("P221", "P128", "P22")
async def the_order_is_strict(t: Trial) -> None:
    """Sequences of a scope rise without a gap from 1, record times never fall, under concurrent writers too."""
    made = await asyncio.gather(*(t.claim({"n": number}) for number in range(10)))
    await asyncio.gather(*(t.update(one, {"n": -1}) for one in made))
    events = await t.events()
    t.same([event["sequence"] for event in events], list(range(1, 21)), "the sequences")
    times = [event["recorded_at"] for event in events]
    t.same(times, sorted(times), "the record times")


@case("P22", "P221")
async def an_object_has_one_order(t: Trial) -> None:
    """An object's events come in the order of its versions."""
    made = await t.claim()
    others = asyncio.gather(*(t.claim({"n": number}) for number in range(5)))
    for number in range(4):
        made = await t.update(made, {"n": number})
    await others
    history = await t.history(made["object_id"])
    by_event = [event["version_id"] for event in history["events"]]
    t.same(by_event, [version["version_id"] for version in history["versions"]], "versions in the order of events")
    t.same([version["sequence"] for version in history["versions"]], [1, 2, 3, 4, 5], "version sequences")


@case("P221", "P20", "P144")
async def events_and_versions_are_linked(t: Trial) -> None:
    """Each event of a change names a version that is there, and each answer names its event and position."""
    made = await t.claim()
    changed = await t.update(made, {"n": 2})
    for answer in (made, changed):
        events = await t.events(after_sequence=answer["ledger_sequence"] - 1, to_sequence=answer["ledger_sequence"])
        t.same([event["event_id"] for event in events], [answer["event_id"]], "the event at the answer's position")
        t.same(events[0]["version_id"], answer["version_id"], "the version of that event")
        t.same(await t.read(made["object_id"], version_id=answer["version_id"]), answer["envelope"], "that version")


@case("P146", "P116")
async def transition_events_say_from_and_to(t: Trial) -> None:
    """Each transition's event is of its dimension and says from which state to which."""
    made = await t.claim()
    for dimension, before, after in (
        ("lifecycle", "active", "deprecated"),
        ("validation", "corroborated", "disputed"),
        ("retention", "retained", "expired"),
    ):
        made = await t.transition(made, dimension, after)
        event = (await t.events(made["object_id"]))[-1]
        t.same(event["event_type"], f"{dimension}_transitioned", "the event")
        payload = event.get("payload", {})
        t.same((payload.get("from"), payload.get("to")), (before, after), f"payload of {dimension}")


@case("P70", "P221", "P132")
async def event_only_entries_make_no_version(t: Trial) -> None:
    """Operational entries are part of the ledger's order and make no version."""
    made = await t.claim()
    opened = await t.ok("subscribe")
    await t.ok("unsubscribe", subscription_id=opened["subscription_id"])
    history = await t.history()
    t.same([event["sequence"] for event in history["events"]], [1, 2, 3], "sequences")
    t.same([version["version_id"] for version in history["versions"]], [made["version_id"]], "versions")


@case("P124")
async def history_by_event_range_and_class(t: Trial) -> None:
    """History answers a range of the ledger, and only the classes that are asked for."""
    made = await t.claim()
    changed = await t.update(made, {"n": 2})
    await t.transition(changed, "lifecycle", "archived")
    t.same([event["sequence"] for event in await t.events(after_sequence=1, to_sequence=2)], [2], "the range")
    kinds = ["object_created", "lifecycle_transitioned"]
    t.same([event["event_type"] for event in await t.events(event_classes=kinds)], kinds, "the classes")


@case("P88", "P98", "P221")
async def a_legal_hold_bites(t: Trial) -> None:
    """Under a legal hold delete and every step towards removal fail with legal_hold, until it is released."""
    held = await t.transition(await t.claim(), "retention", "legal_hold")
    await t.refused("legal_hold", "delete", **t.on(held), policy_basis="conformance")
    t.same(await t.read(held["object_id"]), held["envelope"], "the object under hold")
    free = await t.transition(held, "retention", "retained")
    t.same((await t.delete(free))["envelope"]["availability_state"], "deleted", "availability after the release")


@case("P24", "P187", "P21", "P102")
async def tombstones_keep_the_ledger_and_lose_the_content(t: Trial) -> None:
    """After a deletion the history still tells every event and version, and holds nothing of the content."""
    made = await t.claim({"statement": "secret-c40"}, provenance={"activity": "told", "source_ref": "secret-c41"})
    changed = await t.update(made, {"statement": "secret-c42"})
    before = await t.events(made["object_id"])
    await t.delete(changed)
    reply = await t.send("inspect_history", object_id=made["object_id"])
    t.check(reply.refusal is None, "the history of a deleted object is refused")
    t.same(reply.document["events"][:2], before, "the events before the deletion")
    t.same([version["sequence"] for version in reply.document["versions"]], [1, 2, 3], "versions")
    for secret in (b"secret-c40", b"secret-c41", b"secret-c42"):
        t.check(secret not in reply.body, "the history still holds erased content")


@case("P20", "P162")
async def an_atomic_batch_is_all_or_nothing(t: Trial) -> None:
    """One refused item of an atomic batch leaves neither versions nor events of the others."""
    item = {"operation": "create", "object_type": "claim", "canonical_content": 1, "provenance": PROVENANCE}
    bad = {"operation": "delete", "object_id": "obj:none", "expected_version_id": "ver:none", "policy_basis": "x"}
    reply = await t.send("batch", items=[item, bad], atomic=True)
    results = [] if reply.refusal else reply.document["results"]
    t.check(all("error" in result for result in results), "an item succeeded")
    t.same(await t.events(), [], "events")


@case("P182", "P221")
async def versions_are_told_once(t: Trial) -> None:
    """No version is named by two events of a change, none is missing, over many writers."""
    made = await asyncio.gather(*(t.claim({"n": number}) for number in range(8)))
    changed = await asyncio.gather(*(t.update(one, {"n": 0}) for one in made))
    due = {one["version_id"] for one in [*made, *changed]}
    named = [event["version_id"] for event in await t.events() if event["event_type"] in shapes.VERSION_EVENTS]
    t.same(len(named), len(due), "events of changes")
    t.same(set(named), due, "versions that they name")
