"""The legal holds of a scope."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pamspec_common.postgres import Connection

HOLDS_SQL = """
SELECT l.hold_id, l.object_type, l.policy_basis, l.actor_id, l.authenticated_as, l.operation_id, l.placed_at,
       l.released_at, l.release_basis, l.released_by, l.release_operation_id,
       CASE WHEN l.released_at IS NULL THEN l.done_seq >= h.last_seq ELSE l.undone END AS settled
FROM core.legal_hold l JOIN core.scope_head h USING (scope_key)
WHERE l.scope_key = $1 AND ($2 OR l.released_at IS NULL) AND l.hold_id > $3
ORDER BY l.hold_id LIMIT $4
"""


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold over a type, or over the whole scope; who placed and who released it."""

    hold_id: str
    object_type: str | None
    policy_basis: str
    actor_id: str
    authenticated_as: str | None
    operation_id: str
    placed_at: datetime
    released_at: datetime | None
    release_basis: str | None
    released_by: str | None
    release_operation_id: str | None
    settled: bool


async def holds(conn: Connection, scope_key: int, after: str, limit: int, *, released: bool) -> list[Hold]:
    """Holds by their ids, in the order in which they were placed; with `released` also those of the past."""
    return [Hold(*row) for row in await conn.fetch(HOLDS_SQL, scope_key, released, after, limit)]
