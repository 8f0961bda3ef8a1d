"""Loading rights from PostgreSQL, as any service's role."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from pamspec_common.authorization.rights import Epochs, Load, Stored
from pamspec_common.errors import AccessDenied
from pamspec_common.postgres import Connection, Pool, connection

RIGHTS_SQL = """
SELECT scope_epoch, tenant_epoch, role_actors, roles, rule_keys, rule_texts FROM core.rights_of($1, $2, $3)
"""


def loading(pool: Pool, wait_ms: int) -> Load:
    """A loader on connections of this pool; AccessDenied for a tenant that does not exist."""

    async def load(tenant_id: str, scope_key: int, actors: Sequence[str]) -> Stored:
        async with connection(pool, wait_ms) as conn:
            return await load_rights(conn, tenant_id, scope_key, actors)

    return load


async def load_rights(conn: Connection, tenant_id: str, scope_key: int, actors: Sequence[str]) -> Stored:
    """What is stored of the actors' rights in a scope; 0 stands for the tenant alone."""
    row = await conn.fetchrow(RIGHTS_SQL, tenant_id, scope_key, list(actors))
    if row is None:
        raise AccessDenied("This tenant does not exist here; an operator makes it with its first key.")
    return stored_rights(row)


def stored_rights(row: asyncpg.Record) -> Stored:
    """What a row of core.rights_of tells."""
    roles: dict[str, set[str]] = {}
    for actor_id, role in zip(row["role_actors"], row["roles"], strict=True):
        roles.setdefault(actor_id, set()).add(role)
    return Stored(
        Epochs(row["scope_epoch"], row["tenant_epoch"]),
        {actor_id: frozenset(held) for actor_id, held in roles.items()},
        list(zip(row["rule_keys"], row["rule_texts"], strict=True)),
    )
