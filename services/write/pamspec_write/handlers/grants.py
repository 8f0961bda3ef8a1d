"""Grants at the door and under the lock: which one a name stands for, and whose rights it gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pamspec_common.authorization.loading import load_rights
from pamspec_common.authorization.rights import Asker, Authorizer, Epochs, Stored
from pamspec_common.delegation.grants import Chain, authority, is_party, remaining_uses
from pamspec_common.delegation.loading import load_chain, load_chains
from pamspec_common.postgres import Connection, Pool, connection
from pamspec_common.principal import Principal
from pamspec_write.documents.delegations import EXERCISED, ExerciseDelegation, RevokeDelegation, TellUses
from pamspec_write.handlers.access import Resolve
from pamspec_write.model.commands import Command, Work, commands_of, grants_of
from pamspec_write.model.facts import ScopeRef, ScopeState
from pamspec_write.model.grants import GrantRef, chain_of
from pamspec_write.queries.delegations import credential_roles, fill_tallies
from pamspec_write.settings import Settings

_KNOWN = 50_000


class Grants:
    """Looks grants up by name, in the tenant of the principal.

    What a party asked for once is kept, since parties and terms never change. For everybody else every look-up goes the
    same way, whether there is such a grant or not.
    """

    def __init__(self, pool: Pool, settings: Settings, resolve: Resolve) -> None:
        self._pool, self._settings, self._resolve = pool, settings, resolve
        self._known: dict[tuple[str, str, str], tuple[GrantRef, Chain]] = {}

    async def find(self, principal: Principal, delegation_id: str, actor_id: str) -> tuple[GrantRef, Chain] | None:
        """A grant of the tenant, asked for by that actor, and those above it; None when there is no such grant.

        Whether they are in force, and how often they were used, is not to be told from it.
        """
        key = (principal.tenant_id, delegation_id, actor_id)
        found = self._known.get(key) or await self._look(principal, delegation_id)
        if found is not None and is_party(found[1], actor_id):
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[key] = found
        return found

    async def _look(self, principal: Principal, delegation_id: str) -> tuple[GrantRef, Chain] | None:
        async with connection(self._pool, self._settings.pool_wait_ms) as conn:
            chain = await load_chain(conn, principal.tenant_id, delegation_id)
        if chain is None:
            return None
        homes = [await self._resolve(principal, grant.scope_id) for grant in chain]
        target = await self._resolve(principal, chain[-1].target_scope_id)
        scopes: dict[int, ScopeRef] = {ref.scope_key: ref for ref in (*homes, target)}
        links = tuple((grant.scope_key, grant.delegation_id) for grant in chain)
        ref = GrantRef(principal.tenant_id, delegation_id, links, homes[-1], target, tuple(scopes.values()))
        return ref, chain


async def fill_grants(conn: Connection, works: Iterable[Work], states: Mapping[int, ScopeState]) -> None:
    """Give the states the grants that the commands need, as they stand under the locks: nothing moves them now."""
    commands = [command for command in commands_of(works) if command.about is not None or command.grant is not None]
    if not commands:
        return
    wanted = {(ref.tenant_id, ref.delegation_id) for command in commands for ref in grants_of(command)}
    for chain in (await load_chains(conn, wanted)).values():
        for grant in chain:
            states[grant.scope_key].grants[grant.delegation_id] = grant
    tallied: set[tuple[int, str, str]] = set()
    for command in commands:
        ref, request = command.about, command.request
        if ref is None or remaining_uses(chain_of(states, ref)) is not None:
            continue
        if isinstance(request, ExerciseDelegation | TellUses):
            tallied.add((ref.home.scope_key, ref.delegation_id, request.operation))
        elif isinstance(request, RevokeDelegation):
            tallied.update((ref.home.scope_key, ref.delegation_id, operation) for operation in EXERCISED)
    if tallied:
        await fill_tallies(conn, states, tallied)


async def refresh_authority(
    conn: Connection,
    authorizer: Authorizer,
    works: Iterable[Work],
    states: Mapping[int, ScopeState],
) -> None:
    """Give the commands the rights of whoever grants, or first granted: those that this actor has by itself now."""
    commands = [command for command in commands_of(works) if command.terms is not None or command.use is not None]
    if not commands:
        return
    granting = {
        (command.scope.tenant_id, command.actor_id)
        for command in commands
        if command.terms is not None and command.grant is None
    }
    roles = await credential_roles(conn, granting) if granting else {}

    async def load(tenant_id: str, scope_key: int, actors: Sequence[str]) -> Stored:
        return await load_rights(conn, tenant_id, scope_key, actors)

    for command in commands:
        asker, scope = _authority(command, states, roles)
        state = states[scope.scope_key]
        epochs = Epochs(state.epoch_authz, state.tenant_epoch)
        command.authority = await authorizer.rights(asker, scope.scope_key, epochs, load)
        if command.grant is not None:
            command.rights = command.authority


def _authority(
    command: Command, states: Mapping[int, ScopeState], roles: Mapping[tuple[str, str], frozenset[str]]
) -> tuple[Asker, ScopeRef]:
    """Whose rights count, and where."""
    ref = command.grant or command.about
    if ref is not None:
        return authority(chain_of(states, ref), command.scope.tenant_id), ref.target
    actor, principal_id = command.actor, command.actor_id
    carried = roles.get((command.scope.tenant_id, principal_id), frozenset())
    asker = Asker(command.scope.tenant_id, actor.actor_id, actor.actor_kind, principal_id, carried)
    return asker, command.target_scope or command.scope
