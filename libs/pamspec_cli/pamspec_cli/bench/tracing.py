"""What traces cost the processors: creates over HTTP with spans for a collector, in turns with none."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
from aiohttp import web

from pamspec_cli.bench import bodies
from pamspec_cli.bench.authorization import drained
from pamspec_cli.bench.environment import Environment, Product
from pamspec_cli.bench.figures import Figure, Measured, at_least, in_turns
from pamspec_cli.bench.generator import Generator
from pamspec_cli.bench.http import SECONDS

SCOPE = "bench:tracing"
TRACED, PLAIN = "traced", "plain"
_ROUNDS = 3


@asynccontextmanager
async def collector() -> AsyncIterator[str]:
    """What takes spans and drops them; its address."""

    async def take(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(content_type="application/x-protobuf")

    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


async def one_in_100(environment: Environment) -> Figure:
    """With one trace in a hundred at most a tenth dearer than with none."""
    return await _figure(environment, "tracing.one_in_100", "0.01", 0.9)


async def every(environment: Environment) -> Figure:
    """With every trace at most two and a half times as dear as with none."""
    return await _figure(environment, "tracing.every", "1", 0.4)


async def _figure(environment: Environment, name: str, sampled: str, share: float) -> Figure:
    """Both products stand on the same servers, and the one that started first moves the events of both; so each was
    first once, and the figure is the mean of both medians.
    """
    rates: list[float] = []
    floors: list[float] = []
    async with collector() as address:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": address,
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": sampled,
        }
        alone = {"PAMSPEC_EMBEDDER": "none"}
        given: dict[str, dict[str, str]] = {TRACED: alone | variables, PLAIN: alone}
        for first, second in ((TRACED, PLAIN), (PLAIN, TRACED)):
            async with (
                environment.product(name=f"{first}-{sampled}", variables=given[first]) as one,
                environment.product(name=f"{second}-{sampled}", variables=given[second]) as other,
            ):
                rate, floor = await _rounds(environment, {first: one, second: other})
            rates.append(rate.median)
            floors.append(floor.median)
    note = f"a share of {sampled} of all traces is sampled and exported; floor: the same product without an exporter"
    return at_least(name, Measured.of(rates), "requests/CPU s", Measured.of(floors), share, note=note)


def cpu_seconds(pid: int) -> float:
    """What a process has used of the processors so far, which other load on the machine does not change much."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _rounds(environment: Environment, products: dict[str, Product]) -> tuple[Measured, Measured]:
    conn = await asyncpg.connect(environment.database_url)
    try:
        async with Generator() as generator, environment.client(products[PLAIN]) as client:
            await client.create_scope(scope_id=SCOPE, scope_kind="bench")

            async def creates(which: str) -> float:
                await drained(conn)
                body = bodies.create_bytes(SCOPE)
                product = products[which]
                before = cpu_seconds(product.pid)
                load = await generator.post(product.url, "/v1/create", body, environment.key, SECONDS)
                return load.count / (cpu_seconds(product.pid) - before)

            for which in products:
                await creates(which)
            return await in_turns(lambda: creates(TRACED), lambda: creates(PLAIN), _ROUNDS)
    finally:
        await conn.close()
