"""Limits: budgets that gateways share through a real Valkey, which dies or stands still; turns between tenants."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import orjson
import pytest
import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.valkey import EmbeddedValkey
from pamspec_common.calls import Call
from pamspec_common.errors import PamspecError, ServiceUnavailable
from pamspec_common.keys import new_key
from pamspec_common.peers import LocalPeer
from pamspec_common.server import serving
from pamspec_common.service import Service
from pamspec_common.telemetry import setup_metrics
from pamspec_gateway.app import build
from pamspec_gateway.limits.limiter import waits_long
from services.gateway.tests.behind import Behind, Door, echo_service, gateway_settings, insert_key, refusal_of
from tests.servers.chosen import servers

Document = dict[str, Any]
ONE, OTHER = "tenant:t", "tenant:u"


@dataclass
class Gateways:
    """Two gateways in front of one small service, with a key of each of two tenants, and Valkey between them."""

    doors: list[Door]
    keys: dict[str, str]
    behind: Behind
    dsn: str
    valkey: EmbeddedValkey

    async def bound(self, tenant: str, quotas: Document) -> None:
        """Put quotas in force, and wait until both gateways go by them."""
        conn = await asyncpg.connect(self.dsn)
        try:
            version = await conn.fetchval(
                "UPDATE core.tenant SET quotas_version = quotas_version + 1 WHERE tenant_id = $1"
                " RETURNING quotas_version",
                tenant,
            )
            await conn.execute(
                "INSERT INTO core.quotas (tenant_id, quotas_version, quotas, policy_basis, actor_id, operation_id)"
                " VALUES ($1, $2, $3, 'x', 'human:o', 'op:o')",
                tenant, version, orjson.dumps(quotas).decode(),
            )  # fmt: skip
        finally:
            await conn.close()
        for door in self.doors:
            limiter = limiter_of(door.service)
            await until(partial(shown, limiter, tenant, quotas))

    async def post(self, number: int, tenant: str = ONE, path: str = "/v1/create", body: bytes = b"{}") -> Any:
        """Status, body and headers of a request to one of the gateways."""
        door = self.doors[number % len(self.doors)]
        return await door.post(path, body, Authorization=f"Bearer {self.keys[tenant]}")

    async def refusal(self, number: int = 0, tenant: str = ONE, path: str = "/v1/create") -> Any:
        """The refusal of a request beyond a limit: the first of many, since some budget comes back all the time."""
        for _ in range(2000):
            answer = await self.post(number, tenant, path)
            if answer[0] != 200:
                assert answer[0] == 429
                return answer
        raise AssertionError("nothing was refused")

    async def passed(self, count: int, tenant: str = ONE, **more: Any) -> int:
        """How many of so many requests, one after another by turns at both gateways, were let through."""
        statuses = [(await self.post(number, tenant, **more))[0] for number in range(count)]
        assert set(statuses) <= {200, 429}
        return statuses.count(200)


def limiter_of(service: Service) -> Any:
    """The limiter of a gateway."""
    return service.on_drain.__self__._limiter  # type: ignore[union-attr]


def sharing_of(door: Door) -> Any:
    """What a gateway shares its limits by."""
    return limiter_of(door.service)._sharing


def shown(limiter: Any, tenant: str, quotas: Document) -> bool:
    holder = limiter._tenants.get(tenant)
    return holder is None or all(
        getattr(getattr(holder.quotas, part), name) == bound
        for part, bounds in quotas.items()
        for name, bound in bounds.items()
    )


async def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Wait for something that another task brings about."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(database: Database, root: Path, **changed: object) -> AsyncIterator[Gateways]:
    behind, keys = Behind(), {ONE: new_key(), OTHER: new_key()}
    for number, (tenant, key) in enumerate(keys.items()):
        await insert_key(database.dsn, key, tenant=tenant, key_id=f"key:{number}")
    valkey = servers().valkey(root / "valkey")
    address = await valkey.start()
    echo = echo_service("echo", behind)
    await echo.start()
    peers = dict.fromkeys(("write", "query", "subscription", "delegation", "indexing"), LocalPeer(echo))
    given = {"valkey_url": address.url, "quota_cache_s": 0.05, "limit_timeout_ms": 1000, **changed}
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        doors = []
        for _ in range(2):
            service = build(gateway_settings(database, **given), peers)
            url = await stack.enter_async_context(serving(service))
            doors.append(Door(url, keys[ONE], behind, session, database.dsn, service))
        yield Gateways(doors, keys, behind, database.dsn, valkey)
    await echo.stop()
    await valkey.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def gateways(database: Database, tmp_path: Path) -> AsyncIterator[Gateways]:
    async with running(database, tmp_path) as made:
        yield made


SLOW = {"tenant": {"requests_per_s": 1, "burst": 40}}
"""So slow that a test ends before anything comes back."""


async def test_two_gateways_share_a_limit(gateways: Gateways) -> None:
    assert await gateways.passed(2) == 2
    await gateways.bound(ONE, {"tenant": {"requests_per_s": 1, "burst": 200}})
    let_through = await gateways.passed(500)
    assert let_through >= 200
    # Alone each would let 200 through. Beyond 200: what comes back meanwhile, and what goes between two exchanges.
    assert let_through <= 320
    _, body, headers = await gateways.refusal(1)
    error = refusal_of(body)
    assert (error["code"], error["retryable"]) == ("service_unavailable", True)
    assert error["details"] == {"reason": "quota", "limit": "tenant.requests_per_s", "bound": 1}
    assert "tenant.requests_per_s" in error["message"]
    assert int(headers["Retry-After"]) >= 1
    assert await gateways.passed(20, OTHER) == 20


@pytest.mark.parametrize("path", ["/v1/create", "/v1/read", "/v1/poll"])
async def test_a_retry_after_retry_after_succeeds(gateways: Gateways, path: str) -> None:
    await gateways.passed(2)
    await gateways.bound(ONE, {"principal": {"requests_per_s": 2, "burst": 2}})
    answer = await gateways.refusal(path=path)
    assert refusal_of(answer[1])["details"]["limit"] == "principal.requests_per_s"
    await asyncio.sleep(int(answer[2]["Retry-After"]))
    assert (await gateways.post(0, path=path))[0] == 200


async def test_every_item_of_a_batch_counts_and_a_large_one_is_paid_back(gateways: Gateways) -> None:
    await gateways.passed(2)
    await gateways.bound(ONE, SLOW)
    batch = orjson.dumps({"items": [{"operation": "create", "note": '{"items": []}'}] * 35})
    assert (await gateways.post(0, path="/v1/batch", body=batch))[0] == 200
    assert 1 <= await gateways.passed(40) <= 25
    await gateways.bound(ONE, {"tenant": {"requests_per_s": 1, "burst": 2}})
    large = orjson.dumps({"items": [{}] * 100})
    assert (await gateways.post(0, path="/v1/batch", body=large))[0] == 200
    status, _, headers = await gateways.post(0)
    assert (status, int(headers["Retry-After"]) > 60) == (429, True)


async def test_a_refusal_costs_nobody(gateways: Gateways) -> None:
    """What the principal's own budget refuses takes nothing from its tenant's."""
    await gateways.passed(2)
    quotas = {"tenant": {"requests_per_s": 1, "burst": 30}, "principal": {"requests_per_s": 1, "burst": 5}}
    await gateways.bound(ONE, quotas)
    await gateways.passed(100)
    other = new_key()
    await insert_key(gateways.dsn, other, actor="agent:b", key_id="key:9")
    answers = [await gateways.doors[0].post("/v1/create", Authorization=f"Bearer {other}") for _ in range(5)]
    assert [answer[0] for answer in answers] == [200] * 5
    assert refusal_of((await gateways.refusal())[1])["details"]["limit"] == "principal.requests_per_s"


async def test_valkey_killed_and_back(gateways: Gateways) -> None:
    await gateways.passed(2)
    await gateways.bound(ONE, {"tenant": {"requests_per_s": 1, "burst": 50}})
    await gateways.passed(20)
    assert gateways.valkey.process.pid is not None
    os.kill(gateways.valkey.process.pid, signal.SIGKILL)
    await until(lambda: not any(sharing_of(door).up for door in await_traffic(gateways)))
    alone = await gateways.passed(150)
    assert 20 <= alone <= 2 * 50 + 30
    await gateways.refusal()
    assert await gateways.passed(10, OTHER) == 10
    ready = await gateways.doors[0].get("/readyz")
    assert ready[0] == 200
    await gateways.valkey.start()
    for door in gateways.doors:
        await until(partial(answers_again, gateways, door))
    await gateways.refusal()


def knock(gateways: Gateways) -> bool:
    """Something to share for every gateway, whatever it answers."""
    for number in range(2):
        task = asyncio.ensure_future(gateways.post(number, OTHER))
        _knocks.add(task)
        task.add_done_callback(_knocks.discard)
    return True


def answers_again(gateways: Gateways, door: Door) -> bool:
    """Whether this gateway shares its limits."""
    return knock(gateways) and bool(sharing_of(door).up)


_knocks: set[asyncio.Future[Any]] = set()


def await_traffic(gateways: Gateways) -> list[Door]:
    knock(gateways)
    return gateways.doors


async def test_valkey_that_stands_still_holds_up_nobody(database: Database, tmp_path: Path) -> None:
    async with running(database, tmp_path, limit_timeout_ms=50) as gateways:
        await gateways.passed(2)
        await gateways.bound(ONE, {"tenant": {"requests_per_s": 1, "burst": 50}})
        pid = gateways.valkey.process.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            assert await gateways.passed(200, OTHER) == 200
            assert 50 <= await gateways.passed(150) <= 2 * 50 + 30
            await gateways.refusal()
            await until(lambda: not any(sharing_of(door).up for door in await_traffic(gateways)))
        finally:
            os.kill(pid, signal.SIGCONT)
        for door in gateways.doors:
            await until(partial(answers_again, gateways, door))


async def test_concurrency_is_bounded_and_waiting_calls_are_no_requests(gateways: Gateways) -> None:
    await gateways.passed(2)
    await gateways.bound(ONE, {"tenant": {"concurrency": 3, "channels": 2}})
    gateways.behind.reset()
    gateways.behind.gate = asyncio.Event()
    held = [asyncio.create_task(gateways.post(0)) for _ in range(3)]
    held += [asyncio.create_task(gateways.post(0, path="/v1/poll")) for _ in range(2)]
    await until(lambda: len(gateways.behind.calls) == 5)
    for path, limit in (("/v1/create", "tenant.concurrency"), ("/v1/poll", "tenant.channels")):
        status, body, headers = await gateways.post(0, path=path)
        assert (status, refusal_of(body)["details"]["limit"], headers["Retry-After"]) == (429, limit, "1")
    others = asyncio.create_task(gateways.post(0, OTHER))
    await until(lambda: len(gateways.behind.calls) == 6)
    gateways.behind.gate.set()
    assert [(await one)[0] for one in [*held, others]] == [200] * 6
    assert (await gateways.post(0))[0] == 200


async def test_a_body_may_be_as_large_as_the_tenant_may_send(gateways: Gateways) -> None:
    await gateways.passed(2)
    await gateways.bound(ONE, {"tenant": {"body_bytes": 2048}})
    status, body, _ = await gateways.post(0, body=b" " * 2049)
    assert (status, refusal_of(body)["details"]["limit"]) == (413, 2048)
    assert (await gateways.post(0, body=b" " * 2048))[0] == 200
    assert (await gateways.post(0, OTHER, body=b" " * 4096))[0] == 200


async def test_a_tenant_that_floods_lets_others_have_their_turn(database: Database, tmp_path: Path) -> None:
    """Of what the services are given at once a tenant beside another has a sixteenth; nobody waits behind it."""
    async with running(database, tmp_path, max_turns=48) as gateways:
        await gateways.passed(2)
        await gateways.passed(2, OTHER)
        gateways.behind.reset()
        gateways.behind.gate = asyncio.Event()
        flood = [asyncio.create_task(gateways.post(0)) for _ in range(60)]
        await until(lambda: len(gateways.behind.calls) == 3)
        mine = asyncio.create_task(gateways.post(0, OTHER))
        await until(lambda: len(gateways.behind.calls) == 4)
        assert gateways.behind.calls[-1].principal.tenant_id == OTHER
        gateways.behind.gate.set()
        assert (await mine)[0] == 200
        assert {(await one)[0] for one in flood} == {200}
        assert len(gateways.behind.calls) == 61


async def test_who_is_refused_for_a_limit_is_told_so_a_moment_later(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers who do not wait come back less often, and not in step; other refusals are told at once."""
    pauses: list[float] = []
    sleep, own = asyncio.sleep, asyncio.current_task()

    async def noted(seconds: float) -> None:
        if asyncio.current_task() is not own:  # the module is everybody's
            await sleep(seconds)
            return
        pauses.append(seconds)
        await sleep(0)

    limiter = limiter_of(gateways.doors[0].service)
    with monkeypatch.context() as patched:
        patched.setattr("pamspec_gateway.limits.limiter.asyncio.sleep", noted)
        await limiter.put_off(ServiceUnavailable(status=429))
        await limiter.put_off(ServiceUnavailable(status=429))
        await limiter.put_off(ServiceUnavailable())
        assert len(set(pauses)) == 2
        assert all(0.05 <= pause <= 0.15 for pause in pauses)
    held: list[int] = []

    async def put_off(error: PamspecError) -> None:
        held.append(error.http_status)

    monkeypatch.setattr(limiter, "put_off", put_off)
    await gateways.bound(ONE, {"tenant": {"requests_per_s": 1, "burst": 1}})
    await gateways.refusal(0)
    assert held
    assert set(held) == {429}


