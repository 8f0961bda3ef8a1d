"""Runs a scenario step by step; a step that fails does not hide what the later ones would show."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pamspec_conformance.binding import Binding, Facilities
from pamspec_conformance.case import Case, Deviation, NotYet
from pamspec_conformance.run import Outcome
from pamspec_conformance.scenarios.steps import STEPS
from pamspec_conformance.scenarios.world import World
from pamspec_conformance.trial import Trial


@dataclass(frozen=True)
class StepResult:
    """A step and its outcome."""

    number: str
    does: str
    outcome: Outcome
    detail: str = ""


def shipped() -> dict[str, Any]:
    """The scenario that comes with this package."""
    text = importlib.resources.files(__package__).joinpath("correction.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


async def run_scenario(
    scenario: Mapping[str, Any], binding: Binding, facilities: Facilities | None = None
) -> list[StepResult]:
    """A result for each step, in order."""
    case = Case("scenario", "CORE", (), str(scenario["scenario"]), _nothing)
    world = await World.begin(Trial(case, binding, facilities or Facilities()), scenario["fixture"])
    return [await _step(world, step) for step in scenario["steps"]]


async def _nothing(trial: Trial) -> None:
    """A scenario has no steps of a case."""


async def _step(world: World, step: Mapping[str, Any]) -> StepResult:
    number, does = str(step["n"]), str(step["do"])
    due = dict(step["expect"])
    runner = STEPS.get(does)
    if runner is None:
        return StepResult(number, does, Outcome.FAILED, "this runner knows no such step")
    try:
        await runner(world, step, due)
    except NotYet as missing:
        return StepResult(number, does, Outcome.NOT_YET, str(missing))
    except Deviation as deviation:
        return StepResult(number, does, Outcome.FAILED, str(deviation))
    except (KeyError, TypeError, IndexError, StopIteration) as error:
        return StepResult(number, does, Outcome.FAILED, f"{type(error).__name__}: {error}")
    if due:
        return StepResult(number, does, Outcome.FAILED, f"nothing judged {', '.join(due)}")
    return StepResult(number, does, Outcome.PASSED)
