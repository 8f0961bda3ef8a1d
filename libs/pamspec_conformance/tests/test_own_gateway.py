"""The product under the conformance cases, as `make test` sees it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pamspec_cli.own_service import OwnService
from pamspec_conformance import PROFILES, Facilities, HttpBinding, Outcome, Report, Statement, cases, run_cases

COMPLETE = {profile.name for profile in PROFILES}
"""What may never be lost again."""
KNOWN: Mapping[str, str] = {}
"""Deviations that are known, and why."""


@pytest.mark.timeout(900)
async def test_the_product_conforms(own: OwnService) -> None:
    async with HttpBinding(own.url, own.key) as binding, HttpBinding(own.url, own.stranger_key) as stranger:
        results = await run_cases(cases(), binding, Facilities(stranger, own.restart, binding))
    failed = {result.case.name: result.detail for result in results if result.outcome is Outcome.FAILED}
    assert failed.keys() <= KNOWN.keys(), failed
    assert not [result for result in results if result.outcome is Outcome.NOT_TRIED]
    report = Report(results, Statement(), own.url, "")
    assert len(report.profiles) == len(PROFILES) == 11
    assert all(entry.results for entry in report.profiles)
    assert set(report.complete) >= COMPLETE
    for entry in report.profiles:
        passed = entry.count(Outcome.PASSED) == len(entry.results)
        assert entry.standing != "complete" or passed
