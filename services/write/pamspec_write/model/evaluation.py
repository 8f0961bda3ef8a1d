"""Operations of an evaluation run: where they may write, at which time, and what they draw (PAMSPEC P228, P229, P232).

Invariant: in an evaluation scope an operation of a run happens at the first tick of the run's clock after the scope's
last entry, so its time follows from the clock and the ledger alone, and the ledger's times never fall. What is drawn
from the seed is ids, never salts: a salt that can be computed again would let an erased value be guessed back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count

from pamspec_common import ids
from pamspec_common.errors import InvalidStateTransition, PolicyDenied
from pamspec_common.instants import MICROSECOND
from pamspec_write.documents.snapshots import EARLIEST
from pamspec_write.model.commands import Command
from pamspec_write.model.facts import Run, ScopeState
from pamspec_write.model.versions import Entropy

EVALUATION = "evaluation"
"""The kind of scope that is made for evaluations."""

_TELLING = frozenset({"record_event", "seal_snapshot", "check_delegation", "exercise_delegation"})
"""Operations that tell what happened or what is, and change no state."""
_TENANT_WIDE = frozenset({"snap", "dlg", "sub"})
"""Ids that must be unique in the tenant, where two runs with one seed would mint the same."""
_UNIX_MS = timedelta(milliseconds=1)


def moment(state: ScopeState, command: Command, at: datetime, entropy: Entropy) -> tuple[datetime, Entropy]:
    """When an operation of a run, or in an evaluation scope, happens, and what it draws from.

    `at` is PostgreSQL's clock.

    PolicyDenied for a run that would change another scope than one for evaluations.
    """
    run_id = command.request.evaluation_run_id
    if run_id is not None and not state.ref.evaluation:
        _check_permitted(state, command.operation, run_id)
    later = max(at, state.last_at + MICROSECOND)
    if not state.ref.evaluation:
        return later, entropy
    if run_id is None:
        watching = command.operation == "record_event"
        return (state.last_at + MICROSECOND if watching else later), entropy
    run = None if state.evaluations is None else state.evaluations.runs.get(run_id)
    if run is None:
        return later, entropy
    time = later if run.start_at is None else next_tick(run, run.start_at, state.last_at)
    if run.seed is None:
        return time, entropy
    ms = 0 if run.start_at is None else (time - EARLIEST) // _UNIX_MS
    return time, Entropy(mint=_drawn(run, state.last_seq, ms, entropy), salt=entropy.salt)


def next_tick(run: Run, start: datetime, last_at: datetime) -> datetime:
    """The first tick of a run's clock after the scope's last entry; the clock starts at `start`."""
    if last_at < start:
        return start
    try:
        return start + ((last_at - start) // run.tick + 1) * run.tick
    except OverflowError:
        raise InvalidStateTransition(
            "The run's clock has reached the end of the year 9999; seal a snapshot for another run."
        ) from None


def _check_permitted(state: ScopeState, operation: str, run_id: str) -> None:
    if operation in _TELLING or state.policy.permits_run(run_id):
        return
    raise PolicyDenied(
        "An evaluation run writes to scopes of the kind evaluation alone; write to one, or list the run in this"
        " scope's policy (evaluation_runs).",
        details={"evaluation_run_id": run_id, "reason": "outside_evaluation"},
        policy_rule_id=state.rules.rule("evaluation_runs"),
    )


def _drawn(run: Run, position: int, ms: int, entropy: Entropy) -> Callable[[str], str]:
    """Ids of one operation: the seed, the run, the scope's position and the number of the draw decide them."""
    numbers = count()
    prefix = f"pamspec-seed-1\0{run.seed}\0{run.evaluation_run_id}\0{position}\0"

    def mint(scheme: str) -> str:
        if scheme in _TENANT_WIDE:
            return str(entropy.mint(scheme))
        digest = hashlib.sha256(f"{prefix}{scheme}\0{next(numbers)}".encode()).hexdigest()
        return f"{scheme}:{ids.uuid7_of(ms, digest)}"

    return mint
