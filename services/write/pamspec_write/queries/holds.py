"""Legal holds: what a decision writes of them, and what the job reads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pamspec_common.documents import Retention
from pamspec_common.postgres import Connection
from pamspec_write.model.facts import ScopeRef
from pamspec_write.model.rows import HoldRow, ReleaseRow, Rows

INSERT_HOLD_SQL = """
INSERT INTO core.legal_hold (scope_key, hold_id, object_type, policy_basis, actor_id, authenticated_as, operation_id,
  placed_at, placed_seq)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""

RELEASE_HOLD_SQL = """
UPDATE core.legal_hold SET released_at = $3, release_basis = $4, released_by = $5, release_operation_id = $6
WHERE scope_key = $1 AND hold_id = $2
"""

INSERT_HELD_SQL = """
INSERT INTO core.held_object (scope_key, object_id, hold_id, retention_state)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[])
ON CONFLICT (object_id, scope_key) DO UPDATE SET hold_id = excluded.hold_id, retention_state = excluded.retention_state
"""

PASS_ON_SQL = """
UPDATE core.held_object o SET hold_id = k.hold_id
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS k (scope_key, object_id, hold_id)
WHERE o.object_id = k.object_id AND o.scope_key = k.scope_key
"""

LET_GO_SQL = """
DELETE FROM core.held_object o USING unnest($1::bigint[], $2::text[]) AS k (scope_key, object_id)
WHERE o.object_id = k.object_id AND o.scope_key = k.scope_key
"""

HOLDS_DUE_SQL = (
    "SELECT scope_key, hold_id, tenant_id, scope_id, tenant_token, scope_token, partition FROM core.holds_due($1)"
)

# One process works on a hold at a time; what a killed one leaves is taken up when its lease has run out.
# No lease lasts ten minutes: one that ends later was written before the store's clock jumped back.
LEASE_HOLD_SQL = """
UPDATE core.legal_hold SET leased_until = clock_timestamp() + make_interval(secs => $3)
WHERE scope_key = $1 AND hold_id = $2 AND NOT undone
  AND (leased_until < clock_timestamp() OR leased_until > clock_timestamp() + interval '10 minutes')
RETURNING object_type, policy_basis, release_basis, released_at IS NOT NULL AS released, done_seq
"""

RENEW_HOLD_SQL = """
UPDATE core.legal_hold SET leased_until = clock_timestamp() + make_interval(secs => $3),
  done_seq = greatest(done_seq, $4), undone = $5
WHERE scope_key = $1 AND hold_id = $2
"""

# Heads beyond a ledger sequence in its order; those that are held, or gone, are passed over by their index only.
NEXT_HEADS_SQL = """
SELECT object_id, from_seq,
  retention_state <> 'legal_hold' AND availability_state <> 'deleted' AND kind IN ('o', 'r')
    AND ($3::text IS NULL OR (kind = 'o' AND object_type = $3)) AS covered
FROM core.version_span
WHERE scope_key = $1 AND from_seq > $2 AND to_seq = 9223372036854775807 ORDER BY from_seq LIMIT $4
"""

LAST_SEQ_SQL = "SELECT last_seq FROM core.scope_head WHERE scope_key = $1"

NEXT_HELD_SQL = """
SELECT object_id, retention_state FROM core.held_object
WHERE hold_id = $1 AND scope_key = $2 ORDER BY object_id LIMIT $3
"""


@dataclass(frozen=True, slots=True)
class LeasedHold:
    """A hold that this process works on."""

    ref: ScopeRef
    hold_id: str
    object_type: str | None
    policy_basis: str
    release_basis: str | None
    released: bool
    done_seq: int


@dataclass(frozen=True, slots=True)
class NextHeads:
    """Objects of a stretch of the ledger that a hold covers, and where the stretch ends."""

    object_ids: list[str]
    until: int
    ended: bool


async def insert_hold(conn: Connection, row: HoldRow) -> None:
    """Add a hold."""
    await conn.execute(
        INSERT_HOLD_SQL,
        row.scope_key,
        row.hold_id,
        row.object_type,
        row.policy_basis,
        row.actor_id,
        row.authenticated_as,
        row.operation_id,
        datetime.fromisoformat(row.placed_at),
        row.placed_seq,
    )


async def release_hold(conn: Connection, row: ReleaseRow) -> None:
    """Mark a hold as released."""
    await conn.execute(
        RELEASE_HOLD_SQL,
        row.scope_key,
        row.hold_id,
        datetime.fromisoformat(row.released_at),
        row.release_basis,
        row.released_by,
        row.release_operation_id,
    )


async def change_held(conn: Connection, rows: Rows) -> None:
    """Remember which objects the job has moved, in the transaction that moves them."""
    if rows.held:
        columns = [[one.scope_key for one in rows.held], [one.object_id for one in rows.held]]
        before = [one.retention_state for one in rows.held]
        await conn.execute(INSERT_HELD_SQL, *columns, [one.hold_id for one in rows.held], before)
    if rows.passed_on:
        await conn.execute(PASS_ON_SQL, *map(list, zip(*rows.passed_on, strict=True)))
    if rows.let_go:
        await conn.execute(LET_GO_SQL, *map(list, zip(*rows.let_go, strict=True)))


async def holds_due(conn: Connection, limit: int) -> list[tuple[ScopeRef, str]]:
    """Holds with work, and their scopes."""
    rows = await conn.fetch(HOLDS_DUE_SQL, limit)
    return [
        (
            ScopeRef(
                row["scope_key"],
                row["tenant_id"],
                row["scope_id"],
                row["tenant_token"],
                row["scope_token"],
                row["partition"],
            ),
            row["hold_id"],
        )
        for row in rows
    ]


async def lease_hold(conn: Connection, ref: ScopeRef, hold_id: str, seconds: float) -> LeasedHold | None:
    """Take a hold's work, for that long; None when somebody else has it."""
    row = await conn.fetchrow(LEASE_HOLD_SQL, ref.scope_key, hold_id, seconds)
    return None if row is None else LeasedHold(ref, hold_id, *row)


async def renew_hold(
    conn: Connection, hold: LeasedHold, seconds: float, *, done_seq: int = 0, undone: bool = False
) -> None:
    """Say how far the work is, and keep it for that long; 0 gives it back."""
    await conn.execute(RENEW_HOLD_SQL, hold.ref.scope_key, hold.hold_id, seconds, done_seq, undone)


async def next_heads(conn: Connection, hold: LeasedHold, after: int, limit: int) -> NextHeads:
    """The next stretch of heads; `until` is how far the ledger went when nothing followed."""
    last: int = await conn.fetchval(LAST_SEQ_SQL, hold.ref.scope_key)
    rows = await conn.fetch(NEXT_HEADS_SQL, hold.ref.scope_key, after, hold.object_type, limit)
    ended = len(rows) < limit
    until = last if ended else rows[-1]["from_seq"]
    return NextHeads([row["object_id"] for row in rows if row["covered"]], until, ended)


async def next_held(conn: Connection, hold: LeasedHold, limit: int) -> list[tuple[str, Retention]]:
    """Objects that a released hold still holds, and their retention before."""
    rows = await conn.fetch(NEXT_HELD_SQL, hold.hold_id, hold.ref.scope_key, limit)
    return [(row["object_id"], row["retention_state"]) for row in rows]
