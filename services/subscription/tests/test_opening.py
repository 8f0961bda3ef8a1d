"""subscribe and list: what is resolved, refused, repeated, and finished after an interruption."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import orjson

from pamspec_common import contracts
from pamspec_common.calls import HEADER_REPLAYED, Answer, Call, refusal
from pamspec_common.errors import AccessDenied, ServiceUnavailable
from pamspec_common.peers import LocalPeer, Peer
from pamspec_common.service import Part, Service
from services.subscription.tests.world import (
    ADMIN,
    BACKEND,
    OTHER,
    STRANGER,
    Document,
    World,
    call,
    ok,
    refused,
    sequences,
    subscribed,
    until,
)


class FailingPeer:
    """A write service that fails or loses answers when the test says so."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.fail_before: Answer | None = None
        self.lose_after = False

    @property
    def app(self) -> None:
        return None

    async def call(self, call: Call) -> Answer:
        if self.fail_before is not None:
            return self.fail_before
        answer = await self._peer.call(call)
        return refusal(ServiceUnavailable(), "op:lost") if self.lose_after else answer

    async def ready(self) -> tuple[bool, list[Part]]:
        return await self._peer.ready()


async def test_the_answer_is_the_resolved_subscription(world: World, service: Service) -> None:
    scope = await world.scope()
    wanted = {"event_classes": ["object_created"], "object_type": "claim", "predicate": {"and": [
        {"field": "payload:/lifecycle_state", "op": "eq", "value": "active"},
        {"field": "sequence", "op": "gt", "value": 1.5},
    ]}}  # fmt: skip
    answer = await ok(service, "subscribe", {"scope_id": scope, "filter": wanted, "operation_id": "op:mine"})
    assert answer["subscription"]["filter"] == wanted
    assert answer["subscription"]["delivery"] == {
        "batching_max_events": 1000,
        "batching_max_wait_ms": 0,
        "keepalive_interval_ms": 5000,
        "backpressure_policy": "close_on_lag",
    }
    assert answer["operation_id"] == "op:mine"
    name = answer["subscription_id"]
    assert answer["channel_ref"] == answer["subscription"]["channel_ref"] == f"/v1/subscriptions/{name}/events"
    contracts.check("subscription", answer["subscription"])
    event = (await world.events(scope))[-1]
    assert event["payload"].items() >= {"subscription_id": name, "channel": "poll"}.items()
    assert event["actor"] == answer["subscription"]["actor"] == {"actor_id": "agent:follower", "actor_kind": "agent"}
    assert "version_id" not in event
    assert await world.admin.fetchval("SELECT count(*) FROM core.version") == 0


async def test_channels_have_their_places_and_policies(world: World, service: Service) -> None:
    scope = await world.scope()
    for channel, ending in [("sse", "/stream"), ("websocket", "/ws")]:
        answer = await ok(service, "subscribe", {"scope_id": scope, "channel": channel, "include_content": True})
        assert answer["channel_ref"] == f"/v1/subscriptions/{answer['subscription_id']}{ending}"
        assert answer["include_content"] is True
    nats = await ok(service, "subscribe", {"scope_id": scope, "channel": "nats"})
    prefix, _, tokens = nats["channel_ref"].partition("deliver.")
    assert (prefix, [len(token) for token in tokens.split(".")]) == ("pamspec.", [26, 26])
    assert nats["subscription"]["delivery"]["backpressure_policy"] == "block"
    await ok(service, "subscribe", {"scope_id": scope, "delivery": {"backpressure_policy": "block"}})


WRONG: list[dict[str, Any]] = [
    {"delivery": {"backpressure_policy": "drop_oldest"}},
    {"delivery": {"backpressure_policy": "anything"}},
    {"delivery": {"backpressure_policy": "block"}, "channel": "sse"},
    {"delivery": {"batching_max_events": 0}},
    {"delivery": {"batching_max_wait_ms": 30_001}},
    {"delivery": {"unknown": 1}},
    {"channel": "webhook"},
    {"webhook": {"url": "https://example.org/"}},
    {"channel": "webhook", "webhook": {}},
    {"channel": "webhook", "webhook": {"url": "https://example.org/", "secret": "mine"}},
    {"channel": "carrier_pigeon"},
    {"after_sequence": -1},
    {"start_sequence": -1},
    {"after_sequence": 1.5},
    {"after_sequence": "1"},
    {"after_sequence": 2**70},
    {"after_sequence": 0, "start_sequence": 0},
    {"filter": {"event_classes": []}},
    {"filter": {"event_classes": ["object_created", "no_such_event"]}},
    {"filter": {"object_type": "unheard_of"}},
    {"filter": {"object_id": "no scheme"}},
    {"filter": {"object_id": "obj:1\n"}},
    {"filter": {"predicate": {"field": "nope", "op": "eq", "value": 1}}},
    {"filter": {"unknown": 1}},
    {"filter": []},
    {"include_content": "yes"},
    {"unknown_field": 1},
    {"scope_id": ""},
    {"scope_id": "*"},
    {"wait_ms": 30_001},
]