async def test_metrics_name_limits_and_nobody(gateways: Gateways) -> None:
    setup_metrics()
    await gateways.passed(2)
    await gateways.bound(ONE, {"tenant": {"requests_per_s": 1, "burst": 1}})
    text = ""
    async with asyncio.timeout(60):
        while not re.search(r'pamspec_gateway_limited_total\{[^}]*limit="tenant.requests_per_s"', text):
            await gateways.passed(4)
            text = (await gateways.doors[0].get("/metrics"))[1].decode()
    assert re.search(r'pamspec_gateway_budget_left\{[^}]*of="tenant"', text)
    assert "tenant:t" not in text
    assert "agent:a" not in text


@pytest.mark.parametrize(
    ("operation", "body", "waits"),
    [
        ("read", b'{"object_id":"obj:1","wait_ms":5}', True),
        ("read", b'{"object_id":"obj:1","wait_ms":0}', False),
        ("query", b'{"query":{"where":{"field":"content:/x","op":"eq","value":"\\"wait_ms\\""}}}', False),
        ("query", b'{"query":{"wait_ms":500}}', False),
        ("create", b'{"canonical_content":{"wait_ms":500},"wait_ms":500}', False),
        ("read", b'{"wait_ms":"long"}', False),
        ("read", b'{"wait_ms":', False),
        ("no_operation", b'{"wait_ms":5}', False),
    ],
)
def test_only_a_read_that_waits_takes_no_turn(operation: str, body: bytes, waits: bool) -> None:
    """Nobody gets around the turns by a text in what is sent."""
    assert waits_long(Call(operation, "token", body)) is waits
