"""Every statement of the relay, each beside its one typed function.

What an owner changes is guarded by the epoch of its lease: `relay.position.lease_epoch` is raised when a new owner
adopts the partition, so a statement of the owner before it finds no row and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pamspec_common.postgres import Connection
from pamspec_relay.model import Entry, Position, Ranges, Seen, Span

REPAIR_TIMEOUT_S = 600.0

SELECT_PARTITIONS_SQL = "SELECT DISTINCT partition FROM core.scope ORDER BY partition"

# No lease and no member lasts ten minutes: what ends later was written before the store's clock jumped back, and who
# wrote it has renewed it by now if it lives.
UPSERT_MEMBER_SQL = """
WITH gone AS (DELETE FROM relay.member WHERE expires_at < clock_timestamp() - interval '1 minute'),
mine AS (
  INSERT INTO relay.member (owner, expires_at) VALUES ($1, clock_timestamp() + $2::interval)
  ON CONFLICT (owner) DO UPDATE SET expires_at = excluded.expires_at)
SELECT 1 + count(*) FROM relay.member
WHERE owner <> $1 AND expires_at > clock_timestamp() AND expires_at < clock_timestamp() + interval '10 minutes'"""

DELETE_MEMBER_SQL = "DELETE FROM relay.member WHERE owner = $1"

SELECT_FREE_SQL = """
SELECT p.partition FROM unnest($1::smallint[]) AS p(partition)
WHERE NOT EXISTS (
  SELECT FROM relay.lease l WHERE l.partition = p.partition AND l.expires_at > clock_timestamp()
    AND l.expires_at < clock_timestamp() + interval '10 minutes')
ORDER BY p.partition"""

TAKE_SQL = """
INSERT INTO relay.lease AS l (partition, owner, epoch, expires_at)
SELECT $1, $2, 1 + coalesce((SELECT q.lease_epoch FROM relay.position q WHERE q.partition = $1), 0),
       clock_timestamp() + $3::interval
ON CONFLICT (partition) DO UPDATE
  SET owner = excluded.owner, epoch = greatest(l.epoch + 1, excluded.epoch),
      expires_at = clock_timestamp() + $3::interval
  WHERE l.expires_at <= clock_timestamp() OR l.expires_at >= clock_timestamp() + interval '10 minutes'
RETURNING epoch"""

RENEW_SQL = """
UPDATE relay.lease l SET expires_at = clock_timestamp() + $4::interval
FROM unnest($1::smallint[], $2::bigint[]) AS held(partition, epoch)
WHERE l.partition = held.partition AND l.epoch = held.epoch AND l.owner = $3
RETURNING l.partition"""

RELEASE_SQL = """
UPDATE relay.lease SET expires_at = '-infinity' WHERE partition = $1 AND epoch = $2 AND owner = $3"""

HOLDS_SQL = "SELECT EXISTS (SELECT FROM relay.lease WHERE partition = $1 AND epoch = $2 AND owner = $3)"

ADOPT_SQL = """
UPDATE relay.position SET lease_epoch = $2
WHERE partition = $1 AND lease_epoch <= $2
  AND EXISTS (SELECT FROM relay.lease WHERE partition = $1 AND epoch = $2 AND owner = $3)
RETURNING stream_created, stream_seq, first_seq, deleted"""

SELECT_OUTBOX_SQL = "SELECT * FROM relay.waiting_entries($1, $2, $3, $4, $5)"

SETTLE_SQL = """
WITH moved AS (
  UPDATE relay.position SET stream_seq = $4, updated_at = clock_timestamp()
  WHERE partition = $1 AND lease_epoch = $2 AND stream_created = $3 RETURNING 1),
gone AS (
  DELETE FROM relay.outbox WHERE partition = $1 AND id = ANY ($5::bigint[]) AND EXISTS (SELECT FROM moved)
  RETURNING scope_key)
SELECT (SELECT count(*) FROM moved), (SELECT array_agg(DISTINCT scope_key) FROM gone)"""

SETTLE_READ_BACK_SQL = """
WITH moved AS (
  UPDATE relay.position SET stream_seq = $4, updated_at = clock_timestamp()
  WHERE partition = $1 AND lease_epoch = $2 AND stream_created = $3 RETURNING 1),
gone AS (
  DELETE FROM relay.outbox o USING unnest($5::text[], $6::text[]) AS r(subject, event_id)
  WHERE o.partition = $1 AND o.event_id = r.event_id AND o.subject = r.subject AND EXISTS (SELECT FROM moved))
