"""Grants as versioned records: granting and revoking (P207, P209, P212); their uses are in `uses`.

Invariant: the row that is enforced and the version that is its record are written in one transaction, under the locks
of the scope in which the grant was made and of the one in which it works; both scopes' authorization epochs grow.
"""

from __future__ import annotations

from msgspec import structs

from pamspec_common.calls import Answer
from pamspec_common.delegation.attenuation import check_narrower, check_parties, check_window
from pamspec_common.delegation.grants import Chain, Grant, Party, Terms, remaining_uses
from pamspec_common.delegation.verdicts import denied, holds
from pamspec_common.documents import Actor
from pamspec_common.errors import InvalidStateTransition, ObjectNotFound, PolicyDenied, VersionConflict
from pamspec_common.instants import wire
from pamspec_write.documents.decoding import plain
from pamspec_write.documents.delegations import GrantDelegation, GrantTerms, RevokeDelegation
from pamspec_write.documents.parts import Provenance
from pamspec_write.model.facts import Document, Head, ScopeState
from pamspec_write.model.grants import chain_of
from pamspec_write.model.making import Making, carried_provenance, following, statements_of
from pamspec_write.model.permission import permit
from pamspec_write.model.rows import GrantRow
from pamspec_write.model.uses import tell_rest
from pamspec_write.model.versions import Draft, actor_ids, add_version, compose

DELEGATION = "delegation"
"""What stands for a grant where an object has its type."""


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
        tell_rest(making, chain, operation)
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
