"""The right to go on receiving: decided again whenever the scope's or the tenant's authorization epoch has moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pamspec_common.authorization.loading import load_rights
from pamspec_common.authorization.rights import Asker, Authorizer, Epochs, Rights
from pamspec_common.authorization.sight import EVERYTHING, Narrowing, Sight, require, sight
from pamspec_common.delegation.grants import Chain, authority, is_party
from pamspec_common.delegation.verdicts import Use, denied, verdicts
from pamspec_common.delegation.verdicts import require as require_verdicts
from pamspec_common.errors import AccessDenied, ObjectNotFound, PamspecError, PolicyDenied, ScopeNotFound
from pamspec_common.policy import needs_role
from pamspec_common.postgres import Connection
from pamspec_common.principal import Principal
from pamspec_subscription.documents import Subscribe
from pamspec_subscription.grants import Grants
from pamspec_subscription.matching import Viewer, viewer_of

REVOKED = (AccessDenied, PolicyDenied, ScopeNotFound, ObjectNotFound)


@dataclass(frozen=True)
class Permitted:
    """What a subscriber may receive: of memories by sight, of party events as a viewer."""

    sight: Sight
    viewer: Viewer
    left_s: float | None = None
    """How long it holds at most, where a grant ends."""


class Access:
    """Decides what subscribers may receive."""

    def __init__(self, authorizer: Authorizer, grants: Grants) -> None:
        self._authorizer, self._grants = authorizer, grants

    async def permitted(
        self,
        principal: Principal,
        actor: Mapping[str, Any],
        scope_key: int,
        epochs: tuple[int, int],
        conn: Connection | None = None,
    ) -> Permitted:
        """What the actor of a principal may receive from a scope under these epochs (scope, tenant).

        Whoever holds a connection lends it for rights that have to be loaded.

        Raises one of REVOKED when it may not subscribe there at all; ServiceUnavailable when the store is away and the
        rights have moved.
        """
        delegation_id = actor.get("delegation_id")
        if delegation_id is not None:
            return await self._under_grant(principal, actor, scope_key, epochs, conn, delegation_id)
        rights = await self._rights(principal, actor, scope_key, epochs, conn)
        require(rights, "subscribe")
        allowed = sight(rights, "subscribe", "read")
        if allowed.nothing:
            require(rights, "read")
        return Permitted(allowed, viewer_of(principal, actor, everything=_audits(rights)))

    async def _under_grant(
        self,
        principal: Principal,
        actor: Mapping[str, Any],
        scope_key: int,
        epochs: tuple[int, int],
        conn: Connection | None,
        delegation_id: str,
    ) -> Permitted:
        """The rights of the first grantor, within the terms of the grant and while it is in force."""
        found = await self._grants.standing(principal.tenant_id, delegation_id, epochs, conn)
        if found is None or not is_party(found.chain, str(actor["actor_id"])):
            raise await self._no_such_grant(principal, actor, scope_key, epochs, conn)
        chain, terms = found.chain, found.chain[-1].terms
        asker = authority(chain, principal.tenant_id)
        load = None if conn is None else partial(load_rights, conn)
        rights = await self._authorizer.rights(asker, scope_key, Epochs(*epochs), load)
        try:
            require_verdicts(verdicts(chain, _use(actor, chain, scope_key), found.now, rights))
        except AccessDenied as refused:
            if refused.details["reason"] == "scope" and not await self._sees(principal, actor, scope_key, epochs, conn):
                raise ScopeNotFound from None
            raise
        require(rights, "subscribe")
        allowed = sight(rights, "subscribe", "read").narrowed(Narrowing(terms.object_types, terms.object_ids))
        if allowed.nothing:
            require(rights, "read")
        viewer = Viewer(everything=False, actor_ids=frozenset({principal.actor_id, str(actor["actor_id"])}))
        return Permitted(allowed, viewer, found.left_s)

    async def check_filter(
        self,
        principal: Principal,
        actor: Mapping[str, Any],
        epochs: tuple[int, int],
        request: Subscribe,
        conn: Connection,
    ) -> None:
        """AccessDenied for a filter, or for content, that the grant does not permit."""
        delegation_id = actor.get("delegation_id")
        found = None
        if delegation_id is not None:
            found = await self._grants.standing(principal.tenant_id, delegation_id, epochs, conn)
        if found is None:
            return
        terms, wanted = found.chain[-1].terms, request.filter
        if request.include_content and "read" not in terms.operations:
            raise denied("operation")
        if None not in (wanted.object_id, terms.object_ids) and wanted.object_id not in (terms.object_ids or ()):
            raise denied("object_id")
        if None not in (wanted.object_type, terms.object_types) and wanted.object_type not in (
            terms.object_types or ()
        ):
            raise denied("object_type")

    async def _no_such_grant(
        self,
        principal: Principal,
        actor: Mapping[str, Any],
        scope_key: int,
        epochs: tuple[int, int],
        conn: Connection | None,
    ) -> PamspecError:
        if not await self._sees(principal, actor, scope_key, epochs, conn):
            return ScopeNotFound()
        return ObjectNotFound(
            "No such delegation is visible here; check delegation_id, or leave it out.",
            details={"field": "delegation_id"},
        )

    async def _sees(
        self,
        principal: Principal,
        actor: Mapping[str, Any],
        scope_key: int,
        epochs: tuple[int, int],
        conn: Connection | None,
    ) -> bool:
        alone = {name: value for name, value in actor.items() if name != "delegation_id"}
        return (await self._rights(principal, alone, scope_key, epochs, conn)).sees_scope

    async def sees(self, principal: Principal, scope_key: int, epochs: tuple[int, int], conn: Connection) -> None:
        """ScopeNotFound where the principal itself may do nothing in a scope."""
        own = {"actor_id": principal.actor_id, "actor_kind": principal.actor_kind}
        if not (await self._rights(principal, own, scope_key, epochs, conn)).sees_scope:
            raise ScopeNotFound

    async def viewer(
        self,
        principal: Principal,
        actor: Mapping[str, Any],
        scope_key: int,
        epochs: tuple[int, int],
        conn: Connection | None = None,
    ) -> Permitted:
        """The same, to place a channel or a cursor; whoever may not subscribe any more counts as one who sees all.

        Nothing is delivered by it: a channel asks its Right before each event and ends where that is gone.
        """
        try:
            return await self.permitted(principal, actor, scope_key, epochs, conn)
        except REVOKED:
            return Permitted(EVERYTHING, viewer_of(principal, actor))

    async def _rights(
        self,
        principal: Principal,
        actor: Mapping[str, Any],
        scope_key: int,
        epochs: tuple[int, int],
        conn: Connection | None,
    ) -> Rights:
        asker = Asker(
            principal.tenant_id,
            str(actor["actor_id"]),
            str(actor["actor_kind"]),
            principal.actor_id,
            principal.roles,
            actor.get("delegation_id"),
            needs_role(principal, str(actor["actor_id"]), str(actor["actor_kind"])),
            principal.actor_kind,
        )
        load = None if conn is None else partial(load_rights, conn)
        return await self._authorizer.rights(asker, scope_key, Epochs(*epochs), load)


def _use(actor: Mapping[str, Any], chain: Chain, scope_key: int) -> Use:
    target = chain[-1].target_scope_id if chain[-1].target_key == scope_key else ""
    return Use("subscribe", str(actor["actor_id"]), str(actor["actor_kind"]), target)


def _audits(rights: Rights) -> bool:
    return not (rights.decision("audit").never and rights.decision("administer").never)


class Right:
    """One subscriber's right to receive from a scope."""

    def __init__(self, access: Access, principal: Principal, actor: Mapping[str, Any], scope_key: int) -> None:
        self.principal = principal
        self._access, self._actor, self._scope_key = access, actor, scope_key

    async def check(self, epochs: tuple[int, int]) -> Permitted:
        """What it allows under these epochs; raises one of REVOKED when it no longer holds."""
        return await self._access.permitted(self.principal, self._actor, self._scope_key, epochs)
