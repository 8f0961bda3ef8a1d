"""Every statement of a consumer, each beside its one typed function.

The consumer's own tables stand without a schema: the `search_path` of its connections is the schema of its service.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import asyncpg

from pamspec_common.consuming.model import Entry, Place, Span
from pamspec_common.postgres import Connection

SELECT_PARTITIONS_SQL = "SELECT DISTINCT partition FROM core.scope ORDER BY partition"

# No lease and no member lasts ten minutes: what ends later was written before the store's clock jumped back, and who
# wrote it has renewed it by now if it lives.
UPSERT_MEMBER_SQL = """
WITH gone AS (DELETE FROM member WHERE expires_at < clock_timestamp() - interval '1 minute' AND owner <> $1),
mine AS (
  INSERT INTO member (owner, expires_at) VALUES ($1, clock_timestamp() + $2::interval)
  ON CONFLICT (owner) DO UPDATE SET expires_at = excluded.expires_at)
SELECT 1 + count(*) FROM member
WHERE owner <> $1 AND expires_at > clock_timestamp() AND expires_at < clock_timestamp() + interval '10 minutes'"""

DELETE_MEMBER_SQL = """
WITH mine AS (DELETE FROM member WHERE owner = $1)
UPDATE lease SET expires_at = '-infinity' WHERE owner = $1"""

SELECT_FREE_SQL = """
SELECT p.partition FROM unnest($1::smallint[]) AS p(partition)
WHERE NOT EXISTS (
  SELECT FROM lease l WHERE l.partition = p.partition AND l.expires_at > clock_timestamp()
    AND l.expires_at < clock_timestamp() + interval '10 minutes')
ORDER BY p.partition"""

KEEP_LEASES_SQL = """
INSERT INTO lease AS l (partition, owner, expires_at)
SELECT p.partition, $1, clock_timestamp() + $3::interval FROM unnest($2::smallint[]) AS p(partition) ORDER BY 1
ON CONFLICT (partition) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
  WHERE l.owner = excluded.owner OR l.expires_at <= clock_timestamp()
    OR l.expires_at >= clock_timestamp() + interval '10 minutes'
RETURNING partition"""

RELEASE_LEASE_SQL = "UPDATE lease SET expires_at = '-infinity' WHERE partition = $1 AND owner = $2"

SELECT_PLACES_SQL = """
SELECT s.scope_token, s.scope_key, h.ledger_epoch, h.last_seq AS head, coalesce(i.last_seq, 0) AS taken,
       coalesce(i.ledger_epoch, 0) AS taken_epoch
FROM core.scope s
JOIN core.scope_head h ON h.scope_key = s.scope_key
LEFT JOIN inbox i ON i.scope_key = s.scope_key
WHERE s.scope_token = ANY ($1::text[])"""

SELECT_BEHIND_SQL = """
SELECT s.scope_token, s.scope_key, h.ledger_epoch, h.last_seq AS head, coalesce(i.last_seq, 0) AS taken,
       coalesce(i.ledger_epoch, 0) AS taken_epoch
FROM core.scope s
JOIN core.scope_head h ON h.scope_key = s.scope_key
LEFT JOIN inbox i ON i.scope_key = s.scope_key
WHERE s.partition = $1
  AND (h.last_seq > coalesce(i.last_seq, 0) OR h.ledger_epoch <> coalesce(i.ledger_epoch, h.ledger_epoch))
ORDER BY s.scope_key LIMIT $2"""

SELECT_LEDGER_SQL = """
SELECT l.scope_key, l.sequence, l.event_id, l.event_type, l.event
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS r(scope_key, after, upto, n)
CROSS JOIN LATERAL (
  SELECT * FROM core.ledger e
  WHERE e.scope_key = r.scope_key AND e.sequence > r.after AND e.sequence <= r.upto ORDER BY e.sequence) l
