"""The sweeper's connection dies before every statement of a sweep: whoever goes on comes to the end of a calm one.

Before the first statement of a transaction is after the commit of the one before: both sides of each commit are met.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from asyncpg.pool import PoolConnectionProxy

from pamspec_common.consuming.intake import PASSING
from pamspec_common.principal import TokenSigner
from pamspec_common.service import Background
from pamspec_retention_sweeper.handlers.sweeping import Sweeping
from pamspec_retention_sweeper.queries.scopes import DueScope
from pamspec_retention_sweeper.store import Store
from services.retention_sweeper.tests.test_sweeping import garden
from services.retention_sweeper.tests.world import Garden, World
from services.write.tests.test_crash_points import STATEMENTS
from services.write.tests.writer import TENANT

ROLE = "pamspec_retention_sweeper"
HOUR = timedelta(hours=1)


@dataclass
class Killer:
    """Counts the statements of the sweeper's role, and ends its backend before the one of a number."""

    dsn: str
    at: int = -1
    seen: int = 0

    async def before(self, proxy: Any) -> None:
        if proxy._con._params.user != ROLE:
            return
        number, self.seen = self.seen, self.seen + 1
        if number == self.at:
            admin = await asyncpg.connect(self.dsn)
            assert await admin.fetchval("SELECT pg_terminate_backend($1, 5000)", proxy.get_server_pid())
            await admin.close()


@pytest.fixture
def killer(world: World, monkeypatch: pytest.MonkeyPatch) -> Killer:
    """Around the statements of this process's sweepers."""
    killer = Killer(world.database.dsn)

    def wrapped(run: Callable[..., Any]) -> Callable[..., Any]:
        async def statement(proxy: Any, *args: Any, **more: Any) -> Any:
            await killer.before(proxy)
            return await run(proxy, *args, **more)

        return statement

    for name in STATEMENTS:
        monkeypatch.setattr(PoolConnectionProxy, name, wrapped(getattr(PoolConnectionProxy, name)))
    return killer


@pytest_asyncio.fixture(loop_scope="session")
async def sweeping(world: World) -> AsyncIterator[Sweeping]:
    """A sweeper that acts when the test says so, and whose leases stand in nobody's way."""
    settings = world.settings(retention_lease_s=0.001, retention_objects_per_s=1_000_000)
    store = Store(settings)
    await store.open()
    yield Sweeping(store, world.peer, TokenSigner.of(settings), settings, HOUR)
    await store.close()


async def grown(world: World) -> Garden:
    """What expires, and a past version beyond what is kept."""
    here = await garden(world)
    await here.govern(ttl_seconds=60, max_versions=2)
    for number in range(2):
        made = await here.writer.create(f"object {number}")
    await here.writer.update(await here.writer.update(made, "two"), "three")
    return here


async def swept(here: Garden, sweeping: Sweeping) -> None:
    """Turns until nothing of the scope is left to do."""
    key = await here.writer.scope_key()
    left = (
        "SELECT r.followed_seq < h.last_seq OR EXISTS (SELECT FROM retention.due d WHERE d.scope_key = $1)"
        " FROM retention.scope r JOIN core.scope_head h USING (scope_key) WHERE r.scope_key = $1"
    )
    while await here.writer.admin.fetchval(left, key):
        await sweeping._turn(DueScope(key, TENANT, here.writer.scope), Background())


async def end(here: Garden) -> list[tuple[object, ...]]:
    """What is there: each object's states and versions, what is counted, and what was told."""
    key, admin = await here.writer.scope_key(), here.writer.admin
    heads = await admin.fetch(
        "SELECT retention_state, version_seq FROM core.object_head WHERE scope_key = $1 ORDER BY 2, 1",
        key,
    )
    tally = await admin.fetch(
        "SELECT action, rule, objects FROM retention.tally WHERE scope_key = $1 ORDER BY 1, 2", key
    )
    told = sorted(event["event_type"] for event in await here.events())
    return [*map(tuple, heads), *map(tuple, tally), tuple(told)]


async def test_a_sweep_ends_the_same_wherever_it_was_killed(world: World, sweeping: Sweeping, killer: Killer) -> None:
    here = await grown(world)
    await swept(here, sweeping)
    calm = await end(here)
    assert [row[0] for row in calm[:2]] == ["expired", "expired"]
    at = 0
    while True:
        here = await grown(world)
        killer.at, killer.seen = at, 0
        with suppress(*PASSING):
            await swept(here, sweeping)
        reached, killer.at = killer.seen > at, -1
        await swept(here, sweeping)
        assert await end(here) == calm, at
        if not reached:
            break
        at += 1
    assert at > 30, "every statement of several transactions"
