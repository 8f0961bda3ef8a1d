"""Loading grants from PostgreSQL, as any service's role: always the whole chain, in one statement."""

from __future__ import annotations

from collections.abc import Iterable

import asyncpg

from pamspec_common.delegation.grants import Chain, Grant, Party, Terms
from pamspec_common.postgres import Connection

CHAINS_SQL = """
SELECT k.tenant_id, k.delegation_id AS asked, c.*
FROM unnest($1::text[], $2::text[]) AS k (tenant_id, delegation_id)
CROSS JOIN LATERAL core.delegation_chain(k.tenant_id, k.delegation_id) c
ORDER BY k.tenant_id, k.delegation_id, c.place
"""


async def load_chains(conn: Connection, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Chain]:
    """The chains of these grants, by (tenant_id, delegation_id), as they stand now; one that is missing is left out."""
    pairs = sorted(wanted)
    rows = await conn.fetch(CHAINS_SQL, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
    found: dict[tuple[str, str], Chain] = {}
    for row in rows:
        key = (row["tenant_id"], row["asked"])
        found[key] = (*found.get(key, ()), grant_of_row(row))
    return found


async def load_chain(conn: Connection, tenant_id: str, delegation_id: str) -> Chain | None:
    """The chain of one grant of a tenant, as it stands now."""
    return (await load_chains(conn, [(tenant_id, delegation_id)])).get((tenant_id, delegation_id))


def grant_of_row(row: asyncpg.Record) -> Grant:
    return Grant(
        delegation_id=row["delegation_id"],
        scope_key=row["scope_key"],
        scope_id=row["scope_id"],
        target_key=row["target_key"],
        target_scope_id=row["target_scope_id"],
        grantor=Party(row["grantor_id"], row["grantor_kind"]),
        principal_id=row["principal_id"],
        delegate=Party(row["delegate_id"], row["delegate_kind"]),
        terms=Terms(
            operations=frozenset(row["operations"]),
            not_before=row["not_before"],
            not_after=row["not_after"],
            object_types=_or_none(row["object_types"]),
            object_ids=_or_none(row["object_ids"]),
            usage_limit=row["usage_limit"],
            redelegation_depth=row["redelegation_depth"],
        ),
        revocable=row["revocable"],
        revoked=row["revoked_at"] is not None,
        used=row["used"],
        credential_roles=frozenset(row["credential_roles"]),
    )


def _or_none(values: list[str] | None) -> frozenset[str] | None:
    return None if values is None else frozenset(values)
