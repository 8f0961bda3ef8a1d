"""Admission of grants, revocations, checks and the uses that services tell of."""

from __future__ import annotations

from typing import Any

import msgspec

from pamspec_common.delegation.grants import Chain, is_party
from pamspec_common.documents import Actor
from pamspec_common.errors import AccessDenied, InvalidObject, InvalidRequest
from pamspec_common.policy import authorize
from pamspec_common.principal import Principal
from pamspec_write.documents.decoding import decode, plain
from pamspec_write.documents.delegations import (
    CheckDelegation,
    ExerciseDelegation,
    GrantDelegation,
    GrantTerms,
    OfGrant,
    RevokeDelegation,
    is_type,
)
from pamspec_write.documents.parts import Provenance
from pamspec_write.handlers.access import Access, own_actor
from pamspec_write.handlers.admission.acting import actor_of, new_command, no_such_grant
from pamspec_write.handlers.admission.parts import set_provenance
from pamspec_write.model.commands import Command
from pamspec_write.model.grants import GrantRef, asked_use


def fill_grant(command: Command, request: GrantDelegation, document: dict[str, Any]) -> None:
    """The terms, each refused as a part of the delegation that it would stand in."""
    names = [name for name in GrantTerms.__struct_fields__ if getattr(request, name) is not msgspec.UNSET]
    terms = decode(GrantTerms, msgspec.json.encode({name: getattr(request, name) for name in names}), InvalidObject)
    grantor = terms.granting_actor
    if grantor is not None and (grantor.actor_id, grantor.actor_kind) != (
        command.actor.actor_id,
        command.actor.actor_kind,
    ):
        raise AccessDenied(
            "granting_actor is not the actor of the operation; leave it out, or act as that actor.",
            details={"field": "granting_actor"},
        )
    command.terms = terms
    command.kind = "d"
    if terms.integrity is not None:
        command.integrity = plain(terms.integrity)


async def admit_of_grant(
    operation: str, request: OfGrant, document: dict[str, Any], principal: Principal, access: Access
) -> Command:
    """A command about a grant; ObjectNotFound where it is missing or none of the caller's business."""
    authorize(principal, operation, principal.tenant_id)
    found = await access.grant(principal, request.delegation_id, principal.actor_id)
    if isinstance(request, RevokeDelegation):
        return await _revocation(request, document, principal, access, found)
    assert isinstance(request, CheckDelegation | ExerciseDelegation)
    return await _check(operation, request, document, principal, access, found)


async def _revocation(
    request: RevokeDelegation,
    document: dict[str, Any],
    principal: Principal,
    access: Access,
    found: tuple[GrantRef, Chain] | None,
) -> Command:
    actor, authenticated_as = actor_of(principal, request, document)
    home = None if found is None else found[0].home
    rights = await access.rights(principal, actor, home)
    known = found is not None and (is_party(found[1], actor.actor_id) or not rights.decision("administer").never)
    if found is None or home is None or not known or request.scope_id not in (None, home.scope_id):
        raise no_such_grant()
    rights = await access.permitted("revoke_delegation", principal, actor, home)
    command = new_command(
        "revoke_delegation", request, document, principal, home, actor, authenticated_as, rights, named=_named(request)
    )
    command.about, command.object_id, command.kind = found[0], request.delegation_id, "d"
    if request.provenance is not msgspec.UNSET:
        set_provenance(command, decode(Provenance, request.provenance, InvalidObject, "provenance"))
    return command


async def _check(
    operation: str,
    request: CheckDelegation | ExerciseDelegation,
    document: dict[str, Any],
    principal: Principal,
    access: Access,
    found: tuple[GrantRef, Chain] | None,
) -> Command:
    """The actor of a check is whom it is about, and who stands in the ledger as the one who used the grant."""
    if request.object_type is not None and not is_type(request.object_type):
        raise InvalidRequest(
            "object_type is neither a standard type nor a reverse-domain name or URI.", details={"field": "object_type"}
        )
    caller = own_actor(principal)
    asked = caller if request.actor is msgspec.UNSET else decode(Actor, request.actor, InvalidRequest, "actor")
    if isinstance(request, ExerciseDelegation):
        if request.actor is msgspec.UNSET:
            raise InvalidRequest("Say who uses the grant; send actor.", details={"field": "actor"})
        known = True
    else:
        rights = await access.rights(principal, caller, None if found is None else found[0].home)
        own = found is not None and is_party(found[1], principal.actor_id)
        known = own or not rights.decision("check_delegation").never
    if found is None or not known:
        raise no_such_grant()
    ref = found[0]
    actor = Actor(asked.actor_id, asked.actor_kind, delegation_id=ref.delegation_id)
    authenticated_as = None if asked.actor_id == principal.actor_id else principal.actor_id
    command = new_command(
        operation, request, document, principal, ref.home, actor, authenticated_as, None, named=_named(request)
    )
    command.about, command.kind = ref, "d"
    command.use = asked_use(request, actor, ref)
    if isinstance(request, CheckDelegation):
        command.object_id = ref.delegation_id
    if request.object_id is not None:
        command.others = ((ref.target, request.object_id),)
    return command


def _named(request: OfGrant) -> bool:
    return request.operation_id is not None or request.idempotency_key is not None
