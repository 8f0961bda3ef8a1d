"""Access: the scopes that a principal can name, and its rights in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from pamspec_common.authorization.loading import load_rights
from pamspec_common.authorization.rights import Asker, Authorizer, Epochs, Rights, Stored
from pamspec_common.delegation.grants import Chain
from pamspec_common.documents import Actor
from pamspec_common.errors import AccessDenied, ScopeNotFound
from pamspec_common.policy import needs_role
from pamspec_common.postgres import Connection
from pamspec_common.principal import Principal
from pamspec_write.model.commands import Command
from pamspec_write.model.facts import ScopeRef, ScopeState
from pamspec_write.model.grants import GrantRef
from pamspec_write.model.permission import check_operation

FindGrant = Callable[[Principal, str, str], Awaitable[tuple[GrantRef, Chain] | None]]
Resolve = Callable[[Principal, str], Awaitable[ScopeRef]]
UnknownSpaces = Callable[[Principal, list[str]], Awaitable[list[str]]]
RightsOf = Callable[[Principal, Actor, ScopeRef | None], Awaitable[Rights]]


class Access(NamedTuple):
    """What admission looks up of a principal."""

    resolve: Resolve
    """The scope of a name in the principal's tenant; ScopeNotFound otherwise."""
    rights: RightsOf
    """The rights of an actor, for whom the principal speaks, in a scope; without one, in the tenant."""
    rights_now: RightsOf
    """The same, loaded again: what is asked before a refusal."""
    grant: FindGrant
    """A grant of the principal's tenant by its id, for an actor who asks; None where there is none."""
    unknown_spaces: UnknownSpaces
    """Those of some embedding spaces that the principal's tenant has not described."""

    async def permitted(
        self, operation: str, principal: Principal, actor: Actor, scope: ScopeRef | None, *, now: bool = False
    ) -> Rights:
        """The rights by which the actor may do this here; AccessDenied, or ScopeNotFound, when it may not.

        Kept rights may be too old to refuse by; that they are not too old to allow is compared under the lock. What is
        not decided under a lock asks for those that hold `now`.
        """
        if now:
            rights = await self.rights_now(principal, actor, scope)
            check_operation(operation, rights, in_scope=scope is not None)
            return rights
        rights = await self.rights(principal, actor, scope)
        try:
            check_operation(operation, rights, in_scope=scope is not None)
        except (AccessDenied, ScopeNotFound):
            rights = await self.rights_now(principal, actor, scope)
            check_operation(operation, rights, in_scope=scope is not None)
        return rights


def asker_of(principal: Principal, actor: Actor) -> Asker:
    """Who asks for rights when a principal acts as this actor."""
    return Asker(
        principal.tenant_id,
        actor.actor_id,
        actor.actor_kind,
        principal.actor_id,
        principal.roles,
        actor.delegation_id,
        needs_role(principal, actor.actor_id, actor.actor_kind),
        principal.actor_kind,
    )


def own_actor(principal: Principal) -> Actor:
    """The principal as the actor that it is itself."""
    return Actor(principal.actor_id, principal.actor_kind)


def access_of(resolve: Resolve, authorizer: Authorizer, grant: FindGrant, unknown_spaces: UnknownSpaces) -> Access:
    """Access by kept rights; the commit compares their epochs under the lock."""
    kept, now = _rights_of(authorizer, again=False), _rights_of(authorizer, again=True)
    return Access(resolve, kept, now, grant, unknown_spaces)


def _rights_of(authorizer: Authorizer, *, again: bool) -> RightsOf:
    async def rights(principal: Principal, actor: Actor, scope: ScopeRef | None) -> Rights:
        scope_key = 0 if scope is None else scope.scope_key
        return await authorizer.rights(asker_of(principal, actor), scope_key, again=again)

    return rights


async def refresh(
    conn: Connection, authorizer: Authorizer, commands: Iterable[Command], states: dict[int, ScopeState]
) -> None:
    """Give the commands the rights that hold now: those under the epochs that were read with their scopes."""

    async def load(tenant_id: str, scope_key: int, actors: Sequence[str]) -> Stored:
        return await load_rights(conn, tenant_id, scope_key, actors)

    async def moved(rights: Rights | None, state: ScopeState) -> Rights | None:
        epochs = Epochs(state.epoch_authz, state.tenant_epoch)
        if rights is None or rights.epochs == epochs:
            return rights
        return await authorizer.rights(rights.asker, state.ref.scope_key, epochs, load)

    for command in commands:
        if command.grant is None:
            command.rights = await moved(command.rights, states[command.scope.scope_key])
        if command.target_scope is not None:
            command.far_rights = await moved(command.far_rights, states[command.target_scope.scope_key])
