"""Grants as versioned records: granting, revoking, checking, and the uses that other services tell of (P207-P213).

Invariant: the row that is enforced and the version that is its record are written in one transaction, under the locks
of the scope in which the grant was made and of the one in which it works; both scopes' authorization epochs grow.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import structs

from pamspec_common.calls import Answer
from pamspec_common.delegation.attenuation import check_narrower, check_parties, check_window
from pamspec_common.delegation.grants import Chain, Grant, Party, Terms, remaining_uses
from pamspec_common.delegation.verdicts import denied, holds
from pamspec_common.documents import Actor
from pamspec_common.envelope import envelope_bytes
from pamspec_common.errors import InvalidStateTransition, ObjectNotFound, PolicyDenied, VersionConflict
from pamspec_common.instants import MICROSECOND, wire
from pamspec_common.strict_json import dumps
from pamspec_write.documents.decoding import plain
from pamspec_write.documents.delegations import (
    CheckDelegation,
    ExerciseDelegation,
    GrantDelegation,
    GrantTerms,
    RevokeDelegation,
    TellUses,
)
from pamspec_write.documents.parts import Provenance
from pamspec_write.model.facts import Document, Head, ScopeState, Tally
from pamspec_write.model.grants import chain_of, check_terms, exercise_facts, spend
from pamspec_write.model.making import Making, carried_provenance, following, statements_of
from pamspec_write.model.permission import permit
from pamspec_write.model.records import check_answer, positions
from pamspec_write.model.rows import GrantRow
from pamspec_write.model.versions import Draft, actor_ids, add_event, add_version, compose

DELEGATION = "delegation"
"""What stands for a grant where an object has its type."""
_MINUTE = len("2026-01-01T00:00")


def grant_delegation(making: Making) -> Answer:
    """A first version, delegation_granted, and the row by which it is enforced."""
    command, state = making.command, making.state
    request, asked = command.request, command.terms
    assert isinstance(request, GrantDelegation)
    assert asked is not None
    target = state if command.target_scope is None else making.states[command.target_scope.scope_key]
    above = () if command.grant is None else chain_of(making.states, command.grant)
    grant = _grant(making, asked, target)
    check_window(grant.terms)
    check_parties(above, grant.grantor, grant.delegate)
    if above:
        check_narrower(above, grant.grantor, grant.terms, grant.scope_id, grant.target_scope_id)
    for operation in asked.granted_operations:
        if command.authority is None or not holds(command.authority, operation):
            refused = denied("grantor_rights")
            refused.details["operation"] = operation
            raise refused
    draft = _draft(making, asked, grant, request)
    if request.validation_state != "unverified":
        making.permit(draft, "transition_validation")
    provenance = command.provenance or Provenance(activity="grant_delegation")
    making.account(draft, provenance)
    made = making.version(draft)
    state.grants[grant.delegation_id] = grant
    ancestors = [] if command.grant is None else [delegation_id for _, delegation_id in command.grant.chain]
    making.rows.grants.append(GrantRow(state.ref.tenant_id, grant, ancestors, wire(making.clock)))
    _moved(making, state, target)
    beside = {
        "remaining_uses": remaining_uses((*above, grant)),
        "redelegation_depth": grant.terms.redelegation_depth,
    }
    return making.finish(made, "delegation_granted", facts=_parties(grant), status=201, beside=beside)


def _grant(making: Making, asked: GrantTerms, target: ScopeState) -> Grant:
    """The grant that a request asks for."""
    command, ref = making.command, making.state.ref
    delegate = asked.delegated_actor
    return Grant(
        delegation_id=making.entropy.mint("dlg"),
        scope_key=ref.scope_key,
        scope_id=ref.scope_id,
        target_key=target.ref.scope_key,
        target_scope_id=target.ref.scope_id,
        grantor=Party(command.actor.actor_id, command.actor.actor_kind),
        principal_id=command.actor_id,
        delegate=Party(delegate.actor_id, delegate.actor_kind),
        terms=Terms(
            operations=frozenset(asked.granted_operations),
            not_before=asked.not_before,
            not_after=asked.not_after,
            object_types=None if asked.granted_object_types is None else frozenset(asked.granted_object_types),
            object_ids=None if asked.granted_object_ids is None else frozenset(asked.granted_object_ids),
            usage_limit=asked.usage_limit,
            redelegation_depth=asked.redelegation_depth,
        ),
        revocable=asked.revocable,
    )


def _draft(making: Making, asked: GrantTerms, grant: Grant, request: GrantDelegation) -> Draft:
    command = making.command
    grantor = command.actor if asked.granting_actor is None else asked.granting_actor
    parties = {"granting_actor": grantor, "delegated_actor": asked.delegated_actor}
    extra: Document = {
        **{member: actor_ids(actor) for member, actor in parties.items()},
        "granted_operations": asked.granted_operations,
        # The schema requires one; what was said stands in the erasable half until it is erased (decisions 17).
        "policy_basis": "erased",
        "not_before": wire(grant.terms.not_before),
        "not_after": wire(grant.terms.not_after),
        "revocable": grant.revocable,
    }
    for member in ("granted_object_types", "granted_object_ids", "usage_limit"):
        value = getattr(asked, member)
        if value is not None:
            extra[member] = value
    if grant.target_key != grant.scope_key:
        extra["target_scope_id"] = grant.target_scope_id
    private: Document = {"policy_basis": request.policy_basis, **statements_of(command)}
    private |= {member: plain(actor) for member, actor in parties.items() if _is_personal(actor)}
    return Draft(
        object_id=grant.delegation_id,
        kind="d",
        object_type=DELEGATION,
        schema_id=None,
        states={
            "lifecycle_state": "active",
            "availability_state": "available",
            "retention_state": "retained",
            "validation_state": request.validation_state,
        },
        times={},
        content=None,
        projection=None,
        provenance={},
        private=private,
        extra=extra,
        previous=None,
        actor=command.actor,
        operation_hash=command.operation_hash,
    )


def _is_personal(actor: Actor) -> bool:
    return actor.display_name is not None or actor.attestation is not None


def revoke_delegation(making: Making) -> Answer:
    """The archived version, delegation_revoked; from here on nothing is done under it, nor under those below it."""
    command, state = making.command, making.state
    request, ref = command.request, command.about
    assert isinstance(request, RevokeDelegation)
    assert ref is not None
    chain = chain_of(making.states, ref)
    grant, head = chain[-1], state.heads.get(ref.delegation_id)
    if head is None:
        raise ObjectNotFound
    _check_revoker(making, chain, head)
    if request.expected_version_id not in (None, head.version_id):
        raise VersionConflict(
            details={"current_version_id": head.version_id, "expected_version_id": request.expected_version_id}
        )
    if grant.revoked:
        raise InvalidStateTransition(
            "The grant was revoked before; nothing is carried out under it.",
            details={"reason": "revoked", "lifecycle_state": head.lifecycle_state},
        )
    if not grant.revocable:
        raise PolicyDenied(
            "The grant was made irrevocable; it ends with its not_after.", details={"reason": "irrevocable"}
        )
    draft = following(head, command)
    draft.states["lifecycle_state"] = "archived"
    provenance = command.provenance or carried_provenance(head, "revoke_delegation")
    making.account(draft, provenance, request.policy_basis)
    making.permit(draft, command.operation)
    target = making.states[grant.target_key]
    untold = [key for key, tally in state.tallies.items() if key[0] == grant.delegation_id and tally.untold > 0]
    ahead = 1 + (len(untold) if target is state else 0)
    made = compose(state, draft, making.now, making.entropy, ahead)
    for _, operation in untold:
        _tell_rest(making, chain, operation)
    add_version(state, making.rows, made)
    state.grants[grant.delegation_id] = structs.replace(grant, revoked=True)
    making.rows.revocations.append((state.ref.scope_key, grant.delegation_id, wire(making.clock)))
    _moved(making, state, target)
    return making.finish(made, "delegation_revoked", facts=_parties(grant))


def _check_revoker(making: Making, chain: Chain, head: Head) -> None:
    """Raise AccessDenied for anybody but those from whom the grant comes, and administrators."""
    actor_id = making.command.actor.actor_id
    if all(grant.grantor.actor_id != actor_id for grant in chain):
        permit(making.command.rights, "administer", head.memory())


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
        _tell_rest(making, chain_of(making.states, ref), request.operation)
    return Answer(200, b"{}")


def _tell_rest(making: Making, chain: Chain, operation: str) -> None:
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


def _moved(making: Making, *states: ScopeState) -> None:
    """Whatever was decided on these scopes' authorization before is decided again."""
    keys = {state.ref.scope_key for state in states}
    making.rows.authorized |= keys
    making.rows.touched |= keys


def _parties(grant: Grant) -> Document:
    return {
        "delegation_id": grant.delegation_id,
        "granting_actor_id": grant.grantor.actor_id,
        "delegated_actor_id": grant.delegate.actor_id,
    }
