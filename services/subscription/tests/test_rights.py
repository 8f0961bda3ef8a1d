"""Who receives what: opening, each event by the rights that hold when it goes out, and the end of a right."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from pamspec_common.principal import Principal
from pamspec_common.service import Service
from pamspec_subscription.store import Store
from services.subscription.tests.world import (
    AGENT,
    GUEST,
    OTHER,
    TENANT,
    Document,
    World,
    call,
    ok,
    refused,
    sequences,
    sse,
    subscribed,
)

NO_DECISIONS = (
    '@id("secret") forbid(principal, action == Action::"read", resource) when { resource.object_type == "decision" };'
)
NO_REJECTED = (
    '@id("rejected") forbid(principal, action == Action::"subscribe", resource) '
    'when { resource.validation_state == "rejected" };'
)
OWN_ONLY = (
    '@id("own") forbid(principal, action == Action::"subscribe", resource) '
    "unless { resource.creator == principal.actor_id };"
)


def reader(role: str) -> Principal:
    """A principal with one role in the whole tenant."""
    return Principal(TENANT, f"agent:{role}", "agent", roles=frozenset({role}))


async def polled(service: Service, name: str, by: Principal = GUEST, **more: Any) -> list[int]:
    """What a poll answers."""
    return sequences(await ok(service, "poll", {"subscription_id": name, **more}, by))


@pytest.mark.parametrize(
    "role", ["reader", "contributor", "editor", "reviewer", "curator", "auditor", "admin", "platform"]
)
async def test_who_may_subscribe(world: World, service: Service, role: str) -> None:
    scope = await world.scope()
    answer = await call(service, "subscribe", {"scope_id": scope}, reader(role))
    assert answer.status == (404 if role == "platform" else 201), answer.body


async def test_without_a_role_there_is_no_scope(world: World, service: Service) -> None:
    scope = await world.scope()
    name = await subscribed(service, scope)
    bodies = [
        (await call(service, "subscribe", {"scope_id": one, "operation_id": "op:1"}, GUEST)).body
        for one in (scope, "workspace:none")
    ]
    assert bodies[0] == bodies[1]
    assert orjson.loads(bodies[0])["error"]["code"] == "scope_not_found"
    listed = [
        (await call(service, "list_subscriptions", {"scope_id": one, "operation_id": "op:1"}, GUEST)).body
        for one in (scope, "workspace:none")
    ]
    assert listed[0] == listed[1]
    assert orjson.loads(listed[0])["error"]["code"] == "scope_not_found"
    await world.bind("reader", scope)
    for operation, more in (("poll", {}), ("ack", {"sequence": 1}), ("reset", {"after_sequence": 0})):
        answers = [
            (await call(service, operation, {"subscription_id": one, "operation_id": "op:1", **more}, GUEST)).body
            for one in (name, "sub:none")
        ]
        assert answers[0] == answers[1]


async def test_a_subscriber_without_the_right_to_subscribe_may_still_read(world: World, service: Service) -> None:
    scope = await world.scope()
    await world.rules('@id("quiet") forbid(principal, action == Action::"subscribe", resource);', scope)
    assert (await refused(service, "subscribe", {"scope_id": scope}))["code"] == "access_denied"
    await world.rules("", scope)
    await subscribed(service, scope)


async def test_pages_leave_out_what_may_not_be_read(world: World, service: Service) -> None:
    scope = await world.scope()
    first, secret, last = [(await world.create(scope, object_type=kind))[0] for kind in ("claim", "decision", "claim")]
    edge = {
        "scope_id": scope, "relationship_type": "supports", "source_object_id": first["object_id"],
        "directionality": "directed", "provenance": {"activity": "test"},
    }  # fmt: skip
    for target in (secret, last):
        await world.written("relate", {**edge, "target_object_id": target["object_id"]})
    await world.bind("reader", scope)
    name = await subscribed(service, scope, GUEST, channel="poll", include_content=True)
    after: Document = {"after_sequence": 0}
    assert await polled(service, name, **after) == [1, 2, 3, 4, 5, 6]
    await world.rules(NO_DECISIONS, scope)
    page = await ok(service, "poll", {"subscription_id": name, **after}, GUEST)
    assert sequences(page) == [1, 3, 5, 6]
    assert secret["object_id"].encode() not in orjson.dumps(page)
    await world.rules("", scope)
    assert await polled(service, name, **after) == [1, 2, 3, 4, 5, 6]


async def test_states_and_creators_decide_event_by_event(world: World, service: Service) -> None:
    scope = await world.scope()
    mine, theirs = [
        await world.written(
            "create",
            {"scope_id": scope, "object_type": "claim", "canonical_content": "x", "provenance": {"activity": "test"}},
            by,
        )
        for by in (AGENT, OTHER)
    ]
    name = await subscribed(service, scope, AGENT, channel="poll")
    await world.rules(OWN_ONLY, scope)
    change: Document = {
        "scope_id": scope, "object_id": theirs["object_id"], "expected_version_id": theirs["version_id"],
        "dimension": "validation", "target_state": "rejected", "policy_basis": "x",
    }  # fmt: skip
    moved = await world.written("transition", change, AGENT)
    own = {**change, "object_id": mine["object_id"], "expected_version_id": mine["version_id"]}
    last = await world.written("transition", {**own, "target_state": "corroborated"}, OTHER)
    expected = [mine["ledger_sequence"], last["ledger_sequence"]]
    shown = await polled(service, name, AGENT, after_sequence=0)
    assert [one for one in shown if one <= 2 or one > 3] == expected
    assert moved["ledger_sequence"] not in shown
    await world.rules(NO_REJECTED, scope)
    shown = await polled(service, name, AGENT, after_sequence=0)
    assert not {theirs["ledger_sequence"], moved["ledger_sequence"]} & set(shown)
    assert set(expected) <= set(shown)


async def test_a_live_channel_narrows_before_the_next_event(world: World) -> None:
    """The comparison of heads is a minute away: the event itself makes the channel look."""
    service = await world.service(heads_interval_s=60.0)
    scope = await world.scope()
    await world.bind("reader", scope)
    name = await subscribed(service, scope, GUEST, channel="sse")

    async def event(kind: str) -> int:
        made = (await world.create(scope, object_type=kind))[0]["ledger_sequence"]
        await world.hint(scope, [made])
        return int(made)

    async with world.served(service) as url, sse(url, name, by=GUEST) as stream:
        await stream.frame()
        seen = await event("decision")
        while (await stream.event())["event"]["sequence"] < seen:
            continue
        await world.rules(NO_DECISIONS, scope)
        hidden = await event("decision")
        shown = await event("claim")
        frame = await stream.event()
        assert frame["event"]["sequence"] == shown == hidden + 1
        await world.unbind(scope)
        await event("claim")
        while "closed" not in (last := await stream.frame()):
            assert "event" not in last
        assert last["closed"]["reason"] == "authorization_revoked"


async def test_many_events_take_few_looks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the epochs is shared by all subscribers of a scope, and by the events that came together."""
    looks: list[int] = []
    whole = Store.heads

    async def counted(store: Store, scopes: Any) -> Any:
        looks.append(len(scopes))
        return await whole(store, scopes)

    service = await world.service(heads_interval_s=60.0)
    scope = await world.scope()
    await world.bind("reader", scope)
    await world.rules(NO_DECISIONS, scope)
    names = [await subscribed(service, scope, GUEST, channel="sse") for _ in range(3)]
    async with (
        world.served(service) as url,
        sse(url, names[0], by=GUEST) as one,
        sse(url, names[1], by=GUEST) as two,
        sse(url, names[2], by=GUEST) as three,
    ):
        for stream in (one, two, three):
            await stream.frame()
        made = await world.create(scope, 300)
        monkeypatch.setattr(Store, "heads", counted)
        await world.hint(scope, [each["ledger_sequence"] for each in made])
        for stream in (one, two, three):
            while (await stream.event())["event"]["sequence"] < made[-1]["ledger_sequence"]:
                continue
    assert len(looks) < len(made)


