"""The facts of objects, and what is due of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from pamspec_common.postgres import Connection
from pamspec_retention_sweeper.model.steps import ACTOR_ID, Facts, Step

JOBS = (ACTOR_ID, "service:legal-hold")
"""Jobs of the service, whose versions nobody counts as a write."""

HEADS_SQL = "SELECT object_id, from_seq, kind FROM retention.heads($1, $2, $3)"
FACTS_SQL = """
SELECT f.*, a.read_at FROM retention.facts($1, $2::text[], $3::text[], $4) f
LEFT JOIN LATERAL (
  SELECT x.read_at FROM retention.access x WHERE x.scope_key = $1 AND x.object_id = f.object_id LIMIT 1) a ON true
"""

# What is under way keeps its place: whoever finishes it looks at the object again.
SET_DUE_SQL = """
INSERT INTO retention.due AS d (scope_key, object_id, due_at, action, rule, look_at)
SELECT $1, k.object_id, k.due_at, k.action, k.rule, k.due_at
FROM unnest($2::text[], $3::timestamptz[], $4::text[], $5::text[]) AS k (object_id, due_at, action, rule)
ON CONFLICT (scope_key, object_id) DO UPDATE
SET due_at = excluded.due_at, action = excluded.action, rule = excluded.rule, look_at = excluded.look_at,
  held_up = NULL, tries = 0
WHERE d.claim IS NULL
"""
CLEAR_DUE_SQL = """
DELETE FROM retention.due WHERE scope_key = $1 AND object_id = ANY ($2::text[]) AND claim IS NULL
"""
NEXT_DUE_SQL = """
SELECT object_id, tries FROM retention.due WHERE scope_key = $1 AND look_at <= $2 AND claim IS NULL
ORDER BY look_at LIMIT $3
"""
CLAIMS_SQL = """
SELECT object_id, action, rule, claim FROM retention.due
WHERE scope_key = $1 AND claim IS NOT NULL ORDER BY object_id LIMIT $2
"""
CLAIM_SQL = """
UPDATE retention.due d SET claim = k.claim, action = k.action, rule = k.rule
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS k (object_id, claim, action, rule)
WHERE d.scope_key = $1 AND d.object_id = k.object_id AND d.claim IS NULL
"""
UNCLAIM_SQL = """
UPDATE retention.due SET claim = NULL WHERE scope_key = $1 AND object_id = ANY ($2::text[]) AND claim IS NOT NULL
RETURNING object_id, action, rule
"""
HOLD_UP_SQL = """
UPDATE retention.due d SET claim = NULL, held_up = k.code, tries = d.tries + 1,
  look_at = $2::timestamptz + make_interval(secs => $3)
FROM unnest($4::text[], $5::text[]) AS k (object_id, code) WHERE d.scope_key = $1 AND d.object_id = k.object_id
"""
TALLY_SQL = """
INSERT INTO retention.tally AS t (scope_key, action, rule, objects, last_at)
SELECT $1, k.action, k.rule, count(*), clock_timestamp()
FROM unnest($2::text[], $3::text[]) AS k (action, rule) GROUP BY k.action, k.rule
ON CONFLICT (scope_key, action, rule) DO UPDATE
SET objects = t.objects + excluded.objects, last_at = excluded.last_at
"""


@dataclass(frozen=True, slots=True)
class Heads:
    """Objects of a stretch of the ledger, where it ends, and whether nothing follows it."""

    object_ids: list[str]
    until: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """A command that is under way."""

    object_id: str
    action: str
    rule: str
    command: Mapping[str, Any]


async def next_heads(conn: Connection, scope_key: int, after: int, last_seq: int, limit: int) -> Heads:
    """The next objects whose heads follow a sequence; where there are none, the stretch ends at `last_seq`."""
    rows = await conn.fetch(HEADS_SQL, scope_key, after, limit)
    ended = len(rows) < limit
    until = max([last_seq, *(row["from_seq"] for row in rows)]) if ended else rows[-1]["from_seq"]
    return Heads([row["object_id"] for row in rows if row["kind"] == b"o"], until, ended)


async def facts(conn: Connection, scope_key: int, object_ids: Sequence[str], scored: bool) -> list[Facts]:
    """Objects as they are now; `scored` reads what a score is made of."""
    if not object_ids:
        return []
    return [_facts(row) for row in await conn.fetch(FACTS_SQL, scope_key, object_ids, JOBS, scored)]


async def set_steps(conn: Connection, scope_key: int, steps: Mapping[str, Step | None]) -> None:
    """What is due of these objects; those without a step are due for nothing."""
    due = {object_id: step for object_id, step in steps.items() if step is not None}
    if due:
        columns = ([step.at for step in due.values()], [step.action for step in due.values()])
        await conn.execute(SET_DUE_SQL, scope_key, list(due), *columns, [step.rule for step in due.values()])
    rest = [object_id for object_id, step in steps.items() if step is None]
    if rest:
        await conn.execute(CLEAR_DUE_SQL, scope_key, rest)


async def next_due(conn: Connection, scope_key: int, now: datetime, limit: int) -> dict[str, int]:
    """Objects to look at, those that waited longest first, and how often each was refused."""
    return {row["object_id"]: row["tries"] for row in await conn.fetch(NEXT_DUE_SQL, scope_key, now, limit)}


async def claims(conn: Connection, scope_key: int, limit: int) -> list[Claim]:
    """Commands that somebody began and nobody finished."""
    rows = await conn.fetch(CLAIMS_SQL, scope_key, limit)
    return [Claim(row["object_id"], row["action"], row["rule"], msgspec.json.decode(row["claim"])) for row in rows]


async def claim(conn: Connection, scope_key: int, wanted: Sequence[Claim]) -> None:
    """Write down what is about to be done, so that whoever comes next sends the same."""
    commands = [msgspec.json.encode(one.command).decode() for one in wanted]
    columns = ([one.action for one in wanted], [one.rule for one in wanted])
    await conn.execute(CLAIM_SQL, scope_key, [one.object_id for one in wanted], commands, *columns)


async def unclaim(conn: Connection, scope_key: int, object_ids: Sequence[str], done: Sequence[str]) -> None:
    """These commands are over; those of `done` were carried out, and count once."""
    rows = await conn.fetch(UNCLAIM_SQL, scope_key, object_ids)
    counted = [row for row in rows if row["object_id"] in set(done)]
    if counted:
        columns = ([row["action"] for row in counted], [row["rule"] for row in counted])
        await conn.execute(TALLY_SQL, scope_key, *columns)


async def hold_up(conn: Connection, scope_key: int, now: datetime, retry_s: float, refused: Mapping[str, str]) -> None:
    """These objects were refused, with the code of the error; they are looked at again later."""
    if refused:
        await conn.execute(HOLD_UP_SQL, scope_key, now, retry_s, list(refused), list(refused.values()))


def _facts(row: asyncpg.Record) -> Facts:
    private = {} if row["private"] is None else msgspec.json.decode(row["private"])
    return Facts(
        object_id=row["object_id"],
        version_id=row["version_id"],
        sequence=row["from_seq"],
        object_type=row["object_type"],
        lifecycle_state=row["lifecycle_state"],
        availability_state=row["availability_state"],
        retention_state=row["retention_state"],
        created_at=row["created_at"],
        changed_at=row["changed_at"],
        read_at=row["read_at"],
        state_since=row["state_since"],
        state_by=row["state_by"],
        valid_until=row["valid_until"],
        kept=row["kept"],
        content=None if row["content"] is None else msgspec.json.decode(row["content"]),
        quality=private.get("quality_signals") or {},
    )
