"""Figure 1: creates in process, against the same rows written by one SQL transaction each."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pamspec_write.app
from pamspec_cli.bench import bodies, sql
from pamspec_cli.bench.environment import Environment
from pamspec_cli.bench.figures import Figure, at_least, in_turns
from pamspec_cli.bench.generator import COUNTER
from pamspec_cli.bench.scopes import create_scopes
from pamspec_cli.deployment import in_environment
from pamspec_common.calls import Call
from pamspec_common.peers import LocalPeer
from pamspec_common.service import Service
from pamspec_write.settings import Settings

CONCURRENT = 64
SECONDS = 1.5
SCOPES = 1000
FLOOR_ROWS = 60_000


class Writer:
    """The write service in this process, called as the gateway calls it."""

    def __init__(self, environment: Environment, service: Service) -> None:
        self.environment, self.service, self._peer = environment, service, LocalPeer(service)
        self._numbers = itertools.count()

    async def creates_per_second(self, scope_ids: Sequence[str], seconds: float) -> float:
        """Creates per second by 64 callers; RuntimeError for an answer that is no success."""
        token = self.environment.principal()
        templates = itertools.cycle([bodies.create_bytes(scope_id).split(COUNTER) for scope_id in scope_ids])
        done = 0

        async def work(until: float) -> None:
            nonlocal done
            while time.perf_counter() < until:
                before, after = next(templates)
                body = b"%b%012d%b" % (before, next(self._numbers), after)
                answer = await self._peer.call(Call("create", token, body))
                if answer.status != 201:
                    raise RuntimeError(f"create answered {answer.status}: {answer.body[:300]!r}")
                done += 1

        started = time.perf_counter()
        await asyncio.gather(*(work(started + seconds) for _ in range(CONCURRENT)))
        return done / (time.perf_counter() - started)


async def hot_scope(environment: Environment) -> Figure:
    """One scope that everybody writes to: at least 5 times the floor."""
    return await _measure(environment, "create.hot_scope", 1, 5.0)


async def thousand_scopes(environment: Environment) -> Figure:
    """A thousand scopes: at least 1.2 times the floor."""
    return await _measure(environment, "create.1000_scopes", SCOPES, 1.2)


@asynccontextmanager
async def hot_scope_creates(environment: Environment) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """Rounds of creates in process on one hot scope, warm."""
    async with writing(environment) as writer:
        scopes = list(await create_scopes(environment, writer.service, "hot", 1))

        async def creates() -> float:
            return await writer.creates_per_second(scopes, SECONDS)

        await creates()
        yield creates


@asynccontextmanager
async def writing(environment: Environment) -> AsyncIterator["Writer"]:
    """The write service, up."""
    with in_environment(environment.deployment.variables("write")):
        service = pamspec_write.app.build(Settings())
    await service.start()
    try:
        yield Writer(environment, service)
    finally:
        await service.stop()


async def _measure(environment: Environment, name: str, count: int, ratio: float) -> Figure:
    async with writing(environment) as writer:
        scopes = await create_scopes(environment, writer.service, name.replace("_", "-"), count)
        await writer.creates_per_second(list(scopes), SECONDS)
        keys = list(scopes.values())
        rows = await sql.written(environment.database_url, keys, FLOOR_ROWS)

        async def floor() -> float:
            return await sql.creates_per_second(environment.database_url, keys, rows, SECONDS)

        await floor()
        product_rate, floor_rate = await in_turns(lambda: writer.creates_per_second(list(scopes), SECONDS), floor)
    return at_least(name, product_rate, "creates/s", floor_rate, ratio, note="64 callers; floor: 16 connections")