SELECT count(*) FROM moved"""

FINISH_REPAIR_SQL = """
WITH moved AS (
  INSERT INTO relay.position AS q (partition, lease_epoch, stream_created, stream_seq, first_seq, deleted)
  SELECT $1, $2, $4, $5, $6, $7
  WHERE EXISTS (SELECT FROM relay.lease WHERE partition = $1 AND epoch = $2 AND owner = $3)
  ON CONFLICT (partition) DO UPDATE
    SET lease_epoch = excluded.lease_epoch, stream_created = excluded.stream_created, stream_seq = excluded.stream_seq,
        first_seq = excluded.first_seq, deleted = excluded.deleted, updated_at = clock_timestamp()
    WHERE q.lease_epoch <= excluded.lease_epoch
  RETURNING 1),
gone AS (
  DELETE FROM relay.outbox o USING unnest($8::bigint[], $9::bigint[], $10::bigint[]) AS r(scope_key, low, high)
  WHERE o.partition = $1 AND o.scope_key = r.scope_key AND o.sequence BETWEEN r.low AND r.high
    AND EXISTS (SELECT FROM moved))
SELECT count(*) FROM moved"""

INSERT_MARK_SQL = """
WITH old AS (DELETE FROM relay.mark WHERE partition = $1 AND marked_at < clock_timestamp() - $6::interval)
INSERT INTO relay.mark (partition, stream_created, stream_seq)
SELECT $1, $2, $3 WHERE EXISTS (SELECT FROM relay.lease WHERE partition = $1 AND epoch = $4 AND owner = $5)
  AND NOT EXISTS (SELECT FROM relay.mark WHERE partition = $1 AND stream_created = $2
                  AND marked_at > clock_timestamp() - $6::interval / 1000)
ON CONFLICT DO NOTHING"""

SELECT_YOUNG_MARK_SQL = """
SELECT stream_seq FROM relay.mark
WHERE partition = $1 AND stream_created = $2 AND marked_at > clock_timestamp() - $3::interval
ORDER BY marked_at LIMIT 1"""

SELECT_SCOPES_SQL = """
SELECT s.scope_key, s.tenant_token, s.scope_token, h.ledger_epoch
FROM core.scope s JOIN core.scope_head h ON h.scope_key = s.scope_key
WHERE s.partition = $1 AND ($2::text[] IS NULL OR s.scope_token = ANY ($2))"""

SELECT_CONTRADICTION_SQL = """
SELECT r.scope_key, r.sequence, l.event_id IS NULL AS unknown
FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS r(scope_key, sequence, event_id)
LEFT JOIN core.ledger l ON l.scope_key = r.scope_key AND l.sequence = r.sequence
WHERE l.event_id IS DISTINCT FROM r.event_id LIMIT 1"""

# The floor of a scope is its last entry older than max_age: found by bisection, since recorded_at grows with sequence.
SELECT_REPAIR_SQL = """
WITH RECURSIVE heads AS MATERIALIZED (
  SELECT s.scope_key, s.tenant_token, s.scope_token, h.ledger_epoch, h.last_seq,
         clock_timestamp() - $2::interval AS oldest
  FROM core.scope s JOIN core.scope_head h ON h.scope_key = s.scope_key WHERE s.partition = $1),
search (scope_key, oldest, low, high) AS (
  SELECT scope_key, oldest, 0::bigint, last_seq FROM heads
  UNION ALL
  SELECT s.scope_key, s.oldest,
         CASE WHEN l.recorded_at < s.oldest THEN l.sequence ELSE s.low END,
         CASE WHEN l.recorded_at < s.oldest THEN s.high ELSE l.sequence - 1 END
  FROM search s JOIN core.ledger l ON l.scope_key = s.scope_key AND l.sequence = (s.low + s.high + 1) / 2
  WHERE s.low < s.high),
waiting AS (
  SELECT scope_key, array_agg(low ORDER BY low) AS lows, array_agg(high ORDER BY low) AS highs
  FROM (
    SELECT scope_key, min(sequence) AS low, max(sequence) AS high
    FROM (SELECT scope_key, sequence, sequence - row_number() OVER (PARTITION BY scope_key ORDER BY sequence) AS island
          FROM relay.outbox WHERE partition = $1) o
    GROUP BY scope_key, island) spans
  GROUP BY scope_key)
