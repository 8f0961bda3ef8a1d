"""What a tenant that asks for ten times its quota costs another one: the latency of its creates, with it and without.

The noisy tenant is bounded at 200 requests a second and sends up to 2,000; the quiet one sends up to 200, over HTTP.
"""

from __future__ import annotations

import asyncio
import json

from pamspec_cli.bench import bodies
from pamspec_cli.bench.environment import Environment, Product
from pamspec_cli.bench.figures import ROUNDS, Figure, Measured, in_turns
from pamspec_cli.bench.generator import Generator, Load
from pamspec_cli.keys import RIGHTS
from pamspec_client import AsyncClient

SECONDS = 4.0
NOISY = "tenant:noisy"
PER_SECOND = 200
MOST = 1.5
_PAUSE_S = 0.02
_QUIET, _LOUD = 4, 40
"""Connections, each of which sends up to fifty a second."""


async def noisy_neighbour(environment: Environment) -> Figure:
    """The p99 of a quiet tenant's creates beside a noisy one."""
    async with environment.product() as product, Generator() as quiet, Generator() as loud:
        async with environment.client(product) as client:
            await client.create_scope(scope_id="bench:quiet", scope_kind="bench")
            key = await _noisy_key(client)
        async with AsyncClient(product.url, key) as client:
            await client.create_scope(scope_id="bench:noisy", scope_kind="bench")
        put_off: list[float] = []

        async def alone() -> float:
            return (await _creates(quiet, product, "bench:quiet", environment.key, _QUIET)).p99_ms

        async def beside() -> float:
            measured, noise = await asyncio.gather(
                _creates(quiet, product, "bench:quiet", environment.key, _QUIET),
                _creates(loud, product, "bench:noisy", key, _LOUD),
            )
            put_off.append(noise.put_off / SECONDS)
            return measured.p99_ms

        await alone()
        await beside()
        with_it, without = await in_turns(beside, alone)
    ratio = with_it.median / without.median
    return Figure(
        "limits.noisy_p99",
        with_it.median,
        "ms",
        without.median,
        ratio,
        f"<= {MOST:g} x floor",
        ratio <= MOST,
        with_it.spread,
        without.spread,
        "p99 of 200 creates/s beside a tenant with ten times its quota of 200/s; floor: the same without it",
        {"refused_per_s": Measured.of(put_off[-ROUNDS:]).median},
    )


async def _creates(generator: Generator, product: Product, scope_id: str, key: str, connections: int) -> Load:
    return await generator.post(
        product.url,
        "/v1/create",
        bodies.create_bytes(scope_id),
        key,
        SECONDS,
        connections=connections,
        pause_s=_PAUSE_S,
    )


async def _noisy_key(client: AsyncClient) -> str:
    """A bounded tenant and a key of it."""
    assert "operator" in RIGHTS, "the development key is an operator's"
    basis = {"tenant_id": NOISY, "policy_basis": "bench"}
    await client.call("create_tenant", basis)
    quotas = {"tenant": {"requests_per_s": PER_SECOND}}
    await client.call("set_quotas", {**basis, "quotas": quotas, "expected_quotas_version": 0})
    made = await client.call(
        "create_key", {**basis, "actor_id": "agent:noisy", "actor_kind": "agent", "roles": ["admin"]}
    )
    secret: str = json.loads(made.body)["secret"]
    return secret
