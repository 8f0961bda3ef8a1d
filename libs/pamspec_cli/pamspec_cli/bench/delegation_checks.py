"""Checks of grants that use nothing up, by the delegation service in process: decided anew, repeated, and revoked.

A check in the first figure is decided from the database each time; in the second the service keeps what it may keep.
The third counts from the acknowledged revocation to the first refusal, while checks of the same grant go on.
"""

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson

import pamspec_delegation.app
from pamspec_cli.bench.create_inprocess import Writer, writing
from pamspec_cli.bench.environment import Environment
from pamspec_cli.bench.figures import ROUNDS, Figure, Measured
from pamspec_cli.bench.scopes import create_scopes
from pamspec_cli.deployment import in_environment
from pamspec_common.calls import Answer, Call
from pamspec_common.peers import LocalPeer
from pamspec_delegation.settings import Settings

PER_SECOND = 500
P50_MS, P95_MS = 3.0, 10.0
CACHED_PER_SECOND = 3000
REVOKED_MS = 1000.0
_SECONDS = 2.0
_CALLERS = 64
_GRANTS = 50
_REVOCATIONS = 100
_DELEGATE = {"actor_id": "agent:bench-delegate", "actor_kind": "agent"}

_Ask = Callable[[str, dict[str, Any]], Awaitable[Answer]]


async def checks(environment: Environment) -> Sequence[Figure]:
    """500 checks a second without caches, as many as there can be with them, and how long a revoked grant is served."""
    async with writing(environment) as writer:
        [scope_id] = await create_scopes(environment, writer.service, "checks", 1)
        grants = [await _grant(environment, writer, scope_id) for _ in range(_GRANTS)]
        async with _checking(environment, writer, kept="0") as ask:
            await _paced(ask, grants)
            rounds = [await _paced(ask, grants) for _ in range(ROUNDS)]
        async with _checking(environment, writer) as ask:
            await _closed_loop(ask, grants)
            rates = Measured.of([await _closed_loop(ask, grants) for _ in range(ROUNDS)])
            served = await _revocations(environment, writer, ask, scope_id)
    return [_uncached(rounds), _cached(rates), _revoked(served)]


@asynccontextmanager
async def _checking(environment: Environment, writer: Writer, kept: str | None = None) -> AsyncIterator[_Ask]:
    """The delegation service, up; what it keeps, and for how long, is as it is by default or `kept` milliseconds."""
    variables = environment.deployment.variables("delegation")
    if kept is not None:
        variables |= {"PAMSPEC_DELEGATION_CONFIRM_MS": kept, "PAMSPEC_DELEGATION_LIFETIME_MS": kept}
    with in_environment(variables):
        service = pamspec_delegation.app.build(Settings(), LocalPeer(writer.service))
    await service.start()
    peer, token = LocalPeer(service), environment.principal()

    async def ask(delegation_id: str, more: dict[str, Any]) -> Answer:
        document = {"delegation_id": delegation_id, "operation": "read", "actor": _DELEGATE, "consume": False, **more}
        return await peer.call(Call("check_delegation", token, orjson.dumps(document)))

    try:
        yield ask
    finally:
        await service.stop()


async def _paced(ask: _Ask, grants: Sequence[str]) -> tuple[float, float]:
    """p50 and p95 in milliseconds at 500 checks a second, each from the time at which it was due."""
    latencies: list[float] = []
    started = time.perf_counter() + 0.01

    async def one(number: int) -> None:
        due = started + number / PER_SECOND
        await asyncio.sleep(due - time.perf_counter())
        _permitted(await ask(grants[number % len(grants)], {}))
        latencies.append((time.perf_counter() - due) * 1000)

    await asyncio.gather(*(one(number) for number in range(int(PER_SECOND * _SECONDS))))
    return _at(latencies, 0.5), _at(latencies, 0.95)


