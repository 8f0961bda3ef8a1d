"""Budgets and turns by themselves: arithmetic over a clock that the test turns, and who goes next."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pamspec_common.quotas import Quotas, quotas_of
from pamspec_common.turns import Line, Turns
from pamspec_gateway.limits.budgets import Budget, seconds


def budget(per_s: int, burst: int) -> Budget:
    """A budget that is whole."""
    made = Budget("b")
    made.set_rate(per_s, burst)
    return made


@given(
    st.integers(1, 1000),
    st.integers(1, 50),
    st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 30)), min_size=1, max_size=80),
)
def test_over_any_time_no_more_than_rate_and_burst_but_for_the_last_request(
    per_s: int, burst: int, requests: list[tuple[float, int]]
) -> None:
    spent, now, taken = budget(per_s, burst), 100.0, []
    for gap, weight in requests:
        now += gap
        if spent.wait(now) <= 0:
            spent.charge(now, weight)
            taken.append((now, weight))
    for start in range(len(taken)):
        for end in range(start + 1, len(taken) + 1):
            window = taken[start:end]
            allowed = burst + per_s * (window[-1][0] - window[0][0]) + window[-1][1]
            assert sum(weight for _, weight in window) <= allowed + 1e-6


@given(st.integers(1, 500), st.integers(1, 50), st.integers(1, 1000))
def test_after_the_wait_there_is_room(per_s: int, burst: int, weight: int) -> None:
    spent = budget(per_s, burst)
    spent.charge(7.0, weight)
    wait = spent.wait(7.0)
    assert spent.wait(7.0 + seconds(wait)) <= 0
    if wait > 0.001:
        assert spent.wait(7.0 + wait * 0.99) > 0


def test_what_others_spent_counts_and_what_they_forgot_does_not() -> None:
    spent = budget(10, 10)
    spent.charge(0.0, 5)
    spent.unsent = 0.0
    spent.charge(0.0, 1)
    spent.learn(0.0, 0.9)
    assert spent.wait(0.0) == pytest.approx(0.1)
    spent.learn(0.0, 0.0)
    assert spent.wait(0.0) == pytest.approx(0.1)
    spent.set_rate(None, None)
    assert spent.wait(0.0) == 0


def test_quotas_over_defaults() -> None:
    defaults = quotas_of({"tenant": {"requests_per_s": 10, "objects": 5}, "principal": {"burst": 3}})
    merged = quotas_of({"tenant": {"objects": 7}, "principal": {"requests_per_s": 2}}).over(defaults)
    assert merged == quotas_of(
        {"tenant": {"requests_per_s": 10, "burst": 10, "objects": 7}, "principal": {"requests_per_s": 2, "burst": 2}}
    )
    assert Quotas().over(Quotas()) == Quotas()


async def test_lines_take_turns() -> None:
    turns, noisy, quiet = Turns(2, 2), Line(), Line()
    order: list[str] = []

    async def one(name: str, line: Line) -> None:
        if not turns.take(line):
            await turns.wait(line)
        order.append(name)

    assert turns.take(noisy)
    assert turns.take(noisy)
    tasks = [asyncio.ensure_future(one("noisy", noisy)) for _ in range(4)]
    tasks += [asyncio.ensure_future(one("quiet", quiet)) for _ in range(3)]
    await asyncio.sleep(0)
    for line in (noisy, noisy, noisy, quiet, noisy, quiet, noisy):
        turns.give_back(line)
        await asyncio.sleep(0)
    assert all(task.done() for task in tasks)
    assert all(one != following for one, following in pairwise(order[:6]))


async def test_a_waiter_that_leaves_gives_its_place_to_the_next() -> None:
    turns, line, other = Turns(1, 1), Line(), Line()
    assert turns.take(line)
    left = asyncio.ensure_future(turns.wait(line))
    next_one = asyncio.ensure_future(turns.wait(other))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    turns.give_back(line)
    await asyncio.wait_for(next_one, 30)
    late = asyncio.ensure_future(turns.wait(line))
    await asyncio.sleep(0)
    turns.give_back(other)
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    assert (line.busy, other.busy) == (0, 0)
    assert turns.take(line)


async def test_no_line_holds_more_than_its_share() -> None:
    turns, noisy, quiet = Turns(4, 3), Line(), Line()
    assert [turns.take(noisy) for _ in range(4)] == [True, True, True, False]
    waiting = asyncio.ensure_future(turns.wait(noisy))
    await asyncio.sleep(0)
    assert turns.take(quiet)
    turns.give_back(quiet)
    await asyncio.sleep(0)
    assert not waiting.done()
    turns.give_back(noisy)
    await asyncio.wait_for(waiting, 30)
