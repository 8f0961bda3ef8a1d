"""The shared deployment of the fault tests, what must hold after each of them, and logs where one fails."""

from collections.abc import AsyncIterator, Generator

import pytest
import pytest_asyncio

from tests.integration.checks import whole
from tests.integration.harness import SECOND_DOOR, Fleet, deployed, start_all

SCALED = {
    "PAMSPEC_LOG_LEVEL": "INFO",
    "PAMSPEC_PARTITIONS": "2",
    "PAMSPEC_RELAY_LEASE_MS": "1500",
    "PAMSPEC_RELAY_ALERT_AGE_S": "1",
    "PAMSPEC_CHANNEL_STALL_S": "3",
    "PAMSPEC_LEASE_S": "3",
    "PAMSPEC_UPKEEP_INTERVAL_S": "2",
    "PAMSPEC_DRAIN_S": "5",
    "PAMSPEC_DENIAL_WINDOW_S": "1",
}
"""Durations of the product, scaled down, and the ledger spread over two streams."""

fleets: list[Fleet] = []
"""Those that run now, for the logs of a failure."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_fleet() -> AsyncIterator[Fleet]:
    """One process of each service and a second door, with scaled durations, for tests that leave it as they found it.

    The second door is a gateway in front of a second write process.
    """
    async with deployed(SCALED) as fleet:
        fleets.append(fleet)
        write = fleet.add("write", "write-2")
        await start_all([write, fleet.add("gateway", SECOND_DOOR, {"PAMSPEC_WRITE_URL": write.url})])
        yield fleet
        fleets.remove(fleet)
        await whole(fleet)


@pytest_asyncio.fixture(loop_scope="session")
async def fleet(shared_fleet: Fleet) -> AsyncIterator[Fleet]:
    """The shared deployment, well before the test; whatever a failed test left is put right after it.

    No fault makes a process log a traceback: each is foreseen.
    """
    await shared_fleet.ready()
    yield shared_fleet
    await shared_fleet.recover()
    assert not shared_fleet.surprises()


@pytest_asyncio.fixture(loop_scope="session")
async def plain_fleet() -> AsyncIterator[Fleet]:
    """A deployment of this test alone, with the durations as shipped."""
    async with deployed({"PAMSPEC_LOG_LEVEL": "INFO"}) as fleet:
        fleets.append(fleet)
        yield fleet
        fleets.remove(fleet)
        assert not fleet.surprises()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for fleet in fleets:
            report.sections += [(f"log of {label}", text) for label, text in fleet.logs().items()]
    return report