SELECT h.scope_key, h.tenant_token, h.scope_token, h.ledger_epoch, h.last_seq, f.low AS floor, w.lows, w.highs
FROM heads h JOIN search f ON f.scope_key = h.scope_key AND f.low = f.high
LEFT JOIN waiting w ON w.scope_key = h.scope_key
ORDER BY h.scope_key"""

SELECT_LEDGER_SQL = """
SELECT l.scope_key, l.sequence, l.event_id, l.event_type, l.event
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS r(scope_key, low, high, n)
CROSS JOIN LATERAL (
  SELECT * FROM core.ledger
  WHERE scope_key = r.scope_key AND sequence BETWEEN r.low AND r.high ORDER BY sequence) l
ORDER BY r.n, l.sequence"""

SELECT_WAITING_SQL = """
SELECT p.partition,
  (SELECT count(*) FROM (SELECT FROM relay.outbox o WHERE o.partition = p.partition LIMIT $2) counted) AS depth,
  (SELECT extract(epoch FROM clock_timestamp() - o.created_at)::float8
   FROM relay.outbox o WHERE o.partition = p.partition ORDER BY o.id LIMIT 1) AS age_s
FROM unnest($1::smallint[]) AS p(partition)"""


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease as its owner names it in every statement."""

    partition: int
    epoch: int
    owner: str


@dataclass(frozen=True, slots=True)
class ScopeFacts:
    """What a repair knows of a scope."""

    scope_key: int
    tenant_token: str
    scope_token: str
    ledger_epoch: int
    last_seq: int
    floor: int
    """The last sequence that is older than what the stream keeps."""
    waiting: Ranges
    """Sequences in the outbox."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How much of a partition waits for the bus."""

    partition: int
    depth: int
    age_s: float


async def fetch_partitions(conn: Connection) -> list[int]:
    """Partitions that scopes have, also beyond today's number."""
    return [row["partition"] for row in await conn.fetch(SELECT_PARTITIONS_SQL)]


async def upsert_member(conn: Connection, owner: str, ttl: timedelta) -> int:
    """Say that this relay lives; how many live, itself included."""
    return int(await conn.fetchval(UPSERT_MEMBER_SQL, owner, ttl))


async def delete_member(conn: Connection, owner: str) -> None:
    """Say that this relay is gone."""
    await conn.execute(DELETE_MEMBER_SQL, owner)


async def fetch_free(conn: Connection, partitions: Sequence[int]) -> list[int]:
    """Which of these partitions nobody holds."""
    return [row["partition"] for row in await conn.fetch(SELECT_FREE_SQL, partitions)]


async def take_lease(conn: Connection, partition: int, owner: str, ttl: timedelta) -> int | None:
    """The epoch of a lease taken now, or None when another was first."""
    epoch: int | None = await conn.fetchval(TAKE_SQL, partition, owner, ttl)
    return epoch


async def renew_leases(conn: Connection, claims: Sequence[Claim], owner: str, ttl: timedelta) -> set[int]:
    """The partitions of these leases that are still held, now for `ttl` from now on."""
    rows = await conn.fetch(RENEW_SQL, [c.partition for c in claims], [c.epoch for c in claims], owner, ttl)
    return {row["partition"] for row in rows}


async def release_lease(conn: Connection, claim: Claim) -> None:
    """End a lease at once."""
    await conn.execute(RELEASE_SQL, claim.partition, claim.epoch, claim.owner)


async def holds_lease(conn: Connection, claim: Claim) -> bool:
    """Whether nobody has taken the lease since."""
    return bool(await conn.fetchval(HOLDS_SQL, claim.partition, claim.epoch, claim.owner))


async def adopt_position(conn: Connection, claim: Claim) -> Position | None:
    """The partition's position, from now on changed by this claim only; None without a row or without the lease."""
    row = await conn.fetchrow(ADOPT_SQL, claim.partition, claim.epoch, claim.owner)
    return None if row is None else Position(*row)


async def fetch_outbox(
    conn: Connection, claim: Claim, under_way: Sequence[int], limit: int
) -> tuple[list[int], list[Entry]]:
    """Ids and events of the lowest waiting rows but those under way, with the ledger epoch of now."""
    rows = await conn.fetch(SELECT_OUTBOX_SQL, claim.partition, under_way, limit, claim.epoch, claim.owner)
    return [row[0] for row in rows], [Entry(row[1], row[2], row[3], row[4], row[5], row[6]) for row in rows]


