"""Acting under a grant: what a command asks of it, whether it may, and the use that it leaves behind.

Invariant: what a grant permits is decided under the locks of the scope acted on and of those in which it and the grants
above it were made, from how they stand there. A use is counted and told exactly when its command is carried out; a
repetition of the command finds its record before any count is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import structs

from pamspec_common.authorization.rights import Rights
from pamspec_common.delegation.grants import Chain
from pamspec_common.delegation.verdicts import (
    Use,
    denied,
    holds,
    require,
    standing_verdicts,
    term_verdicts,
    usage_verdicts,
)
from pamspec_common.documents import Actor
from pamspec_common.errors import InternalError
from pamspec_write.documents import Request
from pamspec_write.documents.delegations import CheckDelegation, ExerciseDelegation
from pamspec_write.documents.erasures import Delete, Redact
from pamspec_write.documents.objects import Create, Update
from pamspec_write.documents.promotion import Promote
from pamspec_write.documents.relationships import Relate
from pamspec_write.documents.states import Transition
from pamspec_write.model.facts import Document, ScopeRef, ScopeState

_UNKNOWN = (None,)
_Touched = tuple[tuple[str | None, ...], tuple[str | None, ...]]


class GrantRef(msgspec.Struct, frozen=True):
    """What never changes of a grant's place: itself, those above it, and the scopes of all of them."""

    tenant_id: str
    delegation_id: str
    chain: tuple[tuple[int, str], ...]
    """(scope_key, delegation_id), the first grant first, the grant itself last."""
    home: ScopeRef
    """Where it was granted."""
    target: ScopeRef
    """Where it works."""
    scopes: tuple[ScopeRef, ...]
    """All scopes that are locked where it matters."""


def use_of(operation: str, request: Request, actor: Actor, scope_id: str) -> Use:
    """What a command that acts under a grant asks of it, as far as its document says."""
    ids, types = _touched(request)
    return Use(operation, actor.actor_id, actor.actor_kind, scope_id, ids, types)


def _touched(request: Request) -> _Touched:
    """The ids that a request touches, and the types that it says; of a known relationship nobody knows one."""
    match request:
        case Create():
            return (request.object_id,), (request.object_type,)
        case Update():
            return (request.object_id,), ()
        case Transition() | Redact() | Delete():
            if request.object_id is not None:
                return (request.object_id,), ()
            return (request.relationship_id,), _UNKNOWN
        case Relate() if request.expected_version_id is not None:
            return (request.relationship_id,), _UNKNOWN
        case Relate():
            near = request.target_scope_id is None or request.target_scope_id == request.scope_id
            return (request.source_object_id, *((request.target_object_id,) if near else ())), ()
        case Promote():
            types = ("working_memory", request.target_object_type)
            return (request.source_object_id, request.target_object_id), types
    return (), ()


def chain_of(states: Mapping[int, ScopeState], ref: GrantRef) -> Chain:
    """A grant behind those above it, as the batch has them now."""
    try:
        return tuple(states[scope_key].grants[delegation_id] for scope_key, delegation_id in ref.chain)
    except KeyError:
        raise InternalError("A grant was not read with its scope.") from None


def check_terms(chain: Chain, use: Use) -> None:
    """Raise AccessDenied for what the grant never permits, whatever becomes of it."""
    require(term_verdicts(chain, use))


def check_standing(chain: Chain, operation: str, at: datetime, authority: Rights | None) -> None:
    """Raise AccessDenied unless every grant is in force at that time, and their first grantor may do it itself."""
    require(standing_verdicts(chain, at))
    if authority is None or not holds(authority, operation):
        raise denied("grantor_rights")


def check_room(chain: Chain, count: int = 1) -> None:
    """Raise AccessDenied unless every limit leaves room for that many uses."""
    require(usage_verdicts(chain, count))


def spend(states: Mapping[int, ScopeState], uses: dict[tuple[int, str], int], ref: GrantRef, count: int = 1) -> Chain:
    """Count uses against every limit of a chain; the chain afterwards."""
    check_room(chain_of(states, ref), count)
    for scope_key, delegation_id in ref.chain:
        grant = states[scope_key].grants[delegation_id]
        if grant.terms.usage_limit is not None:
            states[scope_key].grants[delegation_id] = structs.replace(grant, used=grant.used + count)
            uses[scope_key, delegation_id] = uses.get((scope_key, delegation_id), 0) + count
    return chain_of(states, ref)


def exercise_facts(chain: Chain, operation: str) -> Document:
    """The payload of a delegation_exercised event."""
    last = chain[-1]
    return {
        "delegation_id": last.delegation_id,
        "granting_actor_id": last.grantor.actor_id,
        "delegated_actor_id": last.delegate.actor_id,
        "operation": operation,
    }


def asked_use(request: CheckDelegation | ExerciseDelegation, actor: Actor, ref: GrantRef) -> Use:
    """What a check asks, before anybody has looked at the object that it names."""
    return Use(
        request.operation,
        actor.actor_id,
        actor.actor_kind,
        request.scope_id or ref.target.scope_id,
        () if request.object_id is None else (request.object_id,),
        () if request.object_type is None else (request.object_type,),
    )
