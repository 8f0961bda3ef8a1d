"""Webhooks when things break: processes that are killed, endpoints that hang, keys that are lost."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from pydantic import SecretBytes, SecretStr

from pamspec_common import server
from pamspec_common.peers import LocalPeer
from pamspec_common.principal import RIGHT_ADMIN, Principal
from pamspec_subscription.app import build
from pamspec_write.app import build as build_write
from pamspec_write.settings import Settings as WriteSettings
from services.subscription.tests.endpoint import WAIT_S, Delivery, Endpoint, certificate, endpoint, taken
from services.subscription.tests.test_webhooks import LOOPBACK, answering, created, cursor, follow, log
from services.subscription.tests.world import KEY, KID, STRANGER, World, ok, until

ONLY = {"event_classes": ["object_created"]}


@pytest_asyncio.fixture(loop_scope="session")
async def hook() -> AsyncIterator[Endpoint]:
    async with endpoint() as found:
        yield found


class Processes:
    """Subscription services as processes of their own, by pid."""

    def __init__(self, world: World, write_url: str) -> None:
        assert world.bus is not None
        self._environment = os.environ | {
            "PAMSPEC_DATABASE_URL": world.database.role("subscription"),
            "PAMSPEC_NATS_URL": world.bus.url,
            "PAMSPEC_NATS_NKEY_SEED": world.bus.service_seed,
            "PAMSPEC_TOKEN_KEYS": json.dumps({KID: KEY.decode()}),
            "PAMSPEC_WRITE_URL": write_url,
            "PAMSPEC_LEASE_S": "1.0",
            "PAMSPEC_HEADS_INTERVAL_S": "0.1",
            "PAMSPEC_WEBHOOK_NETWORKS": '["127.0.0.0/8"]',
            "PAMSPEC_WEBHOOK_HTTP": "true",
            "PAMSPEC_WEBHOOK_PORTS": '["1-65535"]',
            "PAMSPEC_WEBHOOK_RETRY_S": "0.05",
            "PAMSPEC_LOG_LEVEL": "WARNING",
        }
        self.running: dict[int, asyncio.subprocess.Process] = {}

    async def start(self) -> None:
        command = (sys.executable, "-m", "pamspec_subscription")
        one = await asyncio.create_subprocess_exec(*command, env=self._environment)
        self.running[one.pid] = one

    async def kill(self, pid: int) -> None:
        one = self.running.pop(pid)
        with contextlib.suppress(ProcessLookupError):
            one.kill()
        await one.wait()


@contextlib.asynccontextmanager
async def processes(world: World, count: int) -> AsyncIterator[Processes]:
    """So many of them; what still runs at the end is killed."""
    assert world.bus is not None
    settings = WriteSettings(
        database_url=SecretStr(world.database.role("write")),
        nats_url=world.bus.url,
        nats_nkey_seed=SecretStr(world.bus.service_seed),
        token_keys={KID: SecretBytes(KEY)},
    )
    async with server.serving(build_write(settings), drain_s=1.0) as write_url:
        found = Processes(world, write_url)
        try:
            for _ in range(count):
                await found.start()
            yield found
        finally:
            for pid in list(found.running):
                await found.kill(pid)


async def holder(world: World, name: str) -> int:
    """The process that holds the lease."""
    owner: str = (await world.row(name))["lease_owner"]
    return int(owner.split(":")[1])


@pytest.mark.timeout(600)
async def test_the_holder_is_killed_in_the_middle_of_a_delivery(world: World, hook: Endpoint) -> None:
    """kill -9 while the endpoint thinks, and again: nothing is lost and the order is kept."""
    front = await world.service(**LOOPBACK | {"webhook_places": 0})
    scope = await world.scope()
    made = await created(world, scope, 40)
    thinking: asyncio.Queue[Delivery] = asyncio.Queue()

    async def think(delivery: Delivery) -> web.StreamResponse:
        thinking.put_nowait(delivery)
        await asyncio.Event().wait()
        raise AssertionError

    hook.answer = think
    name = await follow(front, hook, scope, filter=ONLY, delivery={"batching_max_events": 5}, after_sequence=0)
    async with processes(world, 2) as found:
        await asyncio.wait_for(thinking.get(), WAIT_S)
        await found.kill(await holder(world, name))
        await found.start()
        await asyncio.wait_for(thinking.get(), WAIT_S)
        assert hook.kept == []
        hook.answer = taken
        await found.kill(await holder(world, name))
        await hook.keeps(made)
        later = await created(world, scope, 3)
        await hook.keeps(made + later)
        assert hook.seen[0].headers["webhook-id"] == hook.seen[1].headers["webhook-id"], "a copy is known by its id"

        async def noted() -> object:
            return await cursor(world, name) >= later[-1]

        await until(noted, WAIT_S)


async def test_a_deliverer_that_was_overtaken_changes_nothing(world: World, hook: Endpoint) -> None:
    """Its request is answered 2xx after a reset by the owner: the cursor stays where the reset put it."""
    service = await world.service(**LOOPBACK)
    scope = await world.scope()
    made = await created(world, scope, 2)
    go_on = asyncio.Event()

    async def think(_: Delivery) -> web.StreamResponse:
        await go_on.wait()
        return web.Response(status=204)

    hook.answer = think
    name = await follow(service, hook, scope, filter=ONLY, after_sequence=0)
    await hook.until(lambda: hook.seen)
    other = await world.service(**LOOPBACK | {"webhook_places": 0})
    await ok(other, "reset", {"subscription_id": name, "after_sequence": 0})
    hook.answer = answering(*[503] * 1000)
    go_on.set()
    await hook.until(lambda: len(hook.seen) >= 3)
    assert await cursor(world, name) == 0
    hook.answer = taken
    await hook.until(lambda: hook.kept == made + made)


async def taken_twice(hook: Endpoint, sequence: int) -> None:
    await hook.until(lambda: hook.kept.count(sequence) == 2)


async def test_endpoints_that_hang_delay_nobody(world: World, hook: Endpoint) -> None:
    """As many as there are places hang; others begin and go on, and few hang at once."""
    service = await world.service(**LOOPBACK | {"webhook_places": 8, "webhook_timeout_s": 600.0})
    good, bad = await world.scope(), await world.scope()
    async with endpoint() as dead:
        failing = asyncio.Event()

        async def hang(_: Delivery) -> web.StreamResponse:
            if not failing.is_set():
                return web.Response(status=500)
            await asyncio.Event().wait()
            raise AssertionError

        dead.answer = hang
        await created(world, bad, 1)
        for _ in range(8):
            await follow(service, dead, bad, filter=ONLY, after_sequence=0)
        await dead.until(lambda: len({one.body["subscription_id"] for one in dead.seen}) == 8)
        failing.set()
        seen = len(dead.seen)
        await dead.until(lambda: len(dead.seen) > seen)
        for _ in range(2):
            await follow(service, hook, good, filter=ONLY)
        for _ in range(3):
            made = await created(world, good, 2)
            await taken_twice(hook, made[-1])
        assert len(dead.seen) == seen + 1, "failing endpoints share a quarter of the places"


async def test_one_tenant_never_holds_all_places(world: World, hook: Endpoint) -> None:
    """Its endpoints take what they are sent, so that their places are never given back; another tenant's has one."""
    ours, theirs = await world.scope(), "workspace:elsewhere"
    principal = Principal(
        STRANGER.tenant_id, "human:admin", "human", frozenset({RIGHT_ADMIN}), roles=frozenset({"admin"})
    )
    await world.written("create_scope", {"scope_id": theirs, "scope_kind": "workspace"}, principal)
    await world.written(
        "create",
        {
            "scope_id": theirs,
            "object_type": "claim",
            "canonical_content": "x",
            "provenance": {"activity": "test"},
        },
        STRANGER,
    )
    front = await world.service(**LOOPBACK | {"webhook_places": 0})
    made = await created(world, ours, 1)
    for _ in range(6):
        await follow(front, hook, ours, filter=ONLY, after_sequence=0)
    async with endpoint() as elsewhere:
        await follow(front, elsewhere, theirs, STRANGER, filter=ONLY, after_sequence=0)
        await world.service(**LOOPBACK | {"webhook_places": 4})
        await elsewhere.until(lambda: elsewhere.kept)
        await hook.until(lambda: len(hook.seen) >= 2)
        assert hook.kept == made * 2


