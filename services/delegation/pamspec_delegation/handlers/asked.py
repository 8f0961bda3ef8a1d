"""The rights of who asks."""

from __future__ import annotations

from pamspec_common.authorization.rights import Asker, Authorizer, Epochs, Rights
from pamspec_common.documents import Actor
from pamspec_common.principal import Principal


async def rights_of(
    authorizer: Authorizer, principal: Principal, actor: Actor | None, scope_key: int, epochs: Epochs | None
) -> Rights:
    """What an actor for whom the principal speaks, or the principal itself, may do in a scope; 0: in the tenant."""
    actor_id, kind = (principal.actor_id, principal.actor_kind) if actor is None else (actor.actor_id, actor.actor_kind)
    asker = Asker(principal.tenant_id, actor_id, kind, principal.actor_id, principal.roles)
    return await authorizer.rights(asker, scope_key, epochs, again=epochs is None)


def audits(rights: Rights) -> bool:
    """Whether somebody may see what others did."""
    return not (rights.decision("audit").never and rights.decision("administer").never)
