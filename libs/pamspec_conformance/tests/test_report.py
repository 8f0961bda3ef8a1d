"""The report claims no more than was seen, and the catalogue covers what the profiles require."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from pamspec_conformance import PROFILES, Outcome, Report, Result, Statement, cases
from pamspec_conformance.binding import Reply, refusal_of
from pamspec_conformance.case import CaseList
from pamspec_conformance.run import run_cases
from pamspec_conformance.shapes import error_faults
from pamspec_conformance.trial import Trial

CASES = cases()


def _report(**outcomes: Outcome) -> Report:
    """All cases passed, except that one case of each of these profiles ended otherwise."""
    results, left = [], {name.replace("_", "-"): outcome for name, outcome in outcomes.items()}
    for case in CASES:
        results.append(Result(case, left.pop(case.profile, Outcome.PASSED), "seen"))
    return Report(results, Statement("x", "1"), "http://gateway", "2026-01-01T00:00:00+00:00")


def test_names_are_unique_and_every_case_says_what_it_promises() -> None:
    assert len({case.name for case in CASES}) == len(CASES) > 150
    for case in CASES:
        assert re.fullmatch(r"[a-z_]+\.[a-z_0-9]+", case.name)
        assert case.promise.endswith("."), case.name
        assert case.covers, case.name
        for number in case.covers:
            assert re.fullmatch(r"P([1-9]\d{0,2})", number), (case.name, number)
            assert int(number[1:]) <= 232


def test_each_profile_has_cases_for_its_requirements() -> None:
    covered = {number for case in CASES for number in case.covers}
    # P206 is advice to declare more than LITE; the report itself is P2 to P5.
    assert {f"P{number}" for number in range(197, 233)} - covered == set()
    assert {case.profile for case in CASES} == {profile.name for profile in PROFILES}


def test_a_profile_is_complete_only_when_every_case_passed() -> None:
    whole = _report()
    assert len(whole.complete) == 11
    assert not whole.failed
    for outcome, standing in (
        (Outcome.FAILED, "failed"),
        (Outcome.NOT_YET, "partial"),
        (Outcome.NOT_TRIED, "partial"),
    ):
        report = _report(VERSIONING=outcome)
        found = {entry.profile.name: entry.standing for entry in report.profiles}
        assert found.pop("VERSIONING") == standing
        assert set(found.values()) == {"complete"}
        assert report.failed is (outcome is Outcome.FAILED)


def test_no_profile_is_complete_on_a_foundation_that_is_not() -> None:
    assert set(_report(LITE=Outcome.NOT_YET).complete).isdisjoint({"LITE", "DELEGATION", "SUBSCRIBE"})


def test_a_profile_without_results_is_not_run() -> None:
    report = Report([Result(CASES[0], Outcome.PASSED)], Statement(), "", "")
    assert [entry.standing for entry in report.profiles][1:] == ["not run"] * 10


def test_the_report_has_what_p4_and_p5_ask_for() -> None:
    statement = Statement.of({"name": "n", "version": "v", "storage": "rows", "known_deviations": ["one"]})
    results = [Result(case, Outcome.PASSED) for case in CASES]
    results[0] = replace(results[0], outcome=Outcome.FAILED, detail="it | did\nnot")
    report = Report(results, statement, "http://gateway", "now")
    document: dict[str, Any] = json.loads(report.json())
    assert [profile["version"] for profile in document["profiles"]] == ["0.1.0-draft"] * 11
    assert (document["storage"], document["deletion"]) == ("rows", "not stated")
    assert document["test_results"] == {"passed": len(CASES) - 1, "failed": 1, "not yet": 0, "not tried": 0}
    assert document["known_deviations"] == ["one", f"{CASES[0].name}: it | did\nnot"]
    text = report.markdown()
    for heading in (
        "Storage choices",
        "Authorization model",
        "Index behaviour",
        "Export behaviour",
        "Known deviations",
    ):
        assert f"## {heading}" in text
    assert f"| `{CASES[0].name}`" in text
    assert "it \\| did not |" in text


def test_a_statement_with_a_foreign_member_is_refused() -> None:
    with pytest.raises(ValueError, match="colour"):
        Statement.of({"colour": "blue"})


class Scripted:
    """A binding that answers what it is told."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    async def call(self, operation: str, document: Any, *, idempotency_key: str | None = None) -> Reply:
        return self.reply

    async def aclose(self) -> None:
        pass


async def test_another_binding_can_be_driven_and_says_itself_what_it_lacks() -> None:
    made = CaseList("CORE")

    @made.case("P1")
    async def waits_for_a_refusal(t: Trial) -> None:
        """It is refused."""
        await t.refused("invalid_request", "relate", scope_id="workspace:x")

    refusal = {"code": "invalid_request", "message": "m", "retryable": False, "operation_id": "op:1", "details": {}}
    error = {"error": refusal}
    plain = Reply(b"", error, refusal_of(error))
    assert error_faults(error) == []
    for reply, outcome in ((plain, Outcome.PASSED), (replace(plain, not_offered=True), Outcome.NOT_YET)):
        (result,) = await run_cases(made.cases, Scripted(reply))
        assert result.outcome is outcome


async def test_a_case_without_its_facility_is_not_tried() -> None:
    wanted = [case for case in CASES if case.needs]
    assert {need for case in wanted for need in case.needs} == {"restart", "stranger", "http"}
    results = await run_cases(wanted, Scripted(Reply(b"", {})))
    assert {result.outcome for result in results} == {Outcome.NOT_TRIED}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"code": "teapot"}, "none of the 19"),
        ({"retryable": True}, "retryable"),
        ({"extra": 1}, "must not"),
        ({"details": None}, "details"),
    ],
)
def test_error_envelopes_are_closed(change: dict[str, Any], fault: str) -> None:
    error = {"code": "invalid_request", "message": "m", "retryable": False, "operation_id": "op:1", "details": {}}
    assert fault in error_faults({"error": {**error, **change}})[0]