async def test_secrets_are_sealed_and_heal_by_rotation(world: World, hook: Endpoint) -> None:
    keys = {"webhook_keys": {"one": b"a key of the operator's, long enough"}}
    service = await world.service(**LOOPBACK | keys)
    scope = await world.scope()
    name = await follow(service, hook, scope, filter=ONLY)
    made = await created(world, scope, 1)
    await hook.keeps(made)
    stored = await world.admin.fetchval("SELECT secrets FROM subscription.webhook WHERE subscription_id = $1", name)
    text = hook.secrets[0].removeprefix("whsec_")
    assert stored.startswith(b"one\0")
    assert text.encode() not in stored
    assert base64.b64decode(text) not in stored
    await service.stop()
    other = await world.service(**LOOPBACK | {"webhook_keys": {"two": b"another key of the operator's too"}})
    made += await created(world, scope, 1)
    rotated = await ok(other, "rotate_webhook_secret", {"subscription_id": name})
    hook.secrets.append(rotated["secret"])
    await ok(other, "replay", {"subscription_id": name})
    await hook.keeps(made)
    assert hook.seen[-1].secrets == hook.secrets[1:]


async def test_nothing_secret_is_logged(world: World, hook: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        service = await world.service(**LOOPBACK)
        scope = await world.scope()
        hook.answer = answering(500, 404)
        marked = Endpoint(hook.base + "/hook?token=")
        document = {"scope_id": scope, "channel": "webhook", "webhook": {"url": hook.url + "?token=a-marked-word"}}
        answer = await ok(service, "subscribe", document | {"after_sequence": 0, "include_content": True})
        await created(world, scope, 1, canonical_content="a phrase of content")
        await hook.until(lambda: hook.kept)
        await ok(service, "unsubscribe", {"subscription_id": answer["subscription_id"]})
        await hook.until(lambda: hook.closed)
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("pamspec"))
    for secret in (answer["webhook"]["secret"], "a-marked-word", "a phrase of content", marked.base):
        assert secret not in ours


