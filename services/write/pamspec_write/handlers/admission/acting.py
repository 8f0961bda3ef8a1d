"""Who acts, under which grant, and the command that comes of it before anything particular to its operation."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from pamspec_common import ids, strict_json
from pamspec_common.authorization.rights import Rights
from pamspec_common.delegation.grants import Chain, is_party
from pamspec_common.delegation.verdicts import Use
from pamspec_common.documents import RETRY_FIELDS, Actor
from pamspec_common.errors import AccessDenied, InvalidRequest, ObjectNotFound, PolicyDenied, ScopeNotFound
from pamspec_common.instants import parse as parse_instant
from pamspec_common.policy import acting_actor, needs_role
from pamspec_common.principal import RIGHT_SERVICE, Principal
from pamspec_write.documents import Request
from pamspec_write.documents.administration import Administrative, SetQuotas
from pamspec_write.documents.decoding import decode
from pamspec_write.documents.delegations import OfGrant
from pamspec_write.documents.parts import Common
from pamspec_write.handlers.access import Access
from pamspec_write.model.commands import Command, key_hash, operation_hash
from pamspec_write.model.facts import ScopeRef
from pamspec_write.model.grants import GrantRef, check_terms, use_of

Acting = tuple[GrantRef, Chain]
"""The grant under which somebody acts, and those above it."""


def no_such_grant() -> ObjectNotFound:
    """The refusal of a grant that is missing, of another tenant, or none of the caller's business, in one wording."""
    return ObjectNotFound(
        "No such delegation is visible here; check delegation_id, or leave it out.", details={"field": "delegation_id"}
    )


def actor_of(
    principal: Principal, request: Common | Administrative | SetQuotas | OfGrant, document: dict[str, Any]
) -> tuple[Actor, str | None]:
    """The actor of an operation, and the principal's own id when it acts for somebody else (S9).

    Whether it may, where its credentials do not say so, is decided with the rights of that actor.
    """
    asserted = None if request.actor is msgspec.UNSET else decode(Actor, request.actor, InvalidRequest, "actor")
    _, authenticated_as = acting_actor(principal, None if asserted is None else document["actor"], by_role=True)
    if asserted is None:
        return Actor(principal.actor_id, principal.actor_kind), None
    _check_window(asserted)
    return asserted, authenticated_as


def _check_window(actor: Actor) -> None:
    seen = actor.attestation
    if (
        seen is not None
        and seen.not_before is not None
        and seen.not_after is not None
        and parse_instant(seen.not_before) > parse_instant(seen.not_after)
    ):
        raise PolicyDenied("The attestation ends before it begins; correct not_before and not_after.")


async def acting_grant(
    principal: Principal, request: Common, actor: Actor, scope: ScopeRef, access: Access
) -> Acting | None:
    """The grant that the request or its actor names; the services themselves only say under which one it was done.

    ObjectNotFound for one that is no affair of the actor's, ScopeNotFound where it could not even see the scope.
    """
    named, of_actor = request.delegation_id, actor.delegation_id
    delegation_id = named or of_actor
    if delegation_id is None or principal.has(RIGHT_SERVICE):
        return None
    if of_actor not in (None, delegation_id):
        raise InvalidRequest(
            "delegation_id and actor.delegation_id differ; send one of them.", details={"field": "delegation_id"}
        )
    found = await access.grant(principal, delegation_id, actor.actor_id)
    if found is not None and is_party(found[1], actor.actor_id):
        return found
    alone = structs.replace(actor, delegation_id=None)
    if not (await access.rights_now(principal, alone, scope)).sees_scope:
        raise ScopeNotFound
    raise no_such_grant()


async def rights_at_door(
    operation: str, principal: Principal, actor: Actor, scope: ScopeRef, access: Access, acting: Acting | None
) -> Rights:
    """The rights to begin with; under a grant they are the actor's own until its grantor's are known under the lock."""
    alone = structs.replace(actor, delegation_id=None)
    if acting is None:
        return await access.permitted(operation, principal, actor, scope)
    if needs_role(principal, actor.actor_id, actor.actor_kind):
        rights = await access.rights_now(principal, alone, scope)
        rights.check_assertion()
        return rights
    return await access.rights(principal, alone, scope)


async def act_under(command: Command, acting: Acting, principal: Principal, access: Access) -> None:
    """Let a completed command act under a grant; AccessDenied for what the grant never permits."""
    command.grant, chain = acting
    actor, scope_id = command.actor, command.scope.scope_id
    if command.operation == "grant_delegation":
        command.use = Use(command.operation, actor.actor_id, actor.actor_kind, scope_id)
        return
    command.use = use_of(command.operation, command.request, actor, scope_id)
    try:
        check_terms(chain, command.use)
    except AccessDenied as refused:
        if refused.details["reason"] == "scope":
            alone = structs.replace(actor, delegation_id=None)
            if not (await access.rights_now(principal, alone, command.scope)).sees_scope:
                raise ScopeNotFound from None
        raise


def new_command(
    operation: str,
    request: Request,
    document: dict[str, Any],
    principal: Principal,
    scope: ScopeRef,
    actor: Actor,
    authenticated_as: str | None,
    rights: Rights | None,
    *,
    named: bool,
) -> Command:
    """A command with what every operation has; `named`: somebody knows an id or a key of it, so it can come again."""
    operation_id = request.operation_id or ids.mint("op")
    key = request.idempotency_key
    return Command(
        operation=operation,
        request=request,
        scope=scope,
        actor=actor,
        actor_id=principal.actor_id,
        authenticated_as=authenticated_as,
        operation_id=operation_id,
        operation_hash=operation_hash(principal.actor_id, operation_id),
        key_hash=None if key is None else key_hash(principal.actor_id, operation, key),
        repeatable=repeatable(operation, document) if named else None,
        rights=rights,
    )


def repeatable(operation: str, document: dict[str, Any]) -> bytes:
    """What must be equal in a repetition: the document without the fields of the attempt (S16)."""
    kept = {name: value for name, value in document.items() if name not in RETRY_FIELDS}
    return operation.encode() + b"\x00" + strict_json.canonical(kept)
