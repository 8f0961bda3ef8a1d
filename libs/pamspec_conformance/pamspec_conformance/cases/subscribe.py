"""SUBSCRIBE (18.3): delivery of every matching event, in order, with a stable cursor."""

from __future__ import annotations

import asyncio
from typing import Any

from pamspec_conformance import shapes
from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import Made, Trial

LIST = CaseList("SUBSCRIBE")
case = LIST.case


async def _poll(t: Trial, opened: Made, **members: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await t.ok("poll", subscription_id=opened["subscription_id"], **members))["events"]
    return found


def _sequences(events: list[dict[str, Any]]) -> list[int]:
    return [event["sequence"] for event in events]


@case("P214", "P126")
async def subscribe_answers_where_it_starts(t: Trial) -> None:
    """Subscribe answers the subscription's id and the ledger sequence after which delivery starts."""
    await t.claim()
    from_start = await t.ok("subscribe", after_sequence=0)
    t.check(shapes.is_id(from_start.get("subscription_id")), "subscribe answers no subscription_id")
    t.same(from_start["start_sequence"], 0, "start_sequence of a subscription from the beginning")
    from_now = await t.ok("subscribe")
    t.check(from_now["start_sequence"] >= 1, "a subscription from now on starts at the beginning")


@case("P215", "P127", "P128")
async def delivers_every_event_in_order(t: Trial) -> None:
    """From the beginning, every event of the scope comes, once, in ledger order, as the ledger holds it."""
    opened = await t.ok("subscribe", after_sequence=0, filter={"event_classes": ["object_created", "object_updated"]})
    made = await asyncio.gather(*(t.claim({"n": number}) for number in range(10)))
    await asyncio.gather(*(t.update(one, {"n": -1}) for one in made))
    due = [event for event in await t.events() if event["event_type"] in ("object_created", "object_updated")]
    t.same(len(due), 20, "events in the ledger")
    t.same(await _poll(t, opened, max=1000), due, "the events delivered")


@case("P215", "P163")
async def an_acknowledged_write_can_be_polled_at_once(t: Trial) -> None:
    """The poll after a write's answer has the event of that write."""
    opened = await t.ok("subscribe")
    for number in range(5):
        made = await t.claim({"n": number})
        events = await _poll(t, opened)
        t.check(made["version_id"] in [event.get("version_id") for event in events], "the write's event is not there")


@case("P216", "P133")
async def filters_by_event_class(t: Trial) -> None:
    """Events of other classes are not delivered."""
    opened = await t.ok("subscribe", after_sequence=0, filter={"event_classes": ["object_deleted"]})
    made = await t.claim()
    await t.claim()
    gone = await t.delete(made)
    t.same([event["version_id"] for event in await _poll(t, opened)], [gone["version_id"]], "the events delivered")


@case("P216", "P133")
async def filters_by_object_type(t: Trial) -> None:
    """Events of other object types are not delivered."""
    opened = await t.ok("subscribe", after_sequence=0, filter={"object_type": "decision"})
    await t.claim()
    decided = await t.claim(object_type="decision")
    t.same([event.get("object_id") for event in await _poll(t, opened)], [decided["object_id"]], "the events")


@case("P216", "P133")
async def filters_by_object(t: Trial) -> None:
    """Events of other objects are not delivered."""
    one, other = await t.claim(), await t.claim()
    opened = await t.ok("subscribe", after_sequence=0, filter={"object_id": one["object_id"]})
    await t.update(other, {"n": 2})
    await t.update(one, {"n": 2})
    t.same([event.get("object_id") for event in await _poll(t, opened)], [one["object_id"]] * 2, "the events")


@case("P215", "P10")
async def delivers_its_scope_alone(t: Trial) -> None:
    """Events of another scope are never delivered."""
    opened, elsewhere = await t.ok("subscribe", after_sequence=0), await t.new_scope()
    await t.claim(scope_id=elsewhere)
    here = await t.claim()
    events = [event for event in await _poll(t, opened) if "object_id" in event]
    t.same([event["object_id"] for event in events], [here["object_id"]], "the events")


@case("P217")
async def the_cursor_moves_on(t: Trial) -> None:
    """What a poll delivered is not delivered by the next one."""
    opened = await t.ok("subscribe")
    await t.claim()
    first = await _poll(t, opened)
    t.same(len(first), 1, "events of the first poll")
    t.same(await _poll(t, opened), [], "events of the second poll")
    await t.claim()
    second = await _poll(t, opened)
    t.check(len(second) == 1 and second[0]["sequence"] > first[0]["sequence"], "the later event is not alone")


@case("P217")
async def pages_keep_the_cursor(t: Trial) -> None:
    """Small pages deliver each event once, in order."""
    opened = await t.ok("subscribe")
    made = [await t.claim({"n": number}) for number in range(7)]
    got: list[int] = []
    for _ in range(4):
        got += _sequences(await _poll(t, opened, max=2))
    t.same(got, [one["ledger_sequence"] for one in made], "the sequences delivered")


