"""A scope's policy, as it is and as it was."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pamspec_common.postgres import Connection

CURRENT_POLICY_SQL = """
SELECT policy_version, policy FROM core.scope_policy WHERE scope_key = $1 ORDER BY policy_version DESC LIMIT 1
"""

POLICY_VERSIONS_SQL = """
SELECT policy_version, policy, policy_basis, actor_id, authenticated_as, operation_id, changed_at
FROM core.scope_policy WHERE scope_key = $1 AND policy_version < $2 ORDER BY policy_version DESC LIMIT $3
"""


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """A policy that a scope has or had, and who set it."""

    policy_version: int
    policy: bytes
    policy_basis: str | None
    actor_id: str
    authenticated_as: str | None
    operation_id: str
    changed_at: datetime


async def current_policy(conn: Connection, scope_key: int) -> tuple[int, bytes | None]:
    """The version and the document of a scope's policy; (0, None) where it has none."""
    row = await conn.fetchrow(CURRENT_POLICY_SQL, scope_key)
    return (0, None) if row is None else (row["policy_version"], row["policy"])


async def policy_versions(conn: Connection, scope_key: int, before: int, limit: int) -> list[PolicyVersion]:
    """The policies with versions lower than `before`, the newest first."""
    return [PolicyVersion(*row) for row in await conn.fetch(POLICY_VERSIONS_SQL, scope_key, before, limit)]
