"""Acceptance scenarios: files that tell steps and what each must lead to, and what runs them over a binding."""

from pamspec_conformance.scenarios.run import StepResult, run_scenario, shipped

__all__ = ["StepResult", "run_scenario", "shipped"]
