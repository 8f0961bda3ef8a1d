"""The rules of scopes: reading what is cached by version, and writing changes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pamspec_common.postgres import Connection
from pamspec_common.scope_policy import STRICT, stored_policy
from pamspec_write.model.rows import PolicyRow, Rows
from pamspec_write.model.rules import Hold, ScopeRules
from pamspec_write.queries.administration import record_change
from pamspec_write.queries.holds import insert_hold, release_hold
from pamspec_write.queries.schemas import insert_schema

LOAD_RULES_SQL = """
SELECT h.scope_key, h.rules_version, p.policy_version, p.policy, l.hold_ids, l.object_types,
  s.schema_ids, s.digests
FROM core.scope_head h
LEFT JOIN LATERAL (
  SELECT policy_version, policy FROM core.scope_policy p WHERE p.scope_key = h.scope_key
  ORDER BY policy_version DESC LIMIT 1) p ON true
LEFT JOIN LATERAL (
  SELECT array_agg(l.hold_id ORDER BY l.placed_at, l.hold_id) AS hold_ids,
         array_agg(l.object_type ORDER BY l.placed_at, l.hold_id) AS object_types
  FROM core.legal_hold l WHERE l.scope_key = h.scope_key AND l.released_at IS NULL AND NOT l.undone) l ON true
LEFT JOIN LATERAL (
  SELECT array_agg(s.schema_id) AS schema_ids, array_agg(s.digest) AS digests
  FROM core.content_schema s WHERE s.scope_key = h.scope_key) s ON true
WHERE h.scope_key = ANY ($1::bigint[])
"""

# A decision that rests on older rules is noticed by either number, the reader's caches by the second.
CHANGE_RULES_SQL = """
UPDATE core.scope_head h SET rules_version = k.rules_version, epoch_authz = h.epoch_authz + 1
FROM unnest($1::bigint[], $2::bigint[]) AS k (scope_key, rules_version) WHERE h.scope_key = k.scope_key
"""

INSERT_POLICY_SQL = """
INSERT INTO core.scope_policy
  (scope_key, policy_version, policy, policy_basis, actor_id, authenticated_as, operation_id, changed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""

FIRST_POLICY_SQL = """
SELECT policy FROM core.scope_policy WHERE scope_key = $1 AND policy_version = 1 AND policy_basis IS NULL
"""


async def load_rules(conn: Connection, scope_keys: Iterable[int]) -> dict[int, ScopeRules]:
    """The rules of these scopes as they are now, each with its version."""
    rows = await conn.fetch(LOAD_RULES_SQL, list(scope_keys))
    return {
        row["scope_key"]: ScopeRules(
            version=row["rules_version"],
            policy_version=row["policy_version"] or 0,
            policy=STRICT if row["policy"] is None else stored_policy(row["policy"]),
            schemas=dict(zip(row["schema_ids"] or (), row["digests"] or (), strict=True)),
            holds=tuple(map(Hold, row["hold_ids"] or (), row["object_types"] or ())),
        )
        for row in rows
    }


async def change_rules(conn: Connection, rows: Rows) -> None:
    """Write the changed rules of a transaction, and the versions that they have now."""
    await conn.execute(CHANGE_RULES_SQL, list(rows.rules), list(rows.rules.values()))
    for change in rows.administration:
        await record_change(conn, change)
    for policy in rows.policies:
        await insert_policy(conn, policy)
    for schema in rows.schemas:
        await insert_schema(conn, schema)
    for hold in rows.holds:
        await insert_hold(conn, hold)
    for release in rows.releases:
        await release_hold(conn, release)


async def insert_policy(conn: Connection, row: PolicyRow) -> None:
    """Add a version of a scope's policy."""
    await conn.execute(
        INSERT_POLICY_SQL,
        row.scope_key,
        row.policy_version,
        row.policy,
        row.policy_basis,
        row.actor_id,
        row.authenticated_as,
        row.operation_id,
        datetime.fromisoformat(row.changed_at),
    )


async def first_policy(conn: Connection, scope_key: int) -> bytes | None:
    """The policy that a scope was made with."""
    found: bytes | None = await conn.fetchval(FIRST_POLICY_SQL, scope_key)
    return found
