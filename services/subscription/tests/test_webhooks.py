"""Webhooks: signed, in ledger order, at least once, the cursor moves with 2xx alone; what fails is tried again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from pamspec_common.principal import Principal
from pamspec_common.service import Service
from services.subscription.tests.endpoint import WAIT_S, Answering, Delivery, Endpoint, endpoint, taken
from services.subscription.tests.world import ADMIN, AGENT, GUEST, OTHER, Document, World, ok, refused, until

LOOPBACK: Document = {
    "webhook_networks": ("127.0.0.0/8",),
    "webhook_http": True,
    "webhook_ports": ("1-65535",),
    "webhook_retry_s": 0.05,
    "webhook_retry_limit_s": 0.2,
    "webhook_parked_retry_s": 3600.0,
    "lease_s": 30.0,
}


@pytest_asyncio.fixture(loop_scope="session")
async def hook() -> AsyncIterator[Endpoint]:
    async with endpoint() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def service(world: World) -> Service:
    return await world.service(**LOOPBACK)


async def follow(service: Service, hook: Endpoint, scope: str, by: Principal = AGENT, **more: Any) -> str:
    """A subscription that is posted to the endpoint, which knows its secret."""
    document = {"scope_id": scope, "channel": "webhook", "webhook": {"url": hook.url}, **more}
    answer = await ok(service, "subscribe", document, by)
    hook.secrets.append(answer["webhook"]["secret"])
    name: str = answer["subscription_id"]
    return name


def answering(*statuses: int, **headers: str) -> Answering:
    """These statuses one after another, then 204."""
    left = list(statuses)

    async def answer(_: Delivery) -> web.StreamResponse:
        return web.Response(status=left.pop(0) if left else 204, headers=headers)

    return answer


async def created(world: World, scope: str, count: int = 1, **more: Any) -> list[int]:
    return [one["ledger_sequence"] for one in await world.create(scope, count, **more)]


async def cursor(world: World, name: str) -> int:
    found: int = (await world.row(name))["cursor_sequence"]
    return found


async def log(service: Service, name: str, by: Principal = AGENT) -> list[Document]:
    """The attempts, the oldest first."""
    page = await ok(service, "list_deliveries", {"subscription_id": name, "pagination": {"limit": 1000}}, by)
    return list(reversed(page["deliveries"]))


async def parked(service: Service, name: str) -> list[Document]:
    found: list[Document] = (await ok(service, "list_parked", {"subscription_id": name}))["parked"]
    return found


async def test_events_arrive_signed_in_order_and_move_the_cursor(
    world: World, service: Service, hook: Endpoint
) -> None:
    scope = await world.scope()
    before = await created(world, scope, 3)
    name = await follow(service, hook, scope, after_sequence=0, filter={"event_classes": ["object_created"]})
    await hook.keeps(before)
    later = await created(world, scope, 300)
    await hook.keeps(before + later)
    assert all(one.secrets == hook.secrets for one in hook.seen)
    assert len({one.headers["webhook-id"] for one in hook.seen}) == len(hook.seen) < 100
    assert hook.seen[0].headers["content-type"] == "application/json"
    assert hook.seen[0].body["subscription_id"] == name
    frames = [frame for one in hook.seen for frame in one.body["frames"]]
    assert all(frame["prev_sequence"] < frame["event"]["sequence"] for frame in frames)

    async def noted() -> object:
        return await cursor(world, name) >= later[-1]

    await until(noted, WAIT_S)
    attempts = await log(service, name)
    assert [one["attempt"] for one in attempts] == list(range(1, len(hook.seen) + 1))
    assert {(one["outcome"], one["status"]) for one in attempts} == {("delivered", 204)}
    assert sum(one["events"] for one in attempts) == 303


async def test_a_secret_is_shown_once(world: World, service: Service, hook: Endpoint) -> None:
    scope = await world.scope()
    document = {"scope_id": scope, "channel": "webhook", "webhook": {"url": hook.url}, "idempotency_key": "k"}
    first = await ok(service, "subscribe", document)
    secret = first["webhook"].pop("secret")
    assert await ok(service, "subscribe", document) == first | {"operation_id": first["operation_id"]}
    name = first["subscription_id"]
    listed = await ok(service, "list_subscriptions", {"subscription_id": name})
    assert listed["subscriptions"][0]["webhook"] == {"url": hook.url}
    assert first["channel_ref"] == first["subscription"]["channel_ref"] == hook.url
    assert first["subscription"]["delivery"]["backpressure_policy"] == "block"
    for operation in ("list_parked", "list_deliveries"):
        assert secret not in str(await ok(service, operation, {"subscription_id": name}))


async def test_what_fails_is_tried_again_alone_and_then_in_growing_batches(
    world: World, service: Service, hook: Endpoint
) -> None:
    scope = await world.scope()
    hook.answer = answering(500, 503, 429, 204, **{"Retry-After": "0"})
    made = await created(world, scope, 12)
    name = await follow(service, hook, scope, after_sequence=0, filter={"event_classes": ["object_created"]})
    await hook.keeps(made)
    assert [len(one.sequences) for one in hook.seen] == [12, 1, 1, 1, 2, 4, 5]
    assert hook.kept == made, "nothing came twice that had been taken"
    assert len({one.headers["webhook-id"] for one in hook.seen[1:4]}) == 1

    async def logged() -> object:
        return len(await log(service, name)) == 7

    await until(logged, WAIT_S)
    found = [(one["outcome"], one["status"], one["first_sequence"]) for one in await log(service, name)]
    assert found[:4] == [("failed", status, made[0]) for status in (500, 503, 429)] + [("delivered", 204, made[0])]
    assert await parked(service, name) == []


async def test_the_cursor_stands_while_nothing_is_taken(world: World, hook: Endpoint) -> None:
    service = await world.service(**LOOPBACK)
    scope = await world.scope()
    hook.answer = answering(*[500] * 4)
    made = await created(world, scope, 2)
    name = await follow(service, hook, scope, after_sequence=0)
    await hook.until(lambda: len(hook.seen) >= 4)
    assert await cursor(world, name) < made[0]
    await hook.until(lambda: made[-1] in hook.kept)


async def test_a_poisonous_event_is_parked_and_replayed(world: World, service: Service, hook: Endpoint) -> None:
    """Order is kept and nothing is lost: delivery stands at it, and goes on once it is taken."""
    scope = await world.scope()
    made = await created(world, scope, 6)
    bad = made[3]
    poisonous = True

    async def answer(delivery: Delivery) -> web.StreamResponse:
        return web.Response(status=422 if poisonous and bad in delivery.sequences else 200)

    hook.answer = answer
    only = {"event_classes": ["object_created"]}
    name = await follow(service, hook, scope, after_sequence=0, filter=only)

    async def stands() -> object:
        return await parked(service, name)

    await until(stands, WAIT_S)
    (found,) = await parked(service, name)
    event = next(one for one in await world.events(scope) if one["sequence"] == bad)
    assert (found["sequence"], found["event_id"]) == (bad, event["event_id"])
    assert (found["outcome"], found["status"], found["attempts"]) == ("refused", 422, 3)
    assert hook.kept == made[:3]
    assert await cursor(world, name) < bad
    error = await refused(service, "replay", {"subscription_id": name, "skip": True, "sequence": made[4]})
    assert error["details"] == {"reason": "not_parked", "parked": bad}
    for stranger in (OTHER, ADMIN):
        assert (await refused(service, "replay", {"subscription_id": name}, stranger))["code"] == "object_not_found"
    assert await ok(service, "list_parked", {"subscription_id": name}, ADMIN)
    poisonous = False
    await ok(service, "replay", {"subscription_id": name, "sequence": bad})
    await hook.keeps(made)
    assert await parked(service, name) == []


async def test_only_its_owner_passes_over_a_parked_event(world: World, service: Service, hook: Endpoint) -> None:
    scope = await world.scope()
    made = await created(world, scope, 3)

    async def answer(delivery: Delivery) -> web.StreamResponse:
        return web.Response(status=400 if made[1] in delivery.sequences else 200)

    hook.answer = answer
    name = await follow(service, hook, scope, after_sequence=0, filter={"event_classes": ["object_created"]})

    async def stands() -> object:
        return await parked(service, name)

    await until(stands, WAIT_S)
    moved = await ok(service, "replay", {"subscription_id": name, "skip": True, "sequence": made[1]})
    assert moved["next_after_sequence"] == made[1]
    await hook.until(lambda: made[2] in hook.kept)
    assert hook.kept == [made[0], made[2]]
    assert [one["first_sequence"] for one in await log(service, name) if one["outcome"] == "skipped"] == [made[1]]
    page = await ok(service, "poll", {"subscription_id": name, "after_sequence": made[0], "max": 1})
    assert [event["sequence"] for event in page["events"]] == [made[1]], "it stays in the ledger"


async def test_an_endpoint_that_is_down_parks_and_heals_by_itself(world: World, hook: Endpoint) -> None:
    service = await world.service(**LOOPBACK | {"webhook_attempts": 2, "webhook_parked_retry_s": 0.3})
    scope = await world.scope()
    made = await created(world, scope, 2)
    hook.answer = answering(502, 502, 502, 502)
    name = await follow(service, hook, scope, after_sequence=0, filter={"event_classes": ["object_created"]})
    await hook.keeps(made)
    assert len([one for one in await log(service, name) if one["outcome"] == "failed"]) == 4


async def test_gone_closes_the_subscription(world: World, service: Service, hook: Endpoint) -> None:
    scope = await world.scope()
    made = await created(world, scope, 1)
    hook.answer = answering(410, 410, 410)
    name = await follow(service, hook, scope, after_sequence=0)

    async def erased() -> object:
        row = await world.admin.fetchrow("SELECT secrets FROM subscription.webhook WHERE subscription_id = $1", name)
        return row is not None and row["secrets"] is None

    await until(erased, WAIT_S)
    entry = (await ok(service, "list_subscriptions", {"subscription_id": name}))["subscriptions"][0]
    assert entry["closed"] == {"reason": "endpoint_gone", "last_delivered_sequence": made[0] - 1}
    closed = (await world.events(scope))[-1]
    assert (closed["event_type"], closed["payload"]["reason"]) == ("subscription_closed", "endpoint_gone")
    assert len(hook.seen) == 1
    assert await log(service, name) == []


async def test_unsubscribe_delivers_the_terminal_record_and_erases_the_log(
    world: World, service: Service, hook: Endpoint
) -> None:
    scope = await world.scope()
    name = await follow(service, hook, scope, after_sequence=0, filter={"event_classes": ["object_created"]})
    made = await created(world, scope, 2)
    await hook.keeps(made)
    answer = await ok(service, "unsubscribe", {"subscription_id": name})
    await hook.until(lambda: hook.closed)
    assert hook.closed is not None
    assert hook.closed["reason"] == answer["closed"]["reason"] == "unsubscribed"

    async def erased() -> object:
        return await world.admin.fetchval(
            "SELECT w.secrets IS NULL AND s.lease_owner IS NULL FROM subscription.webhook w"
            " JOIN subscription.subscription s USING (tenant_id, subscription_id) WHERE subscription_id = $1",
            name,
        )

    await until(erased, WAIT_S)
    assert await log(service, name) == []
    await created(world, scope, 1)
    error = await refused(service, "replay", {"subscription_id": name})
    assert error["code"] == "invalid_request"
    assert hook.kept == made
    assert len([one for one in hook.seen if one.closed]) == 1


async def test_a_terminal_record_for_a_dead_endpoint_is_given_up(world: World, hook: Endpoint) -> None:
    service = await world.service(**LOOPBACK | {"webhook_attempts": 3})
    scope = await world.scope()
    await created(world, scope, 1)
    hook.answer = answering(*[500] * 100)
    name = await follow(service, hook, scope, after_sequence=0)
    await hook.until(lambda: len(hook.seen) >= 2)
    await ok(service, "unsubscribe", {"subscription_id": name})

    async def erased() -> object:
        row = await world.admin.fetchrow("SELECT secrets FROM subscription.webhook WHERE subscription_id = $1", name)
        return row is not None and row["secrets"] is None

    await until(erased, WAIT_S)
    assert 1 <= len([one for one in hook.seen if one.closed]) <= 3


async def test_a_lost_right_ends_it_with_the_terminal_record_alone(
    world: World, service: Service, hook: Endpoint
) -> None:
    scope = await world.scope()
    await world.bind("reader", scope)
    made = await created(world, scope, 2)
    hook.answer = answering(*[500] * 3)
    name = await follow(service, hook, scope, GUEST, after_sequence=0, filter={"event_classes": ["object_created"]})
    await hook.until(lambda: len(hook.seen) >= 2)
    await world.unbind(scope)
    await hook.until(lambda: hook.closed)
    assert hook.closed == {"reason": "authorization_revoked", "last_delivered_sequence": made[0] - 1}
    assert hook.kept == []
    assert (await world.row(name))["closed_reason"] == "authorization_revoked"


async def test_a_lost_right_ends_a_quiet_one(world: World, service: Service, hook: Endpoint) -> None:
    scope = await world.scope()
    await world.bind("reader", scope)
    await follow(service, hook, scope, GUEST, after_sequence=0, filter={"event_classes": ["object_created"]})
    made = await created(world, scope, 1)
    await hook.keeps(made)
    await world.unbind(scope)
    await created(world, scope, 1)
    await hook.until(lambda: hook.closed)
    assert hook.kept == made


@pytest.mark.parametrize("failing", [False, True])
async def test_a_deleted_scope_ends_it(world: World, hook: Endpoint, failing: bool) -> None:
    service = await world.service(**LOOPBACK | {"upkeep_interval_s": 0.2})
    scope = await world.scope()
    made = await created(world, scope, 1)
    if failing:
        hook.answer = answering(*[500] * 10_000)
    name = await follow(service, hook, scope, after_sequence=0, filter={"event_classes": ["object_created"]})
    await hook.until(lambda: hook.seen)
    await world.written("delete_scope", {"scope_id": scope, "policy_basis": "test"}, ADMIN)
    hook.answer = taken
    await hook.until(lambda: hook.closed)
    assert hook.closed is not None
    assert (hook.closed["reason"], (await world.row(name))["closed_reason"]) == ("scope_deleted", "scope_deleted")
    assert set(hook.kept) <= set(made)


async def test_content_is_that_of_the_time_of_delivery(world: World, service: Service, hook: Endpoint) -> None:
    """An event that waits for its endpoint does not bring what was erased meanwhile; the log never held it."""
    scope = await world.scope()
    hook.answer = answering(500, 500)
    (made,) = await world.create(scope, 1, canonical_content="a phrase to be erased")
    hold = {"event_classes": ["object_created"]}
    name = await follow(service, hook, scope, after_sequence=0, filter=hold, include_content=True)
    await hook.until(lambda: hook.kept)
    assert hook.seen[-1].body["frames"][0]["envelope"]["canonical_content"] == "a phrase to be erased"
    hook.answer = answering(*[500] * 1000)
    (again,) = await world.create(scope, 1, canonical_content="another phrase to be erased")
    await hook.until(lambda: hook.seen[-1].sequences == [again["ledger_sequence"]])
    gone = {"scope_id": scope, "policy_basis": "test", "expected_version_id": again["version_id"]}
    await world.written("delete", {"object_id": again["object_id"], **gone})
    await hook.until(lambda: "another phrase" not in str(hook.seen[-1].body))
    hook.answer = taken
    await hook.until(lambda: again["ledger_sequence"] in hook.kept)
    assert "another phrase" not in str(hook.seen[-1].body)
    rows = await world.admin.fetch("SELECT * FROM subscription.webhook_delivery WHERE subscription_id = $1", name)
    assert rows
    assert "phrase" not in str([dict(row) for row in rows])
    assert made["ledger_sequence"] in hook.kept


async def test_a_reset_sends_again_under_new_ids(world: World, service: Service, hook: Endpoint) -> None:
    scope = await world.scope()
    made = await created(world, scope, 2)
    name = await follow(service, hook, scope, after_sequence=0, filter={"event_classes": ["object_created"]})
    await hook.keeps(made)
    await ok(service, "reset", {"subscription_id": name, "after_sequence": 0})
    await hook.until(lambda: hook.kept == made + made)
    assert len({one.headers["webhook-id"] for one in hook.seen}) == len(hook.seen)


async def test_secrets_rotate_with_an_overlap(world: World, service: Service, hook: Endpoint) -> None:
    scope = await world.scope()
    name = await follow(service, hook, scope, filter={"event_classes": ["object_created"]})
    old = hook.secrets[0]
    first = await ok(service, "rotate_webhook_secret", {"subscription_id": name})
    hook.secrets.append(first["secret"])
    await created(world, scope, 1)
    await hook.until(lambda: hook.seen and len(hook.seen[-1].secrets) == 2)
    assert hook.seen[-1].secrets == [old, first["secret"]]
    last = await ok(service, "rotate_webhook_secret", {"subscription_id": name, "overlap_s": 0})
    hook.secrets.append(last["secret"])
    await created(world, scope, 1)
    await hook.until(lambda: hook.seen[-1].secrets == [last["secret"]])
    for stranger in (OTHER, ADMIN):
        error = await refused(service, "rotate_webhook_secret", {"subscription_id": name}, stranger)
        assert error["code"] == "object_not_found"
    for _ in range(4):
        await ok(service, "rotate_webhook_secret", {"subscription_id": name})
    error = await refused(service, "rotate_webhook_secret", {"subscription_id": name})
    assert error["code"] == "invalid_request"


async def test_the_log_keeps_so_many_attempts(world: World, hook: Endpoint) -> None:
    service = await world.service(**LOOPBACK | {"webhook_log_rows": 3, "webhook_body_bytes": 1024})
    scope = await world.scope()
    made = await created(world, scope, 8)
    name = await follow(service, hook, scope, after_sequence=0, filter={"event_classes": ["object_created"]})
    await hook.keeps(made)
    assert len(hook.seen) > 4, "bodies end at their size"

    async def trimmed() -> object:
        return [one["last_sequence"] for one in await log(service, name)][-1:] == made[-1:]

    await until(trimmed, WAIT_S)
    assert len(await log(service, name)) == 3
    page = await ok(service, "list_deliveries", {"subscription_id": name, "pagination": {"limit": 2}})
    more = {"limit": 2, "cursor": page["next_cursor"]}
    rest = await ok(service, "list_deliveries", {"subscription_id": name, "pagination": more})
    assert (len(page["deliveries"]), len(rest["deliveries"]), rest["next_cursor"]) == (2, 1, None)


@pytest.mark.parametrize("operation", ["list_parked", "list_deliveries", "replay", "rotate_webhook_secret"])
async def test_operations_of_webhooks_are_for_webhooks(world: World, service: Service, operation: str) -> None:
    scope = await world.scope()
    answer = await ok(service, "subscribe", {"scope_id": scope})
    error = await refused(service, operation, {"subscription_id": answer["subscription_id"]})
    assert (error["code"], "webhook" in error["message"]) == ("invalid_request", True)
    unknown = await refused(service, operation, {"subscription_id": "sub:unknown"})
    assert unknown["code"] == "object_not_found"
