"""What authorization costs: creates over HTTP by live rights, in turns with a product that permits everything."""

import asyncio

import asyncpg
import orjson

from pamspec_cli.bench import bodies
from pamspec_cli.bench.environment import Environment
from pamspec_cli.bench.figures import Figure, Measured, at_least, in_turns
from pamspec_cli.bench.generator import Generator
from pamspec_cli.bench.http import SECONDS
from pamspec_client import AsyncClient

SCOPE = "bench:authorization"
SHARE = 1 / 1.1
PRODUCT, ALLOW_ALL = "pamspec_cli", "pamspec_cli.bench.allow_all"
_DRAINED_S = 30.0
_RULE = (
    '@id("no-tasks") forbid (principal, action == Action::"create", resource) when { resource.object_type == "task" };'
)


async def create(environment: Environment) -> Figure:
    """At most 10 % dearer than without: warm, with a rule of the scope beside those of the roles.

    Both products stand on the same servers, and the one that started first moves the events of both; so half of the
    rounds are measured with either of them first, and each begins when the events of the one before are gone.
    """
    rates: list[float] = []
    floors: list[float] = []
    for first, second in ((PRODUCT, ALLOW_ALL), (ALLOW_ALL, PRODUCT)):
        async with environment.product(module=first) as one, environment.product(module=second) as other:
            urls = {first: one.url, second: other.url}
            rate, floor = await _rounds(environment, urls)
        rates += rate.rounds
        floors += floor.rounds
    note = "64 connections; floor: the same product with a write service that permits everything"
    measured = Measured.of(rates), Measured.of(floors)
    return at_least("authorization.create", measured[0], "requests/s", measured[1], SHARE, note=note)


async def _rounds(environment: Environment, urls: dict[str, str]) -> tuple[Measured, Measured]:
    conn = await asyncpg.connect(environment.database_url)
    try:
        async with Generator() as generator, AsyncClient(urls[PRODUCT], environment.key) as client:
            await client.create_scope(scope_id=SCOPE, scope_kind="bench")
            found = orjson.loads((await client.call("get_access_rules", {"scope_id": SCOPE})).body)
            rules = {"scope_id": SCOPE, "rules": _RULE, "policy_basis": "bench"}
            await client.call("set_access_rules", rules | {"expected_rules_version": found["rules_version"]})

            async def creates(module: str) -> float:
                await drained(conn)
                body = bodies.create_bytes(SCOPE)
                return (await generator.post(urls[module], "/v1/create", body, environment.key, SECONDS)).per_second

            for module in urls:
                await creates(module)
            return await in_turns(lambda: creates(PRODUCT), lambda: creates(ALLOW_ALL))
    finally:
        await conn.close()


async def drained(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Returns when no event waits for the bus; TimeoutError when that takes too long."""
    async with asyncio.timeout(_DRAINED_S):
        while True:
            if not await conn.fetchval("SELECT EXISTS (SELECT FROM relay.outbox)"):
                return
            await asyncio.sleep(0.02)
