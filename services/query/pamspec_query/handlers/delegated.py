"""Reads under a grant: with its grantor's rights, within its terms, and only once the use of it has been committed.

Invariant: nothing leaves before the write service has committed delegation_exercised (PAMSPEC P177); a read that is
refused uses nothing up. What the grant does not name is cut out of the statements themselves, before order, counts,
hints and cursors. A grant works in one scope: no hop of a traversal leads out of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import orjson

from pamspec_common.authorization.sight import Narrowing
from pamspec_common.calls import HEADER_AS_OF_SEQUENCE, Answer, Call
from pamspec_common.delegation.grants import Chain, is_party
from pamspec_common.delegation.loading import load_chain
from pamspec_common.delegation.verdicts import Use, require, term_verdicts
from pamspec_common.errors import AccessDenied, ObjectNotFound, ScopeNotFound, ServiceUnavailable, told_error
from pamspec_common.peers import Peer
from pamspec_common.principal import TokenSigner, service_principal
from pamspec_common.strict_json import canonical, dumps
from pamspec_query.documents import Assemble, Common, InspectHistory, Query, Read
from pamspec_query.handlers.context import Context
from pamspec_query.handlers.history import is_ranged
from pamspec_query.queries.heads import scope_head

DELEGATED = frozenset({"read", "query", "inspect_history"})
"""The reads that can be delegated (PAMSPEC P176)."""
Delegable = Read | Query | Assemble | InspectHistory
R = TypeVar("R", bound=Common)


def grant_named(request: Common) -> str | None:
    """The grant to act under; a delegation_id without another thing to read, or a range, is what is read."""
    of_actor = None if request.actor is None else request.actor.delegation_id
    if isinstance(request, Read | InspectHistory) and request.object_id is None and request.relationship_id is None:
        ranged = isinstance(request, InspectHistory) and is_ranged(request)
        return request.delegation_id or of_actor if ranged else of_actor
    return request.delegation_id or of_actor


async def under_grant(
    context: Context,
    request: R,
    delegation_id: str,
    handle: Callable[[Context, R], Awaitable[Answer]],
    write: Peer | None,
    signer: TokenSigner,
) -> Answer:
    """The answer of a read under a grant.

    ObjectNotFound for a grant that is no affair of the actor's, ScopeNotFound where it could not even see the scope;
    AccessDenied by the first rule that is not kept.
    """
    assert isinstance(request, Delegable)
    chain = await _chain(context, request, delegation_id)
    if write is None:
        raise ServiceUnavailable("Uses of grants cannot be committed here; try again.")
    terms = chain[-1].terms
    narrowing = Narrowing(terms.object_types, terms.object_ids)
    answer = await handle(replace(context, grant=chain, narrowing=narrowing), request)
    await _exercise(context, request, delegation_id, answer, write, signer)
    return answer


async def _chain(context: Context, request: Delegable, delegation_id: str) -> Chain:
    """The grant with those above it, when its terms permit what is asked."""
    async with context.store.plain(context.principal.tenant_id) as conn:
        chain = await load_chain(conn, context.principal.tenant_id, delegation_id)
    if chain is None or not is_party(chain, context.actor_id):
        await _check_scope(context, request)
        raise ObjectNotFound(
            "No such delegation is visible here; check delegation_id, or leave it out.",
            details={"field": "delegation_id"},
        )
    try:
        require(term_verdicts(chain, _use(context, request)))
    except AccessDenied as refused:
        if refused.details["reason"] == "scope":
            await _check_scope(context, request)
        raise
    return chain


async def _check_scope(context: Context, request: Delegable) -> None:
    """ScopeNotFound where the actor by itself may do nothing in the scope."""
    scope_key = await context.scope_key(request.scope_id)
    async with context.store.snapshot(scope_key, tenant_id=context.principal.tenant_id) as conn:
        head = await scope_head(conn, scope_key)
        if head is None or not (await context.own_rights(scope_key, head, conn)).sees_scope:
            raise ScopeNotFound


def _use(context: Context, request: Delegable) -> Use:
    """What is asked; types are left to what is seen, since nobody has looked at the object yet."""
    named = None if isinstance(request, Query | Assemble) else request.object_id or request.relationship_id
    return Use(
        context.operation,
        context.actor_id,
        str(context.actor["actor_kind"]),
        request.scope_id,
        () if named is None else (named,),
    )


async def _exercise(
    context: Context, request: Delegable, delegation_id: str, answer: Answer, write: Peer, signer: TokenSigner
) -> None:
    """Have the use committed; raises the refusal of the write service, which decides under the locks."""
    document: dict[str, Any] = {
        "delegation_id": delegation_id,
        "scope_id": request.scope_id,
        "operation": context.operation,
        "actor": {"actor_id": context.actor_id, "actor_kind": context.actor["actor_kind"]},
    }
    named = None if isinstance(request, Query | Assemble) else request.object_id or request.relationship_id
    if named is not None and not (isinstance(request, Read | InspectHistory) and request.relationship_id):
        document["object_id"] = named
    if request.operation_id is not None:
        document["operation_id"] = _once(context, request, answer)
    token = signer.sign(service_principal("query", context.principal.tenant_id))
    told = await write.call(Call("exercise_delegation", token, dumps(document)))
    if told.status >= 400:
        raise told_error(told.status, told.body)


def _once(context: Context, request: Delegable, answer: Answer) -> str:
    """The same for a repetition that gets the same answer: it is the same use (S11) until the scope moves."""
    parts = [
        context.principal.actor_id,
        context.actor_id,
        context.operation,
        answer.headers.get(HEADER_AS_OF_SEQUENCE, ""),
        canonical(dict(context.document)).decode(),
    ]
    return "op:use." + hashlib.sha256(orjson.dumps(parts)).hexdigest()
