"""Grants: how they stand under the locks, and what a batch changes of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pamspec_common.postgres import Connection
from pamspec_write.model.facts import ScopeState, Tally
from pamspec_write.model.rows import GrantRow, Rows

CREDENTIALS_SQL = """
SELECT k.tenant_id, k.actor_id, array_agg(DISTINCT role) AS roles
FROM unnest($1::text[], $2::text[]) AS k (tenant_id, actor_id)
JOIN core.key_principal p USING (tenant_id, actor_id) CROSS JOIN unnest(p.roles) AS role
GROUP BY k.tenant_id, k.actor_id
"""

TALLIES_SQL = """
SELECT t.scope_key, t.delegation_id, t.operation, t.told_at, t.untold
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS k (scope_key, delegation_id, operation)
JOIN core.delegation_tally t USING (scope_key, delegation_id, operation)
"""

UNTOLD_SQL = "SELECT tenant_id, scope_id, delegation_id, operation FROM core.untold_uses($1)"

INSERT_GRANT_SQL = """
INSERT INTO core.delegation (scope_key, delegation_id, tenant_id, target_key, grantor_id, grantor_kind, principal_id,
  delegate_id, delegate_kind, operations, object_types, object_ids, not_before, not_after, usage_limit,
  redelegation_depth, revocable, ancestors, granted_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19::text::timestamptz)
"""

REVOKE_SQL = """
UPDATE core.delegation d SET revoked_at = k.revoked_at
FROM unnest($1::bigint[], $2::text[], $3::text[]::timestamptz[]) AS k (scope_key, delegation_id, revoked_at)
WHERE d.scope_key = k.scope_key AND d.delegation_id = k.delegation_id
"""

# What no lock could have prevented does not happen: a use beyond the limit changes no row.
SPEND_SQL = """
UPDATE core.delegation d SET used = d.used + k.uses
FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS k (scope_key, delegation_id, uses)
WHERE d.scope_key = k.scope_key AND d.delegation_id = k.delegation_id AND d.used + k.uses <= d.usage_limit
RETURNING 1
"""

TELL_SQL = """
INSERT INTO core.delegation_tally (scope_key, delegation_id, operation, told_at, untold)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::timestamptz[], $5::bigint[])
ON CONFLICT (scope_key, delegation_id, operation) DO UPDATE SET told_at = excluded.told_at, untold = excluded.untold
"""

MOVE_EPOCHS_SQL = "UPDATE core.scope_head SET epoch_authz = epoch_authz + 1 WHERE scope_key = ANY ($1::bigint[])"


class Untold(NamedTuple):
    """Uses that no event tells of yet."""

    tenant_id: str
    scope_id: str
    delegation_id: str
    operation: str


async def untold_uses(conn: Connection, limit: int) -> list[Untold]:
    """Where there are uses to be told of, over all scopes, those that waited longest first."""
    return [Untold(*row) for row in await conn.fetch(UNTOLD_SQL, limit)]


async def credential_roles(
    conn: Connection, actors: Collection[tuple[str, str]]
) -> dict[tuple[str, str], frozenset[str]]:
    """The roles that the live API keys of these actors carry, by (tenant_id, actor_id)."""
    ordered = sorted(actors)
    rows = await conn.fetch(CREDENTIALS_SQL, [pair[0] for pair in ordered], [pair[1] for pair in ordered])
    return {(row["tenant_id"], row["actor_id"]): frozenset(row["roles"]) for row in rows}


async def fill_tallies(
    conn: Connection, states: Mapping[int, ScopeState], wanted: Collection[tuple[int, str, str]]
) -> None:
    """Add to the states what events have yet to tell of uses, by (scope_key, delegation_id, operation)."""
    columns = [list(column) for column in zip(*sorted(wanted), strict=True)]
    for row in await conn.fetch(TALLIES_SQL, *columns):
        states[row["scope_key"]].tallies[row["delegation_id"], row["operation"]] = Tally(row["told_at"], row["untold"])


async def change_delegations(conn: Connection, rows: Rows) -> bool:
    """Write what changed of grants; False when a use went beyond a limit, which the locks rule out."""
    for grant in rows.grants:
        await _insert(conn, grant)
    if rows.revocations:
        await conn.execute(REVOKE_SQL, *_columns(rows.revocations))
    if rows.tallies:
        told = [(*place, tally.told_at, tally.untold) for place, tally in sorted(rows.tallies.items())]
        await conn.execute(TELL_SQL, *_columns(told))
    if rows.authorized:
        await conn.execute(MOVE_EPOCHS_SQL, sorted(rows.authorized))
    if not rows.uses:
        return True
    spent = await conn.fetch(SPEND_SQL, *_columns([(*place, uses) for place, uses in sorted(rows.uses.items())]))
    return len(spent) == len(rows.uses)


async def _insert(conn: Connection, row: GrantRow) -> None:
    grant, terms = row.grant, row.grant.terms
    await conn.execute(
        INSERT_GRANT_SQL,
        grant.scope_key,
        grant.delegation_id,
        row.tenant_id,
        grant.target_key,
        grant.grantor.actor_id,
        grant.grantor.actor_kind,
        grant.principal_id,
        grant.delegate.actor_id,
        grant.delegate.actor_kind,
        sorted(terms.operations),
        _sorted(terms.object_types),
        _sorted(terms.object_ids),
        terms.not_before,
        terms.not_after,
        terms.usage_limit,
        terms.redelegation_depth,
        grant.revocable,
        row.ancestors,
        row.granted_at,
    )


def _sorted(values: frozenset[str] | None) -> list[str] | None:
    return None if values is None else sorted(values)


def _columns(rows: Sequence[tuple[object, ...]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]
