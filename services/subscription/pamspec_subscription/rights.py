"""The right to go on receiving: decided again whenever the scope's or the tenant's authorization epoch has moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pamspec_common.authorization.loading import load_rights
from pamspec_common.authorization.rights import Asker, Authorizer, Epochs, Rights
from pamspec_common.authorization.sight import EVERYTHING, Sight, require, sight
from pamspec_common.errors import AccessDenied, PolicyDenied, ScopeNotFound
from pamspec_common.policy import needs_role
from pamspec_common.postgres import Connection
from pamspec_common.principal import Principal
from pamspec_subscription.matching import Viewer, viewer_of

REVOKED = (AccessDenied, PolicyDenied, ScopeNotFound)


@dataclass(frozen=True)
class Permitted:
    """What a subscriber may receive: of memories by sight, of party events as a viewer."""

    sight: Sight
    viewer: Viewer


class Access:
    """Decides what subscribers may receive."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

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
        rights = await self._rights(principal, actor, scope_key, epochs, conn)
        require(rights, "subscribe")
        allowed = sight(rights, "subscribe", "read")
        if allowed.nothing:
            require(rights, "read")
        return Permitted(allowed, viewer_of(principal, actor, everything=_audits(rights)))

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
        """The same; of one who may not subscribe any more, what it received last."""
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


def _audits(rights: Rights) -> bool:
    return not (rights.decision("audit").never and rights.decision("administer").never)


class Right:
    """One subscriber's right to receive from a scope."""

    def __init__(self, access: Access, principal: Principal, actor: Mapping[str, Any], scope_key: int) -> None:
        self._access, self._principal, self._actor, self._scope_key = access, principal, actor, scope_key

    async def check(self, epochs: tuple[int, int]) -> Permitted:
        """What it allows under these epochs; raises one of REVOKED when it no longer holds."""
        return await self._access.permitted(self._principal, self._actor, self._scope_key, epochs)
