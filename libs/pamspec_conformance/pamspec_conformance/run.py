"""Runs cases: a few at a time, each in scopes of its own, each with a time limit, in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pamspec_conformance.binding import Binding, Facilities
from pamspec_conformance.case import Case, Deviation, NotTried, NotYet
from pamspec_conformance.trial import Trial

CASE_SECONDS = 60.0
AT_ONCE = 8


class Outcome(StrEnum):
    """What became of a case. Only `passed` counts for a profile."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_YET = "not yet"
    """The implementation says that it does not offer the operation."""
    NOT_TRIED = "not tried"
    """The run had no means to try it."""


@dataclass(frozen=True)
class Result:
    """A case and its outcome; `detail` says what was seen where it did not pass."""

    case: Case
    outcome: Outcome
    detail: str = ""


async def run_cases(
    cases: Sequence[Case],
    binding: Binding,
    facilities: Facilities | None = None,
    *,
    at_once: int = AT_ONCE,
    done: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """One result for each case, in their order; `done` hears of each as it ends.

    Cases that restart the implementation run after all others, one by one.
    """
    given = facilities or Facilities()
    places = asyncio.Semaphore(at_once)

    async def one(case: Case) -> Result:
        async with places:
            result = await _tried(case, binding, given)
        done(result)
        return result

    calm = [case for case in cases if "restart" not in case.needs]
    results = {result.case.name: result for result in await asyncio.gather(*map(one, calm))}
    for case in cases:
        if "restart" in case.needs:
            results[case.name] = await one(case)
    return [results[case.name] for case in cases]


async def _tried(case: Case, binding: Binding, facilities: Facilities) -> Result:
    for name in sorted(case.needs):
        if getattr(facilities, name) is None:
            return Result(case, Outcome.NOT_TRIED, f"this run has no means: {name}")
    try:
        async with asyncio.timeout(CASE_SECONDS):
            await case.steps(Trial(case, binding, facilities))
    except NotYet as missing:
        return Result(case, Outcome.NOT_YET, str(missing))
    except NotTried as missing:
        return Result(case, Outcome.NOT_TRIED, str(missing))
    except Deviation as deviation:
        return Result(case, Outcome.FAILED, str(deviation))
    except Exception as error:
        # What a case did not foresee is the implementation's fault as far as the report can tell.
        return Result(case, Outcome.FAILED, f"{type(error).__name__}: {error}")
    return Result(case, Outcome.PASSED)