@case("P217", "P127")
async def after_sequence_reads_again(t: Trial) -> None:
    """A poll that names a position delivers what comes after it, again where that was delivered before."""
    opened = await t.ok("subscribe")
    made = [await t.claim({"n": number}) for number in range(4)]
    await _poll(t, opened)
    again = await _poll(t, opened, after_sequence=made[1]["ledger_sequence"])
    t.same(_sequences(again), [one["ledger_sequence"] for one in made[2:]], "the sequences delivered again")


@case("P217")
async def reset_delivers_again(t: Trial) -> None:
    """After a reset, delivery starts over at the position named."""
    opened = await t.ok("subscribe")
    made = [await t.claim({"n": number}) for number in range(3)]
    first = await _poll(t, opened)
    await t.ok("reset", subscription_id=opened["subscription_id"], after_sequence=made[0]["ledger_sequence"])
    t.same(await _poll(t, opened), first[1:], "the events after the reset")


@case("P218", "P130")
async def close_stops_delivery(t: Trial) -> None:
    """After unsubscribe no event is delivered, neither a waiting one nor a later one."""
    opened = await t.ok("subscribe", filter={"event_classes": ["object_created"]})
    await t.claim()
    await t.ok("unsubscribe", subscription_id=opened["subscription_id"])
    await t.claim()
    for members in ({}, {"after_sequence": 0}):
        reply = await t.binding.call("poll", {"subscription_id": opened["subscription_id"], **members})
        events = [] if reply.refusal else reply.document["events"]
        after = [event for event in events if event["event_type"] == "object_created"]
        t.check(len(after) <= ("after_sequence" in members), "an event came after the close")
        t.check(reply.refusal is not None or reply.document["closed"], "the answer does not say that it is closed")


@case("P132")
async def opening_and_closing_are_events_without_versions(t: Trial) -> None:
    """A subscription leaves subscription_opened and subscription_closed in the ledger, and no version."""
    opened = await t.ok("subscribe")
    await t.ok("unsubscribe", subscription_id=opened["subscription_id"])
    history = await t.history()
    t.same(
        [event["event_type"] for event in history["events"]], ["subscription_opened", "subscription_closed"], "events"
    )
    t.same(history["versions"], [], "versions")


@case("P134")
async def refuses_what_is_no_subscription(t: Trial) -> None:
    """Unknown scopes are scope_not_found; negative positions, unknown classes and policies are invalid_request."""
    await t.refused("scope_not_found", "subscribe", scope_id=f"{await t.scope()}-missing")
    for members in (
        {"after_sequence": -1},
        {"filter": {"event_classes": ["no_such_class"]}},
        {"filter": {"no_such_member": 1}},
        {"delivery": {"backpressure_policy": "no_such_policy"}},
    ):
        await t.refused("invalid_request", "subscribe", **members)
    reply = await t.binding.call("poll", {"subscription_id": "sub:none"})
    t.refusal(t.offered(reply, "poll"), "object_not_found", "a poll of no subscription")


@case("P127", "P215")
async def a_waiting_poll_is_woken(t: Trial) -> None:
    """A poll that waits is answered by the event that comes meanwhile, and long before its time is over."""
    opened = await t.ok("subscribe")
    waiting = asyncio.create_task(_poll(t, opened, wait_ms=20_000))
    made = await t.claim()
    async with asyncio.timeout(10):
        events = await waiting
    t.same([event.get("version_id") for event in events], [made["version_id"]], "the event")


@case("P215", "P129", "P161", needs=("restart",))
async def subscriptions_survive_a_restart(t: Trial) -> None:
    """After a restart the same subscription goes on after what it delivered."""
    restart = t.facilities.restart
    assert restart is not None
    opened = await t.ok("subscribe")
    await t.claim()
    t.same(len(await _poll(t, opened)), 1, "events before the restart")
    await restart()
    made = await t.claim()
    events = await _poll(t, opened)
    t.same([event.get("version_id") for event in events], [made["version_id"]], "the events after the restart")


@case("P133", "P135", needs=("stranger",))
async def strangers_cannot_take_a_subscription(t: Trial) -> None:
    """A principal without rights can neither open one on the scope nor poll or end somebody else's."""
    opened = await t.ok("subscribe", after_sequence=0)
    await t.claim()
    scope_id, about = await t.scope(), {"subscription_id": opened["subscription_id"]}
    await t.refused("scope_not_found access_denied", "subscribe", by=t.stranger, scope_id=scope_id)
    for operation in ("poll", "unsubscribe"):
        await t.refused("object_not_found scope_not_found access_denied", operation, by=t.stranger, **about)
    t.check(await _poll(t, opened), "the owner's events are gone")
