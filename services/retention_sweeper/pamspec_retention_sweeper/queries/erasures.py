"""Receipts of erasures: which are to be looked after, and what has become of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from pamspec_common.postgres import Connection
from pamspec_common.surfaces import CLOSED, NOT_PRESENT, OPEN, SURFACES

DUE_SQL = "SELECT scope_key FROM core.erasures_due($1)"
OPEN_SQL = "SELECT open, failing, oldest FROM core.erasures_open()"

# Those that waited longest. The lock lasts until they are noted: what a killed process held is free at once.
CLAIM_SQL = """
SELECT erasure_id, kind::text, subject_id, position, erased_from, erased_to, seal_salt, needles, surfaces::text,
  attempts, clock_timestamp() AS now
FROM core.erasure
WHERE scope_key = $1 AND closed_at IS NULL AND due_at <= clock_timestamp()
ORDER BY kind = 'f', due_at, erasure_id LIMIT $2 FOR UPDATE SKIP LOCKED
"""

NOTE_SQL = """
UPDATE core.erasure e SET surfaces = k.surfaces::jsonb, attempts = e.attempts + 1,
  due_at = clock_timestamp() + make_interval(secs => k.wait_s),
  closed_at = CASE WHEN k.closed THEN clock_timestamp() END,
  seal_salt = CASE WHEN NOT k.closed THEN e.seal_salt END, needles = CASE WHEN NOT k.closed THEN e.needles END
FROM unnest($2::text[], $3::text[], $4::float8[], $5::boolean[]) AS k (erasure_id, surfaces, wait_s, closed)
WHERE e.scope_key = $1 AND e.erasure_id = k.erasure_id
"""

PARTS_TOTAL_SQL = "SELECT count(*) FROM core.erasure p WHERE p.part_of = $2 AND p.scope_key = $1"
# The lines of all parts as one: settled where all are.
PARTS_SQL = """
SELECT s.key, count(*) FILTER (WHERE s.value ->> 'state' = 'closed') AS closed,
  count(*) FILTER (WHERE s.value ->> 'state' IN ('closed', 'not_present')) AS settled,
  max((s.value ->> 'position')::bigint) AS position, max((s.value ->> 'attempts')::integer) AS attempts,
  coalesce(sum((s.value ->> 'repairs')::integer), 0)::integer AS repairs, max(s.value ->> 'checked_at') AS checked_at,
  max(s.value ->> 'closed_at') AS closed_at, min(s.value ->> 'scan') AS scan, max(s.value ->> 'error') AS error
FROM core.erasure p CROSS JOIN LATERAL jsonb_each(p.surfaces) s
WHERE p.part_of = $2 AND p.scope_key = $1 GROUP BY s.key
"""


class Erasure(NamedTuple):
    """An open erasure, locked for this transaction."""

    erasure_id: str
    kind: str
    """d: delete, r: redact, f: forget."""
    subject_id: str | None
    position: int
    erased_from: list[int]
    erased_to: list[int]
    seal_salt: bytes | None
    needles: bytes | None
    surfaces: dict[str, dict[str, Any]]
    attempts: int
    now: datetime


class Noted(NamedTuple):
    """What has become of an erasure."""

    erasure_id: str
    surfaces: Mapping[str, Any]
    wait_s: float
    """How long until it is looked at again."""
    closed: bool


class Standing(NamedTuple):
    """How many erasures are open, and how many of them have met something that was still there."""

    open: int
    failing: int
    oldest: datetime | None


async def due(conn: Connection, limit: int) -> list[int]:
    """The scopes with erasures to look after."""
    return [row["scope_key"] for row in await conn.fetch(DUE_SQL, limit)]


async def standing(conn: Connection) -> Standing:
    """All that are open."""
    row = await conn.fetchrow(OPEN_SQL)
    assert row is not None
    return Standing(*row)


async def claim(conn: Connection, scope_key: int, limit: int) -> list[Erasure]:
    """Erasures of a scope that are due and that nobody else has in hand."""
    rows = await conn.fetch(CLAIM_SQL, scope_key, limit)
    return [Erasure(**{**dict(row), "surfaces": orjson.loads(row["surfaces"])}) for row in rows]


async def note(conn: Connection, scope_key: int, noted: Sequence[Noted]) -> None:
    """Write down what has become of them; what closes loses its needles and the salt that opens them."""
    await conn.execute(
        NOTE_SQL,
        scope_key,
        [one.erasure_id for one in noted],
        [orjson.dumps(one.surfaces).decode() for one in noted],
        [one.wait_s for one in noted],
        [one.closed for one in noted],
    )


async def parts(conn: Connection, scope_key: int, erasure_id: str) -> dict[str, dict[str, Any]]:
    """The lines of a forget made of those of its parts; where nothing was erased, nothing could be anywhere."""
    total: int = await conn.fetchval(PARTS_TOTAL_SQL, scope_key, erasure_id)
    found = {name: {"state": NOT_PRESENT, "attempts": 0} for name in SURFACES} if total == 0 else {}
    for row in await conn.fetch(PARTS_SQL, scope_key, erasure_id):
        state = OPEN if row["settled"] < total else CLOSED if row["closed"] else NOT_PRESENT
        line = {name: row[name] for name in _LINE if row[name] and not (name == "closed_at" and state == OPEN)}
        found[row["key"]] = {"state": state, "attempts": 0, **line}
    return found


_LINE = ("position", "attempts", "repairs", "checked_at", "closed_at", "scan", "error")