async def _closed_loop(ask: _Ask, grants: Sequence[str]) -> float:
    """Checks per second by 64 callers."""
    turns, done = itertools.cycle(grants), 0
    started = time.perf_counter()

    async def work() -> None:
        nonlocal done
        while time.perf_counter() < started + _SECONDS:
            _permitted(await ask(next(turns), {}))
            done += 1

    await asyncio.gather(*(work() for _ in range(_CALLERS)))
    return done / (time.perf_counter() - started)


async def _revocations(environment: Environment, writer: Writer, ask: _Ask, scope_id: str) -> list[float]:
    """Milliseconds from the acknowledgement of each revocation to the first check that is refused."""
    return [await _revocation(environment, writer, ask, scope_id) for _ in range(_REVOCATIONS)]


async def _revocation(environment: Environment, writer: Writer, ask: _Ask, scope_id: str) -> float:
    delegation_id = await _grant(environment, writer, scope_id)
    _permitted(await ask(delegation_id, {}))
    document = {"delegation_id": delegation_id, "policy_basis": "bench"}
    answer = await LocalPeer(writer.service).call(
        Call("revoke_delegation", environment.principal(), orjson.dumps(document))
    )
    if answer.status != 200:
        raise RuntimeError(f"revoke_delegation answered {answer.status}: {answer.body[:300]!r}")
    acknowledged = time.perf_counter()
    while (found := await ask(delegation_id, {})).status == 200:
        pass
    if found.status != 403:
        raise RuntimeError(f"check_delegation answered {found.status}: {found.body[:300]!r}")
    return (time.perf_counter() - acknowledged) * 1000


async def _grant(environment: Environment, writer: Writer, scope_id: str) -> str:
    document = {
        "scope_id": scope_id,
        "delegated_actor": _DELEGATE,
        "granted_operations": ["read"],
        "policy_basis": "bench",
        "not_before": "2001-01-01T00:00:00Z",
        "not_after": "2099-01-01T00:00:00Z",
    }
    call = Call("grant_delegation", environment.principal(), orjson.dumps(document))
    answer = await LocalPeer(writer.service).call(call)
    if answer.status != 201:
        raise RuntimeError(f"grant_delegation answered {answer.status}: {answer.body[:300]!r}")
    return str(orjson.loads(answer.body)["delegation_id"])


def _permitted(answer: Answer) -> None:
    if answer.status != 200:
        raise RuntimeError(f"check_delegation answered {answer.status}: {answer.body[:300]!r}")


def _at(latencies: Sequence[float], share: float) -> float:
    return sorted(latencies)[math.ceil(len(latencies) * share) - 1]


def _uncached(rounds: Sequence[tuple[float, float]]) -> Figure:
    p50, p95 = (Measured.of([one[place] for one in rounds]) for place in (0, 1))
    return Figure(
        "delegation.check_uncached",
        p50.median,
        "ms",
        None,
        None,
        f"p50 <= {P50_MS:g} ms and p95 <= {P95_MS:g} ms",
        p50.median <= P50_MS and p95.median <= P95_MS,
        p50.spread,
        note=f"{PER_SECOND} checks/s over {_GRANTS} grants, from when each was due; p95 {p95.median:.2f} ms",
        details={"p95_ms": p95.median},
    )


def _cached(rates: Measured) -> Figure:
    return Figure(
        "delegation.check_cached",
        rates.median,
        "checks/s",
        None,
        None,
        f">= {CACHED_PER_SECOND:,} checks/s",
        rates.median >= CACHED_PER_SECOND,
        rates.spread,
        note=f"{_CALLERS} callers over {_GRANTS} grants, as the service caches by default",
    )


def _revoked(served: Sequence[float]) -> Figure:
    p99 = _at(served, 0.99)
    return Figure(
        "delegation.revoked",
        p99,
        "ms",
        None,
        None,
        f"p99 < {REVOKED_MS:g} ms",
        p99 < REVOKED_MS,
        note=f"from the acknowledged revocation to the first refusal, {_REVOCATIONS} grants; "
        f"median {_at(served, 0.5):.2f} ms",
    )