async def test_one_that_is_never_taken_closes_in_the_end(world: World, hook: Endpoint) -> None:
    service = await world.service(**LOOPBACK | {"unacknowledged_limit_s": 1.0, "upkeep_interval_s": 0.2})
    scope = await world.scope()
    hook.answer = answering(*[500] * 10_000)
    await created(world, scope, 1)
    name = await follow(service, hook, scope, filter=ONLY, after_sequence=0)

    async def closed() -> object:
        return (await world.row(name))["state"] == "closed"

    await until(closed, WAIT_S)
    hook.answer = taken
    assert (await world.row(name))["closed_reason"] == "unacknowledged"


async def test_https_to_a_name_by_the_whole_service(world: World, tmp_path: Path) -> None:
    tls, trusted = certificate(tmp_path, "hooks.example.org")
    async with endpoint(tls) as hook:
        settings = world.settings(**LOOPBACK | {"webhook_ca_file": trusted, "webhook_http": False})
        service = build(settings, LocalPeer(world.write), lambda _: ["127.0.0.1"])
        await service.start()
        world.services.append(service)
        scope = await world.scope()
        hook.base = hook.base.replace("127.0.0.1", "hooks.example.org")
        name = await follow(service, hook, scope, filter=ONLY, after_sequence=0)
        await hook.keeps(await created(world, scope, 2))
        assert hook.seen[0].secrets == hook.secrets

        async def logged() -> object:
            return {one["outcome"] for one in await log(service, name)} == {"delivered"}

        await until(logged, WAIT_S)
