"""Sealing a snapshot: a descriptor that fixes the scope's position and the objects that belong to it (PAMSPEC P226).

Invariant: a snapshot changes no state, so it makes no ledger entry (none of the 22 event types tells of one); its
digest commits to the chain up to its position instead. It is never changed: the same id again is refused (P227).
"""

from __future__ import annotations

from datetime import timedelta

from pamspec_common import snapshots
from pamspec_common.calls import Answer
from pamspec_common.errors import DuplicateOperation, InvalidStateTransition, ObjectNotFound
from pamspec_common.instants import parse, wire
from pamspec_common.strict_json import dumps
from pamspec_write.documents.snapshots import SealSnapshot
from pamspec_write.model.facts import Document, Evaluations, Run, ScopeState
from pamspec_write.model.making import Making
from pamspec_write.model.permission import sees
from pamspec_write.model.records import positions

DEFAULT_TICK_MS = 1
_NAMED = 100


def seal_snapshot(making: Making) -> Answer:
    """P226: everything of the scope at its head, or the objects and relationships that the request names."""
    state, command = making.state, making.command
    request = command.request
    assert isinstance(request, SealSnapshot)
    known = state.evaluations or Evaluations()
    snapshot_id = request.snapshot_id or making.entropy.mint("snap")
    _check_free(state, known, snapshot_id)
    members = None if request.included_object_ids is None else sorted(set(request.included_object_ids))
    _check_members(making, known, members or [])
    descriptor: Document = {
        "snapshot_id": snapshot_id,
        "scope_id": state.ref.scope_id,
        "sealed": True,
        "created_at": making.now,
        "created_by_actor_id": command.actor.actor_id,
        "ledger_sequence_high_watermark": state.last_seq,
        **_described(request, members),
    }
    document = snapshots.sealed(descriptor, state.last_hash)
    gives_clock = _give_run(known, document)
    known.snapshots[snapshot_id] = state.ref.scope_key
    making.rows.touched.add(state.ref.scope_key)
    making.rows.snapshots.append(
        (
            state.ref.scope_key,
            snapshot_id,
            state.ref.tenant_id,
            request.evaluation_run_id,
            gives_clock,
            state.ledger_epoch,
            state.last_seq,
            dumps(document),
            parse(making.now),
        )
    )
    body = {"snapshot": document, "ledger_epoch": state.ledger_epoch, "operation_id": command.operation_id}
    answer = Answer(201, dumps(body), positions(state, None))
    making.remember(answer)
    return answer


def _give_run(known: Evaluations, document: Document) -> bool:
    """Whether the snapshot gives its run a clock or a seed; DuplicateOperation when the run has them already."""
    run_id = document.get("evaluation_run_id")
    if run_id is None or not {"deterministic_clock", "deterministic_rng_seed"} & document.keys():
        return False
    if run_id in known.runs:
        raise DuplicateOperation(
            "This run has its clock and seed from an earlier snapshot; leave both out, or name another run.",
            details={"field": "evaluation_run_id", "reason": "evaluation_run"},
        )
    known.runs[run_id] = run_of(document)
    return True


def run_of(descriptor: Document) -> Run:
    """The clock and the seed that a snapshot gives to its run."""
    clock = descriptor.get("deterministic_clock")
    return Run(
        evaluation_run_id=descriptor["evaluation_run_id"],
        start_at=None if clock is None else parse(clock["start_at"]),
        tick=timedelta(milliseconds=DEFAULT_TICK_MS if clock is None else clock.get("tick_ms", DEFAULT_TICK_MS)),
        seed=descriptor.get("deterministic_rng_seed"),
    )


def _described(request: SealSnapshot, members: list[str] | None) -> Document:
    """What the request itself says of the snapshot; what it leaves out stays out."""
    clock = request.deterministic_clock
    described: Document = {
        "included_object_ids": members,
        "included_embedding_space_ids": request.included_embedding_space_ids,
        "deterministic_rng_seed": request.deterministic_rng_seed,
        "evaluation_run_id": request.evaluation_run_id,
    }
    if clock is not None:
        told = {"clock_ref": clock.clock_ref, "start_at": wire(clock.start_at), "tick_ms": clock.tick_ms}
        described["deterministic_clock"] = {name: value for name, value in told.items() if value is not None}
    return {name: value for name, value in described.items() if value is not None}


def _check_free(state: ScopeState, known: Evaluations, snapshot_id: str) -> None:
    """Raise for an id that was sealed already: here it would change the snapshot, elsewhere it is taken."""
    holder = known.snapshots.get(snapshot_id)
    if holder is None:
        return
    if holder == state.ref.scope_key:
        raise InvalidStateTransition(
            "The snapshot is sealed and never changes; seal another one under a new snapshot_id.",
            details={"snapshot_id": snapshot_id, "reason": "snapshot_sealed"},
        )
    raise DuplicateOperation("That snapshot_id is taken; seal under another one.", details={"snapshot_id": snapshot_id})


def _check_members(making: Making, known: Evaluations, members: list[str]) -> None:
    """Raise ObjectNotFound naming ids that the actor does not see in this scope, for whatever reason (S15)."""
    state, rights = making.state, making.command.rights

    def visible(name: str) -> bool:
        head = state.heads.get(name)
        memory = known.members.get((state.ref.scope_key, name)) if head is None else head.memory()
        return memory is not None and sees(rights, memory)

    missing = [name for name in members if not visible(name)]
    if missing:
        raise ObjectNotFound(
            "Not all of included_object_ids are visible in this scope; name only what is.",
            details={"field": "included_object_ids", "object_ids": missing[:_NAMED]},
        )
