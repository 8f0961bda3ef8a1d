"""Random operation sequences against the reference model, over real write and query processes, with crashes between."""

import asyncio
import os

import aiohttp
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.integration.harness import Fleet
from tests.integration.scope_machine import ScopeMachine
from tests.integration.stateful_service import Service

CARRIED_OUT = {"create", "update", "transition", "delete", "redact", "relate", "promote", "batch", "read", "query"}
REFUSED = {
    *("object_not_found", "object_deleted", "object_redacted", "version_conflict", "duplicate_operation"),
    *("invalid_state_transition", "legal_hold"),
}
"""Operations and refusals without which the histories were too tame to prove anything."""
EXAMPLES = int(os.environ.get("PAMSPEC_STATEFUL_EXAMPLES", "0"))
"""How many random histories a longer run tries; without it a few that are always the same, in less than a minute."""


@pytest.mark.timeout(max(180, EXAMPLES * 30))
async def test_the_service_agrees_with_the_model(fleet: Fleet) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        service = Service(fleet, session, asyncio.get_running_loop())
        machine = type("Machine", (ScopeMachine,), {"service": service})
        chosen = settings(
            max_examples=EXAMPLES or 10,
            stateful_step_count=60,
            deadline=None,
            derandomize=not EXAMPLES,
            # Shrinking a failure repeats its crashes many times: that is for the longer run.
            phases=list(Phase) if EXAMPLES else [Phase.generate],
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        )
        await asyncio.to_thread(run_state_machine_as_test, machine, settings=chosen)
    seen = [outcome.split() for outcome in service.outcomes]
    assert {operation for operation, *code in seen if code == ["ok"]} >= CARRIED_OUT, service.outcomes
    assert {words[-1] for words in seen} >= REFUSED, service.outcomes
    assert any(words[0] == "crash" for words in seen), service.outcomes
    print(sorted(service.outcomes.items()))
