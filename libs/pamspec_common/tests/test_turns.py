"""Turns between tenants: smaller shares beside others, whole ones alone, and places by tenant that none can fill."""

from __future__ import annotations

import asyncio

import pytest

from pamspec_common.turns import RECENT_S, Line, Places, Turns


class Clock:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


async def settled() -> None:
    """Everybody who was let in has gone on."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_line_holds_less_while_another_one_is_there() -> None:
    clock = Clock()
    turns, noisy, quiet = Turns(8, 6, 2, clock), Line(), Line()
    assert [turns.take(noisy) for _ in range(7)] == [True] * 6 + [False], "alone it has its whole share"
    waiting = [asyncio.ensure_future(turns.wait(noisy)) for _ in range(6)]
    await settled()
    assert turns.take(quiet)
    for _ in range(4):
        turns.give_back(noisy)
    await settled()
    assert (noisy.busy, [one.done() for one in waiting]) == (2, [False] * 6)
    turns.give_back(noisy)
    await settled()
    assert (noisy.busy, [one.done() for one in waiting]) == (2, [True] + [False] * 5)
    turns.give_back(quiet)
    await settled()
    assert noisy.busy == 2, "who was there a moment ago may come back"
    clock.now += RECENT_S
    turns.give_back(noisy)
    await settled()
    assert noisy.busy == 6, "alone again, all wait no longer than there are places"
    assert all(one.done() for one in waiting)


async def test_places_of_one_tenant_leave_some_for_another() -> None:
    places = Places(4, 3)
    order: list[str] = []
    go_on = asyncio.Event()

    async def one(tenant_id: str) -> None:
        async with places.place(tenant_id, 30):
            order.append(tenant_id)
            await go_on.wait()

    noisy = [asyncio.ensure_future(one("tenant:noisy")) for _ in range(10)]
    await settled()
    assert order == ["tenant:noisy"] * 3
    quiet = [asyncio.ensure_future(one("tenant:quiet")) for _ in range(3)]
    await settled()
    assert order == ["tenant:noisy"] * 3 + ["tenant:quiet"]
    go_on.set()
    async with asyncio.timeout(30):
        await asyncio.gather(*noisy, *quiet)
    assert order.index("tenant:quiet", 4) <= 6, "the line of the quiet one has its turn before the rest of the noisy"


async def test_a_place_that_does_not_come_in_time_is_no_place() -> None:
    places = Places(1, 1)
    async with places.place("tenant:t", 30):
        with pytest.raises(TimeoutError):
            async with places.place("tenant:u", 0.01):
                raise AssertionError("there was none")
    for tenant_id in ("tenant:u", "tenant:t"):
        async with places.place(tenant_id, 30):
            pass


async def test_one_tenant_that_comes_again_is_not_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pamspec_common.turns.LINES", 3)
    places = Places(4, 3, 1)
    for number in range(10):
        async with places.place(f"tenant:{number}", 30):
            assert len(places._lines) <= 3, "idle lines are forgotten"
    alone = Places(4, 3, 1)
    for _ in range(2):
        async with alone.place("tenant:t", 30), alone.place("tenant:t", 30), alone.place("tenant:t", 30):
            pass
