"""list_delegations: grants by who gave them, who has them, and where they stand."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from pamspec_common.asked import Asked
from pamspec_common.authorization.rights import Authorizer
from pamspec_common.calls import Answer
from pamspec_common.errors import InvalidRequest, ScopeNotFound
from pamspec_common.ids import is_id
from pamspec_common.policy import acting_actor
from pamspec_delegation import model
from pamspec_delegation.documents import ListDelegations
from pamspec_delegation.handlers.asked import audits, rights_of
from pamspec_delegation.queries.grants import fetch_listed
from pamspec_delegation.store import Store

_DEFAULT_LIMIT = 100


@dataclass(frozen=True)
class Listing:
    """The operation, and what it stands on."""

    store: Store
    authorizer: Authorizer

    async def list_delegations(self, asked: Asked[ListDelegations]) -> Answer:
        """A page of grants in the order of their ids: those that the actor gave, has, or gave one above.

        Auditors and administrators see all of a scope, or of the tenant.
        """
        request, principal = asked.request, asked.principal
        actor = request.actor
        if actor is not None:
            acting_actor(principal, {"actor_id": actor.actor_id, "actor_kind": actor.actor_kind})
        key = None
        if request.scope_id is not None:
            key = await self.store.scope_key(principal.tenant_id, request.scope_id)
            if key is None:
                raise ScopeNotFound
        rights = await rights_of(self.authorizer, principal, actor, key or 0, None)
        viewer = None if audits(rights) else principal.actor_id if actor is None else actor.actor_id
        limit = _DEFAULT_LIMIT if request.pagination is None else request.pagination.limit
        after = "" if request.pagination is None else _read(request.pagination.cursor)
        async with self.store.session() as conn:
            found = await fetch_listed(
                conn,
                principal.tenant_id,
                viewer,
                request.granting_actor_id,
                request.delegated_actor_id,
                key,
                request.in_force,
                after,
                limit + 1,
            )
        if viewer is not None and not found and key is not None and not rights.sees_scope:
            raise ScopeNotFound
        page = found[:limit]
        records = await self.store.records(page)
        items = [
            model.listed(records[one.delegation_id], one.remaining_uses, one.redelegation_depth, in_force=one.in_force)
            for one in page
        ]
        more = len(found) > limit
        return Answer(200, model.listing(items, _written(page[-1].delegation_id) if more else None))


def _written(delegation_id: str) -> str:
    return base64.urlsafe_b64encode(delegation_id.encode()).decode()


def _read(cursor: str | None) -> str:
    if cursor is None:
        return ""
    try:
        found = base64.urlsafe_b64decode(cursor.encode("ascii")).decode("ascii")
    except (binascii.Error, ValueError):
        found = ""
    if not is_id(found):
        raise InvalidRequest("pagination.cursor is not one of ours; send next_cursor as it came.")
    return found