async def test_what_no_subscription_can_be_is_invalid_request(world: World, service: Service) -> None:
    scope = await world.scope()
    for wrong in WRONG:
        document = {"scope_id": scope, "operation_id": "op:x", **wrong}
        error = await refused(service, "subscribe", json.dumps(document).encode())
        assert (error["code"], error["operation_id"]) == ("invalid_request", "op:x"), wrong
    assert await world.admin.fetchval("SELECT count(*) FROM subscription.subscription") == 0
    assert await world.head(scope) == 0


async def test_other_refusals(world: World, service: Service) -> None:
    scope = await world.scope()
    await world.create(scope, 3)
    cases: list[tuple[Document, str, str | None]] = [
        ({"scope_id": "workspace:nowhere"}, "scope_not_found", None),
        ({"scope_id": scope, "after_sequence": 4}, "invalid_request", "position_future"),
        ({"scope_id": scope, "after_sequence": 1, "ledger_epoch": 2}, "invalid_request", "position_future"),
        ({"scope_id": scope, "delegation_id": "dlg:none"}, "object_not_found", None),
        ({"scope_id": scope, "actor": {"actor_id": "agent:other", "actor_kind": "agent"}}, "access_denied", None),
        ({}, "invalid_request", None),
    ]
    for document, code, reason in cases:
        error = await refused(service, "subscribe", document)
        assert (error["code"], error["details"].get("reason")) == (code, reason)
    assert (await refused(service, "subscribe", b'{"scope_id": "a:b", "scope_id": "a:b"}'))["code"] == "invalid_request"
    assert (await refused(service, "subscribe", b"[]"))["code"] == "invalid_request"
    assert (await refused(service, "subscribe", {"scope_id": scope}, STRANGER))["code"] == "scope_not_found"


async def test_the_same_key_answers_the_same_subscription(world: World, service: Service) -> None:
    """S16: byte for byte, also after it was closed, and at once from two replicas."""
    scope = await world.scope()
    second = await world.service()
    for key in ({"idempotency_key": "k"}, {"operation_id": "op:same"}):
        document = {"scope_id": scope, "after_sequence": 0, **key}
        answers = await asyncio.gather(*(call(one, "subscribe", document) for one in (service, second) * 5))
        assert {answer.status for answer in answers} == {201}
        assert len({answer.body for answer in answers}) == 1
        assert sum(HEADER_REPLAYED not in answer.headers for answer in answers) == 1
        error = await refused(service, "subscribe", {**document, "after_sequence": 1})
        assert error["code"] == "duplicate_operation"
        await ok(service, "unsubscribe", {"subscription_id": orjson.loads(answers[0].body)["subscription_id"]})
        again = await call(second, "subscribe", document)
        assert (again.body, again.headers[HEADER_REPLAYED]) == (answers[0].body, "true")
        assert (await ok(service, "subscribe", document, OTHER))["subscription_id"] not in again.body.decode()
    opened = [event for event in await world.events(scope) if event["event_type"] == "subscription_opened"]
    assert len(opened) == 4


async def test_an_opening_that_was_cut_is_finished_by_a_retry_or_by_the_upkeep(world: World) -> None:
    scope = await world.scope()
    for lost in (False, True):
        peer = FailingPeer(LocalPeer(world.write))
        service = await world.service(write=peer, upkeep_interval_s=0.2)
        peer.fail_before = None if lost else refusal(ServiceUnavailable(), "op:x")
        peer.lose_after = lost
        for finish in ("retry", "upkeep"):
            document = {"scope_id": scope, "operation_id": f"op:{lost}.{finish}"}
            error = await refused(service, "subscribe", document)
            assert (error["code"], error["operation_id"]) == ("service_unavailable", document["operation_id"])
            assert (await ok(service, "list_subscriptions", {"scope_id": scope}, OTHER))["subscriptions"] == []
        peer.fail_before, peer.lose_after = None, False
        retried = await ok(service, "subscribe", {"scope_id": scope, "operation_id": f"op:{lost}.retry"})

        async def all_open() -> object:
            query = "SELECT count(*) FROM subscription.subscription WHERE state <> 'open'"
            return await world.admin.fetchval(query) == 0

        await until(all_open)
        waited = await ok(service, "subscribe", {"scope_id": scope, "operation_id": f"op:{lost}.upkeep"})
        events = {event["sequence"]: event for event in await world.events(scope)}
        for answer in (retried, waited):
            event = events[answer["start_sequence"]]
            assert event["payload"]["subscription_id"] == answer["subscription_id"]
        await service.stop()
    opened = [event["payload"]["subscription_id"] for event in events.values()]
    assert len(opened) == len(set(opened)) == 4


async def test_an_opening_that_the_ledger_refuses_leaves_nothing(world: World) -> None:
    scope = await world.scope()
    peer = FailingPeer(LocalPeer(world.write))
    service = await world.service(write=peer)
    peer.fail_before = refusal(AccessDenied("No."), "op:x")
    error = await refused(service, "subscribe", {"scope_id": scope, "operation_id": "op:mine"})
    assert (error["code"], error["message"], error["operation_id"]) == ("access_denied", "No.", "op:mine")
    assert await world.admin.fetchval("SELECT count(*) FROM subscription.subscription") == 0


