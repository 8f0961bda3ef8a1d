"""A tenant's scopes, each with what is stored of some actors' rights in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pamspec_common.authorization.loading import stored_rights
from pamspec_common.authorization.rights import Stored
from pamspec_common.postgres import Connection

LIST_SCOPES_SQL = """
SELECT s.scope_key, s.scope_id, s.document, r.scope_epoch, r.tenant_epoch, r.role_actors, r.roles, r.rule_keys,
       r.rule_texts
FROM core.list_scopes($1, $2, $3) s CROSS JOIN LATERAL core.rights_of($1, s.scope_key, $4) r ORDER BY s.scope_id
"""
SCOPE_SQL = """
SELECT s.scope_key, $2 AS scope_id, s.document, r.scope_epoch, r.tenant_epoch, r.role_actors, r.roles, r.rule_keys,
       r.rule_texts
FROM core.resolve_scope($1, $2) s CROSS JOIN LATERAL core.rights_of($1, s.scope_key, $3) r
"""


class Listed(NamedTuple):
    """A scope, and what decides whether it is seen."""

    scope_key: int
    scope_id: str
    document: bytes
    stored: Stored


async def scopes(conn: Connection, tenant_id: str, after: str, limit: int, actors: Sequence[str]) -> list[Listed]:
    """A tenant's scopes after an id, in their order."""
    rows = await conn.fetch(LIST_SCOPES_SQL, tenant_id, after, limit, list(actors))
    return [Listed(row["scope_key"], row["scope_id"], row["document"], stored_rights(row)) for row in rows]


async def scope(conn: Connection, tenant_id: str, scope_id: str, actors: Sequence[str]) -> Listed | None:
    """One of a tenant's scopes."""
    row = await conn.fetchrow(SCOPE_SQL, tenant_id, scope_id, list(actors))
    return None if row is None else Listed(row["scope_key"], scope_id, row["document"], stored_rights(row))
