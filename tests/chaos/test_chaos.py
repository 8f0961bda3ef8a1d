"""A short run of the fault suite; `make chaos` runs longer ones, with other seeds."""

from __future__ import annotations

import pytest

from tests.chaos.run import chaos

SECONDS, SEED = 12.0, 7


@pytest.mark.timeout(420)
async def test_no_fault_makes_the_service_break_a_promise() -> None:
    report = await chaos(SECONDS, SEED)
    assert report.violations == [], "\n".join(report.lines())
    assert report.acknowledged > 0
    assert report.delivered >= report.acknowledged
    assert sum(report.happened.values()) > 0