async def test_lists_show_own_ones_page_by_page_and_all_to_administrators(world: World, service: Service) -> None:
    scope, elsewhere = await world.scope(), await world.scope()
    own = [await subscribed(service, scope, after_sequence=0) for _ in range(5)]
    theirs = await subscribed(service, scope, OTHER)
    third = await subscribed(service, elsewhere)
    found: list[str] = []
    cursor = None
    while True:
        pagination = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = await ok(service, "list_subscriptions", {"scope_id": scope, "pagination": pagination})
        found += [one["subscription"]["subscription_id"] for one in page["subscriptions"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert found == sorted(own)
    everything = await ok(service, "list_subscriptions", {}, ADMIN)
    listed = {one["subscription"]["subscription_id"] for one in everything["subscriptions"]}
    assert listed == {*own, theirs, third}
    one = (await ok(service, "list_subscriptions", {"subscription_id": own[0]}))["subscriptions"][0]
    assert (one["next_after_sequence"], one["closed"], one["channel"]) == (0, None, "poll")
    for principal in (OTHER, STRANGER):
        error = await refused(service, "list_subscriptions", {"subscription_id": own[0]}, principal)
        assert error["code"] == "object_not_found"
    error = await refused(service, "list_subscriptions", {"subscription_id": own[0], "scope_id": elsewhere})
    assert error["code"] == "invalid_request"
    assert (await refused(service, "list_subscriptions", {"scope_id": "a:b"}))["code"] == "scope_not_found"
    wrong = {"pagination": {"limit": 1, "cursor": "???"}}
    assert (await refused(service, "list_subscriptions", wrong))["code"] == "invalid_request"


async def test_a_platform_subscribes_for_its_agents(world: World, service: Service) -> None:
    """S9: the event names the agent, the platform's principal owns the subscription; names of people are not kept."""
    scope = await world.scope()
    actor = {"actor_id": "agent:follower", "actor_kind": "agent", "display_name": "Ada"}
    answer = await ok(service, "subscribe", {"scope_id": scope, "actor": actor, "after_sequence": 0}, BACKEND)
    assert answer["subscription"]["actor"] == {"actor_id": "agent:follower", "actor_kind": "agent"}
    page = await ok(service, "poll", {"subscription_id": answer["subscription_id"]}, BACKEND)
    assert [event["event_type"] for event in page["events"]] == ["subscription_opened"]
    assert (await refused(service, "poll", {"subscription_id": answer["subscription_id"]}))[
        "code"
    ] == "object_not_found"


async def test_a_platform_by_role_subscribes_until_the_role_is_taken(world: World, service: Service) -> None:
    """S9: the role counts as the right does, and its end ends what was opened by it."""
    scope = await world.scope()
    key = await world.scope_key(scope)
    sent = {"scope_id": scope, "actor": {"actor_id": "agent:small", "actor_kind": "agent"}, "after_sequence": 0}
    assert (await refused(service, "subscribe", sent, OTHER))["details"] == {"action": "assert_actor"}
    await world.admin.execute(
        "INSERT INTO core.role_binding (tenant_id, scope_key, actor_id, role, bound_by) "
        "VALUES ($1, $2, $3, 'platform', 'a:b')",
        OTHER.tenant_id, key, OTHER.actor_id,
    )  # fmt: skip
    raise_epoch = "UPDATE core.scope_head SET epoch_authz = epoch_authz + 1 WHERE scope_key = $1"
    await world.admin.execute(raise_epoch, key)
    answer = await ok(service, "subscribe", sent, OTHER)
    name = {"subscription_id": answer["subscription_id"]}
    assert (await ok(service, "poll", name, OTHER))["closed"] is None
    await world.admin.execute("DELETE FROM core.role_binding WHERE scope_key = $1", key)
    await world.admin.execute(raise_epoch, key)
    assert (await ok(service, "poll", name, OTHER))["closed"]["reason"] == "authorization_revoked"


async def test_bookkeeping_of_others_is_not_delivered(world: World, service: Service) -> None:
    scope = await world.scope()
    mine = await subscribed(service, scope, after_sequence=0)
    theirs = await subscribed(service, scope, OTHER, after_sequence=0)
    all_of_it = await subscribed(service, scope, ADMIN, after_sequence=0)
    for name, who, seen in [(theirs, OTHER, [theirs]), (all_of_it, ADMIN, [mine, theirs, all_of_it])]:
        page = await ok(service, "poll", {"subscription_id": name}, who)
        assert [event["payload"]["subscription_id"] for event in page["events"]] == seen
    page = await ok(service, "poll", {"subscription_id": mine})
    assert (sequences(page), page["next_after_sequence"]) == ([1], 3)


async def test_an_evaluation_run_is_named_by_the_event(world: World, service: Service) -> None:
    """P230, S4."""
    scope = await world.scope()
    name = await subscribed(service, scope, evaluation_run_id="run:7")
    await ok(service, "unsubscribe", {"subscription_id": name})
    events = await world.events(scope)
    assert [event["payload"]["evaluation_run_id"] for event in events] == ["run:7", "run:7"]