async def test_a_restricted_subscriber_is_not_behind(world: World) -> None:
    """What it never gets it need not acknowledge."""
    service = await world.service(upkeep_interval_s=0.1, unacknowledged_limit_s=0.3)
    scope = await world.scope()
    await world.bind("reader", scope)
    await world.rules(NO_DECISIONS, scope)
    only: Document = {"event_classes": ["object_created"]}
    hidden = await subscribed(service, scope, GUEST, filter=only)
    made = await world.create(scope, 3, object_type="decision")
    async with asyncio.timeout(60):
        while (await world.row(hidden))["cursor_sequence"] < made[-1]["ledger_sequence"]:
            await asyncio.sleep(0.05)
    assert (await world.row(hidden))["state"] == "open"


async def test_single_acknowledgements_pass_over_what_is_hidden(world: World, service: Service) -> None:
    scope = await world.scope()
    await world.bind("reader", scope)
    name = await subscribed(service, scope, GUEST, channel="poll")
    start = await world.head(scope)
    for kind in ("claim", "decision", "claim"):
        await world.create(scope, object_type=kind)
    await world.rules(NO_DECISIONS, scope)
    singles = [start + 1, start + 3]
    answer = await ok(service, "ack", {"subscription_id": name, "sequences": singles}, GUEST)
    assert answer["next_after_sequence"] == start + 3


async def test_party_events_are_for_auditors_as_long_as_they_are(world: World, service: Service) -> None:
    scope = await world.scope()
    await subscribed(service, scope)
    await world.bind("auditor", scope)
    name = await subscribed(service, scope, GUEST, channel="poll")
    assert await polled(service, name, after_sequence=0) == [1, 2]
    await world.unbind(scope)
    await world.bind("reader", scope)
    assert await polled(service, name, after_sequence=0) == [2]


async def test_a_role_in_the_tenant_ends_everywhere(world: World, service: Service) -> None:
    scopes = [await world.scope(), await world.scope()]
    await world.bind("reader")
    names = [await subscribed(service, scope, GUEST, channel="poll") for scope in scopes]
    for scope in scopes:
        await world.create(scope, 2)
    await world.unbind()
    for name in names:
        page = await ok(service, "poll", {"subscription_id": name}, GUEST)
        assert (page["events"], page["closed"]["reason"]) == ([], "authorization_revoked")
