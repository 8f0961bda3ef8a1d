"""A sweeper that ends between its claim, its command and its count: the next one leaves the same state behind."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pamspec_common.asgi import ASGIApp
from pamspec_common.calls import Answer, Call
from pamspec_common.errors import ServiceUnavailable
from pamspec_common.peers import Peer
from pamspec_common.service import Part
from services.retention_sweeper.tests.test_sweeping import garden
from services.retention_sweeper.tests.world import World, until

HOUR = timedelta(hours=1)


class Cut:
    """The write service behind a wire that ends, before a command gets through or before its answer comes back."""

    def __init__(self, peer: Peer, *, delivers: bool) -> None:
        self._peer, self._delivers = peer, delivers
        self.calls = 0

    @property
    def app(self) -> ASGIApp | None:
        return None

    async def call(self, call: Call) -> Answer:
        self.calls += 1
        if self._delivers:
            await self._peer.call(call)
        raise ServiceUnavailable

    async def ready(self) -> tuple[bool, list[Part]]:
        return await self._peer.ready()


@pytest.mark.parametrize("delivers", [False, True], ids=["before the command", "before its answer"])
async def test_what_a_sweeper_left_is_finished_once(world: World, delivers: bool) -> None:
    here = await garden(world)
    await here.govern(ttl_seconds=60)
    made = [await here.writer.create(f"object {number}") for number in range(5)]
    key = await here.writer.scope_key()
    cut = Cut(world.peer, delivers=delivers)

    async def tried() -> bool:
        return cut.calls >= 2

    async with world.sweeping(HOUR, write=cut):
        await until(tried)
    claimed = "SELECT count(*) FROM retention.due WHERE scope_key = $1 AND claim IS NOT NULL"
    assert await here.writer.admin.fetchval(claimed, key) == 5
    assert len(await here.events()) == (5 if delivers else 0)
    # The lease of a process that was killed stands until it has run out.
    await here.writer.admin.execute(
        "UPDATE retention.scope SET leased_until = now() + interval '1 second' WHERE scope_key = $1", key
    )
    async with world.sweeping(HOUR), world.sweeping(HOUR):
        for one in made:
            await here.reaches(one, retention_state="expired")

        async def counted() -> bool:
            return bool(await here.writer.admin.fetchval(claimed, key) == 0)

        await until(counted)
        await here.looked_at()
    assert len(await here.events()) == 5
    objects = await here.writer.admin.fetchval("SELECT sum(objects) FROM retention.tally WHERE scope_key = $1", key)
    assert objects == 5
    await here.writer.check_scope()


async def test_what_changed_under_a_claim_is_looked_at_again_and_not_overwritten(world: World) -> None:
    here = await garden(world)
    await here.govern(idle_seconds=60)
    made = await here.writer.create("written again")
    key = await here.writer.scope_key()
    cut = Cut(world.peer, delivers=False)

    async def tried() -> bool:
        return cut.calls >= 1

    async with world.sweeping(HOUR, write=cut):
        await until(tried)
    await here.writer.update(made, "newer")
    async with world.sweeping():
        await until(lambda: _settled(key, world))
        await here.looked_at()
    head = await here.head(made)
    assert (head["retention_state"], head["version_seq"]) == ("retained", 2)
    assert await here.events() == []


async def test_a_lease_from_before_the_stores_clock_jumped_back_is_not_waited_for(world: World) -> None:
    here = await garden(world)
    await here.govern(ttl_seconds=60)
    made = await here.writer.create("old")
    await here.writer.admin.execute(
        "UPDATE retention.scope SET leased_until = clock_timestamp() + interval '1 hour' WHERE scope_key = $1",
        await here.writer.scope_key(),
    )
    async with world.sweeping(HOUR):
        await here.reaches(made, retention_state="expired")


async def _settled(key: int, world: World) -> bool:
    sql = "SELECT count(*) FROM retention.due WHERE scope_key = $1 AND claim IS NOT NULL"
    return bool(await world.writer.admin.fetchval(sql, key) == 0)
