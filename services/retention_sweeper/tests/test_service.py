"""The service as such: it becomes ready, and it stops."""

from __future__ import annotations

from services.retention_sweeper.tests.world import World


async def test_it_is_ready_beside_its_store(world: World) -> None:
    service = await world.sweeper()
    ready, parts = await service.ready()
    assert ready
    assert {part.name for part in parts} >= {"store"}
    await service.stop()
