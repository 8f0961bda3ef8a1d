"""Uses of grants: checks, exercises by services that read or deliver, and what tells of them (P208, P210-P213).

Invariant: a use is counted and told in the transaction of what it authorizes; without a limit one event a minute tells
of the uses of one operation, and no use is told twice or left untold.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import structs

from pamspec_common.calls import Answer
from pamspec_common.delegation.grants import Chain, remaining_uses
from pamspec_common.documents import Actor
from pamspec_common.envelope import envelope_bytes
from pamspec_common.errors import ObjectNotFound
from pamspec_common.instants import MICROSECOND, wire
from pamspec_common.strict_json import dumps
from pamspec_write.documents.delegations import CheckDelegation, ExerciseDelegation, TellUses
from pamspec_write.model.facts import ScopeState, Tally
from pamspec_write.model.grants import chain_of, check_terms, exercise_facts, spend
from pamspec_write.model.making import Making
from pamspec_write.model.records import check_answer, positions
from pamspec_write.model.versions import add_event

_MINUTE = len("2026-01-01T00:00")


def check_delegation(making: Making) -> Answer:
    """The grant, as a use of it unless the check says otherwise; AccessDenied by the first rule that is not kept."""
    command = making.command
    request, ref = command.request, command.about
    assert isinstance(request, CheckDelegation)
    assert ref is not None
    head = making.state.heads.get(ref.delegation_id)
    if head is None:
        raise ObjectNotFound
    _check_use(making)
    chain = chain_of(making.states, ref)
    if request.consume:
        chain = spend(making.states, making.rows.uses, ref)
        _tell(making, chain, request.operation, object_id=request.object_id)
    beside = dumps({"operation_id": command.operation_id, "remaining_uses": remaining_uses(chain)})
    body = check_answer(envelope_bytes(head.metadata, None, head.private), beside)
    if not request.consume:
        return Answer(200, body, positions(making.state, None))
    target = making.states[ref.target.scope_key]
    answer = Answer(200, body, positions(target, target.last_seq))
    making.remember(answer, ledger_seq=head.ledger_seq, beside=beside)
    return answer


def exercise_delegation(making: Making) -> Answer:
    """Uses by a service that reads or delivers; without a limit one event a minute tells of them."""
    command = making.command
    request, ref = command.request, command.about
    assert isinstance(request, ExerciseDelegation)
    assert ref is not None
    _check_use(making)
    chain = chain_of(making.states, ref)
    target = making.states[ref.target.scope_key]
    count: int | None = request.count
    if remaining_uses(chain) is not None:
        chain = spend(making.states, making.rows.uses, ref, request.count)
    else:
        count = _tallied(making, ref.delegation_id, request.operation, request.count)
    if count is not None:
        _tell(making, chain, request.operation, count, object_id=request.object_id)
    document = {
        "delegation_id": ref.delegation_id,
        "scope_id": ref.target.scope_id,
        "remaining_uses": remaining_uses(chain),
        "recorded": count is not None,
        "operation_id": command.operation_id,
    }
    answer = Answer(200, dumps(document), positions(target, None if count is None else target.last_seq))
    making.remember(answer)
    return answer


def _tallied(making: Making, delegation_id: str, operation: str, count: int) -> int | None:
    """How many uses the next event tells of; None while the last one is of this minute."""
    state, key = making.state, (delegation_id, operation)
    now, known = making.clock, state.tallies.get(key)
    if known is not None and _minute(known.told_at) >= _minute(now):
        state.tallies[key] = Tally(known.told_at, known.untold + count)
        told = None
    else:
        told = count + (0 if known is None else known.untold)
        state.tallies[key] = Tally(now, 0)
    making.rows.tallies[state.ref.scope_key, *key] = state.tallies[key]
    making.rows.touched.add(state.ref.scope_key)
    return told


def _minute(at: datetime) -> str:
    return wire(at)[:_MINUTE]


def _check_use(making: Making) -> None:
    """Raise AccessDenied for terms that the object itself breaks: its type is known only where it lies."""
    command = making.command
    use, ref, request = command.use, command.about, command.request
    assert use is not None
    assert ref is not None
    assert isinstance(request, CheckDelegation | ExerciseDelegation)
    if request.object_id is not None:
        found = _kind_and_type(making.states[ref.target.scope_key], request.object_id)
        known = request.object_type if found is None else found[1] if found[0] == "o" else None
        use = structs.replace(use, object_types=(known,))
    check_terms(chain_of(making.states, ref), use)


def _kind_and_type(state: ScopeState, object_id: str) -> tuple[str, str] | None:
    head = state.heads.get(object_id)
    if head is not None:
        return head.kind, head.object_type
    other = state.others.get(object_id)
    return None if other is None else (other[0], other[1]["object_type"])


def tell_uses(making: Making) -> Answer:
    """The job: the uses of a minute that is over, which no event has told of."""
    request, ref = making.command.request, making.command.about
    assert isinstance(request, TellUses)
    assert ref is not None
    tally = making.state.tallies.get((ref.delegation_id, request.operation))
    if tally is not None and tally.untold > 0 and _minute(tally.told_at) < _minute(making.clock):
        tell_rest(making, chain_of(making.states, ref), request.operation)
    return Answer(200, b"{}")


def tell_rest(making: Making, chain: Chain, operation: str) -> None:
    """Tell of the uses that no event has told of; the tally is then empty."""
    state, key = making.state, (chain[-1].delegation_id, operation)
    _tell(making, chain, operation, state.tallies[key].untold)
    state.tallies[key] = making.rows.tallies[state.ref.scope_key, *key] = Tally(making.clock, 0)
    making.rows.touched.add(state.ref.scope_key)


def _tell(making: Making, chain: Chain, operation: str, count: int = 1, object_id: str | None = None) -> None:
    """Add delegation_exercised to the ledger of the scope acted on, by the delegate."""
    command, last = making.command, chain[-1]
    target = making.states[last.target_key]
    facts = making.payload(exercise_facts(chain, operation))
    if count > 1:
        facts["count"] = count
    found = None if object_id is None else _kind_and_type(target, object_id)
    subject = object_id if found is not None and found[0] == "o" else None
    at = target.last_at if target is making.state else max(making.clock, target.last_at + MICROSECOND)
    add_event(
        target,
        making.rows,
        "delegation_exercised",
        actor=Actor(last.delegate.actor_id, last.delegate.actor_kind, delegation_id=last.delegation_id),
        operation_id=command.operation_id,
        payload=facts,
        now=making.now if target is making.state else wire(at),
        event_id=making.entropy.mint("evt"),
        object_id=subject,
        subject_id=None if subject is not None else last.delegation_id,
    )
    target.last_at = at