ORDER BY r.n, l.sequence LIMIT $4"""

MOVE_SQL = """
INSERT INTO inbox AS i (scope_key, last_seq, ledger_epoch)
SELECT r.scope_key, r.upto, r.epoch
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::integer[]) AS r(scope_key, after, upto, epoch)
WHERE r.after = 0 OR EXISTS (SELECT FROM inbox known WHERE known.scope_key = r.scope_key)
ORDER BY r.scope_key
ON CONFLICT (scope_key) DO UPDATE SET last_seq = excluded.last_seq
  WHERE i.ledger_epoch = excluded.ledger_epoch
    AND i.last_seq = (SELECT r.after FROM unnest($1::bigint[], $2::bigint[]) AS r(scope_key, after)
                      WHERE r.scope_key = i.scope_key)
RETURNING scope_key"""

FORGET_SQL = """
WITH gone AS (DELETE FROM parked WHERE scope_key = $1)
DELETE FROM inbox WHERE scope_key = $1 AND ledger_epoch = $2 RETURNING scope_key"""

PARK_SQL = """
INSERT INTO parked (scope_key, sequence, event_id, event_type, reason)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[])
ON CONFLICT (scope_key, sequence) DO UPDATE
  SET reason = excluded.reason, parked_at = clock_timestamp(), asked = NULL, asked_at = NULL"""

SELECT_PARKED_SQL = """
SELECT scope_key, sequence, event_id, event_type, reason, parked_at FROM parked
WHERE (scope_key, sequence) > ($1, $2) ORDER BY scope_key, sequence LIMIT $3"""

SELECT_ASKED_SQL = """
SELECT scope_key, sequence, asked FROM parked WHERE asked IS NOT NULL ORDER BY scope_key, sequence LIMIT $1"""

SKIP_PARKED_SQL = "DELETE FROM parked WHERE scope_key = $1 AND sequence = $2 AND asked = 'skip'"

PARK_AGAIN_SQL = """
UPDATE parked SET reason = $3, parked_at = clock_timestamp(), asked = NULL, asked_at = NULL
WHERE scope_key = $1 AND sequence = $2"""

COUNT_PARKED_SQL = "SELECT count(*) FROM parked"

TAKE_PARKED_SQL = """
WITH taken AS (DELETE FROM parked WHERE scope_key = $1 AND sequence = $2 RETURNING scope_key, sequence)
SELECT l.scope_key, l.sequence, l.event_id, l.event_type, l.event
FROM taken t JOIN core.ledger l ON l.scope_key = t.scope_key AND l.sequence = t.sequence"""


@dataclass(frozen=True)
class Parked:
    """An entry that the effect could not take."""

    scope_key: int
    sequence: int
    event_id: str
    event_type: str
    reason: str
    parked_at: datetime


class AskedFor(NamedTuple):
    """A parked entry that an operator wants something done with: replay or skip."""

    scope_key: int
    sequence: int
    asked: str


async def fetch_partitions(conn: Connection) -> list[int]:
    """The partitions that scopes are stored with."""
    return [row[0] for row in await conn.fetch(SELECT_PARTITIONS_SQL)]


async def upsert_member(conn: Connection, owner: str, ttl: timedelta) -> int:
    """Say that this process lives; how many do."""
    return int(await conn.fetchval(UPSERT_MEMBER_SQL, owner, ttl))


async def leave(conn: Connection, owner: str) -> None:
    """Give back all that a process holds."""
    await conn.execute(DELETE_MEMBER_SQL, owner)


async def fetch_free(conn: Connection, partitions: Sequence[int]) -> list[int]:
    """Those of these partitions that nobody holds."""
    return [row[0] for row in await conn.fetch(SELECT_FREE_SQL, partitions)]


async def keep_leases(conn: Connection, owner: str, partitions: Sequence[int], ttl: timedelta) -> set[int]:
    """Renew leases, and take those that are free; which of these partitions the process holds now."""
    return {row[0] for row in await conn.fetch(KEEP_LEASES_SQL, owner, partitions, ttl)}


async def release_lease(conn: Connection, partition: int, owner: str) -> None:
    """Let another process take it at once."""
    await conn.execute(RELEASE_LEASE_SQL, partition, owner)


async def fetch_places(conn: Connection, scope_tokens: Collection[str]) -> dict[str, Place]:
    """How far these scopes are, by token; those that are not here are left out."""
    return {row["scope_token"]: _place(row) for row in await conn.fetch(SELECT_PLACES_SQL, list(scope_tokens))}


async def fetch_behind(conn: Connection, partition: int, limit: int) -> list[Place]:
    """Scopes of a partition whose ledger has gone further than what took effect."""
    return [_place(row) for row in await conn.fetch(SELECT_BEHIND_SQL, partition, limit)]


async def fetch_ledger(conn: Connection, spans: Sequence[Span], limit: int) -> list[Entry]:
    """The entries of these spans in their order, at most `limit`."""
    rows = await conn.fetch(SELECT_LEDGER_SQL, *([span[n] for span in spans] for n in range(3)), limit)
    return [Entry(*row) for row in rows]


async def move(conn: Connection, reached: Mapping[int, tuple[int, int]], epochs: Mapping[int, int]) -> set[int]:
    """Move scopes from the first to the second position of each; those that stood there, and are locked now."""
    keys = sorted(reached)
    rows = await conn.fetch(
        MOVE_SQL, keys, [reached[key][0] for key in keys], [reached[key][1] for key in keys], [epochs[k] for k in keys]
    )
    return {row[0] for row in rows}


async def forget(conn: Connection, place: Place) -> bool:
    """Begin a scope again; False when somebody else has."""
    return await conn.fetchval(FORGET_SQL, place.scope_key, place.taken_epoch) is not None


async def park(conn: Connection, entries: Sequence[tuple[Entry, str]]) -> None:
    """Keep entries that the effect could not take, each with its reason."""
    await conn.execute(
        PARK_SQL,
        [entry.scope_key for entry, _ in entries],
        [entry.sequence for entry, _ in entries],
        [entry.event_id for entry, _ in entries],
        [entry.event_type for entry, _ in entries],
        [reason for _, reason in entries],
    )


async def fetch_parked(conn: Connection, after: tuple[int, int] = (0, 0), limit: int = 100) -> list[Parked]:
    """Parked entries in the order of (scope key, sequence), after a place."""
    return [Parked(*row) for row in await conn.fetch(SELECT_PARKED_SQL, *after, limit)]


async def count_parked(conn: Connection) -> int:
    """How many are parked."""
    return int(await conn.fetchval(COUNT_PARKED_SQL))


async def take_parked(conn: Connection, scope_key: int, sequence: int) -> Entry | None:
    """Take an entry out of those parked; None when it is not there."""
    row = await conn.fetchrow(TAKE_PARKED_SQL, scope_key, sequence)
    return None if row is None else Entry(*row)


async def fetch_asked(conn: Connection, limit: int) -> list[AskedFor]:
    """Parked entries that something is to be done with."""
    return [AskedFor(*row) for row in await conn.fetch(SELECT_ASKED_SQL, limit)]


async def skip_parked(conn: Connection, scope_key: int, sequence: int) -> None:
    """Pass over an entry that an operator gave up; it stays in the ledger."""
    await conn.execute(SKIP_PARKED_SQL, scope_key, sequence)


async def park_again(conn: Connection, scope_key: int, sequence: int, reason: str) -> None:
    """A replay failed: the entry stays, with the reason of today, and is asked for no more."""
    await conn.execute(PARK_AGAIN_SQL, scope_key, sequence, reason)


def _place(row: asyncpg.Record) -> Place:
    return Place(row["scope_key"], row["ledger_epoch"], row["head"], row["taken"], row["taken_epoch"])