async def settle(conn: Connection, claim: Claim, created: str, stream_seq: int, ids: Sequence[int]) -> list[int] | None:
    """Delete acknowledged rows and move the position; the scopes of the rows, None when the position is another's."""
    row = await conn.fetchrow(SETTLE_SQL, claim.partition, claim.epoch, created, stream_seq, ids)
    return list(row[1] or ()) if row is not None and row[0] == 1 else None


async def settle_read_back(
    conn: Connection, claim: Claim, created: str, stream_seq: int, found: Sequence[Seen]
) -> bool:
    """As settle, by the events that were read back from the stream."""
    subjects, events = [item.subject for item in found], [item.event_id for item in found]
    moved = await conn.fetchval(
        SETTLE_READ_BACK_SQL, claim.partition, claim.epoch, created, stream_seq, subjects, events
    )
    return int(moved) == 1


async def finish_repair(conn: Connection, claim: Claim, position: Position, stored: Sequence[Span]) -> bool:
    """Set the position and delete the rows that the stream has; False when the lease or position is another's."""
    moved = await conn.fetchval(
        FINISH_REPAIR_SQL,
        claim.partition,
        claim.epoch,
        claim.owner,
        position.stream_created,
        position.stream_seq,
        position.first_seq,
        position.deleted,
        [span.scope_key for span in stored],
        [span.low for span in stored],
        [span.high for span in stored],
    )
    return int(moved) == 1


async def insert_mark(conn: Connection, claim: Claim, created: str, stream_seq: int, keep: timedelta) -> None:
    """Note where the stream stands now, about a thousand times within `keep`; older notes go."""
    await conn.execute(INSERT_MARK_SQL, claim.partition, created, stream_seq, claim.epoch, claim.owner, keep)


async def fetch_young_mark(conn: Connection, partition: int, created: str, age: timedelta) -> int | None:
    """Where the stream stood at the oldest note younger than `age`."""
    sequence: int | None = await conn.fetchval(SELECT_YOUNG_MARK_SQL, partition, created, age)
    return sequence


async def fetch_scopes(
    conn: Connection, partition: int, scope_tokens: Sequence[str] | None = None
) -> Mapping[tuple[str, str], tuple[int, int]]:
    """(tenant token, scope token) -> (scope key, ledger epoch), of all scopes of a partition or of those named."""
    rows = await conn.fetch(SELECT_SCOPES_SQL, partition, scope_tokens, timeout=REPAIR_TIMEOUT_S)
    return {(row[1], row[2]): (row[0], row[3]) for row in rows}


async def fetch_contradiction(
    conn: Connection, scope_keys: Sequence[int], sequences: Sequence[int], event_ids: Sequence[str]
) -> tuple[int, int, bool] | None:
    """A (scope key, sequence) that the ledger knows with another event or, then True, not at all."""
    row = await conn.fetchrow(SELECT_CONTRADICTION_SQL, scope_keys, sequences, event_ids)
    return None if row is None else (row[0], row[1], row[2])


async def fetch_repair(conn: Connection, partition: int, max_age: timedelta) -> list[ScopeFacts]:
    """Of every scope what should be on the bus, and what waits in the outbox, as of one moment."""
    async with conn.transaction():
        await conn.execute(f"SET LOCAL statement_timeout = '{int(REPAIR_TIMEOUT_S)}s'")
        rows = await conn.fetch(SELECT_REPAIR_SQL, partition, max_age, timeout=REPAIR_TIMEOUT_S)
    facts = []
    for row in rows:
        waiting = Ranges()
        for low, high in zip(row["lows"] or (), row["highs"] or (), strict=True):
            waiting.add(low, high)
        facts.append(ScopeFacts(row[0], row[1], row[2], row[3], row[4], row[5], waiting))
    return facts


async def fetch_ledger(conn: Connection, page: Sequence[Span]) -> list[tuple[int, int, str, str, bytes]]:
    """(scope key, sequence, event id, event type, event) of these spans, in their order."""
    rows = await conn.fetch(
        SELECT_LEDGER_SQL, [s.scope_key for s in page], [s.low for s in page], [s.high for s in page]
    )
    return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]


async def fetch_waiting(conn: Connection, partitions: Sequence[int], limit: int) -> list[Waiting]:
    """Depth, counted up to `limit`, and age of the oldest row of each partition."""
    rows = await conn.fetch(SELECT_WAITING_SQL, partitions, limit)
    return [Waiting(row["partition"], row["depth"], row["age_s"] or 0.0) for row in rows]
