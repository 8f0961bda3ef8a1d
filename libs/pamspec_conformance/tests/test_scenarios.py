"""The acceptance scenario over HTTP: the shipped one, and the one that PAMSPEC_COLD_CHAIN names, where it does."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from pamspec_cli.own_service import OwnService
from pamspec_conformance import Facilities, HttpBinding, Outcome
from pamspec_conformance.scenarios import StepResult, run_scenario, shipped

GIVEN = os.environ.get("PAMSPEC_COLD_CHAIN")
SCENARIOS: dict[str, dict[str, Any]] = {"shipped": shipped()}
if GIVEN:
    SCENARIOS["given"] = json.loads(Path(GIVEN).read_text(encoding="utf-8"))


@pytest_asyncio.fixture
async def bindings(own: OwnService) -> AsyncIterator[tuple[HttpBinding, HttpBinding]]:
    async with HttpBinding(own.url, own.key) as binding, HttpBinding(own.url, own.stranger_key) as stranger:
        yield binding, stranger


def _report(results: list[StepResult]) -> str:
    return "\n".join(f"{one.number:3} {one.does:18} {one.outcome.value:9} {one.detail}" for one in results)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_every_step_passes_or_says_what_is_missing(name: str, bindings: tuple[HttpBinding, HttpBinding]) -> None:
    binding, stranger = bindings
    results = await run_scenario(SCENARIOS[name], binding, Facilities(stranger))
    print(_report(results))
    assert not [one for one in results if one.outcome is Outcome.FAILED], _report(results)
    passed = {one.does for one in results if one.outcome is Outcome.PASSED}
    assert passed >= {
        *("ingest_event", "read_version", "as_of_read"),
        *("runtime_propose", "host_decide", "store_host_result"),
    }, _report(results)
    for one in results:
        assert one.outcome is Outcome.PASSED or "assemble" in one.detail, one


@pytest.mark.parametrize(
    ("step", "member", "value"),
    [
        (0, "canonical_version", 14),
        (0, "scope", {"site": "F9", "crate": "C-01"}),
        (1, "new_versions", 1),
        (1, "ledger_effects", 2),
        (2, "outcome", "committed"),
        (3, "kelvin", 260.0),
        (3, "status", "historical"),
        (3, "calibration", "K-8"),
        (3, "unheard_of", True),
        (5, "supersedes", 12),
        (6, "version", 13),
        (10, "dispatch_state_changed_by_memory", True),
        (15, "label", "current"),
    ],
)
async def test_a_wrong_expectation_is_noticed(
    step: int, member: str, value: Any, bindings: tuple[HttpBinding, HttpBinding]
) -> None:
    """No step passes without having judged what it expects."""
    scenario = deepcopy(shipped())
    scenario["steps"][step]["expect"][member] = value
    results = await run_scenario(scenario, bindings[0])
    assert results[step].outcome is Outcome.FAILED, _report(results)
