"""Statements on the endpoints of webhooks: claimed, taken, failed, ended; and on the log of their attempts.

Whoever delivers writes under the channel epoch of its claim: once another has taken over, or the owner has reset the
subscription, nothing of it counts any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

from pamspec_common.postgres import Connection
from pamspec_subscription.model import Subscription

Key = tuple[str, str]

# No lease lasts ten minutes: one that ends later was written before the store's clock jumped back.
CLAIM_SQL = """
WITH free AS (
  SELECT s.tenant_id, s.subscription_id, w.next_attempt_at,
    row_number() OVER (PARTITION BY s.tenant_id ORDER BY w.next_attempt_at) AS place
  FROM subscription.webhook w
  JOIN subscription.subscription s ON s.tenant_id = w.tenant_id AND s.subscription_id = w.subscription_id
  WHERE w.secrets IS NOT NULL AND w.next_attempt_at <= clock_timestamp() AND (w.failures > 0) = $3
    AND s.state <> 'opening' AND (s.lease_owner IS NULL OR s.lease_expires_at < clock_timestamp()
      OR s.lease_expires_at > clock_timestamp() + interval '10 minutes')
    AND NOT EXISTS (SELECT FROM core.tenant t WHERE t.tenant_id = s.tenant_id AND t.state = 'suspended')
), due AS (
  SELECT s.tenant_id, s.subscription_id FROM free
  LEFT JOIN unnest($6::text[], $7::integer[]) AS held(tenant_id, places) ON held.tenant_id = free.tenant_id
  JOIN subscription.subscription s ON s.tenant_id = free.tenant_id AND s.subscription_id = free.subscription_id
  WHERE free.place <= $5 - coalesce(held.places, 0)
    AND (s.lease_owner IS NULL OR s.lease_expires_at < clock_timestamp()
      OR s.lease_expires_at > clock_timestamp() + interval '10 minutes')
  ORDER BY free.next_attempt_at LIMIT $4 FOR NO KEY UPDATE OF s SKIP LOCKED)
UPDATE subscription.subscription s SET lease_owner = $1, lease_expires_at = clock_timestamp() + $2::interval,
  channel_epoch = channel_epoch + 1, channel_kind = 'webhook'
FROM due WHERE s.tenant_id = due.tenant_id AND s.subscription_id = due.subscription_id
RETURNING s.tenant_id, s.subscription_id
"""
NEXT_DUE_SQL = """
SELECT extract(epoch FROM min(w.next_attempt_at) - clock_timestamp())::float8 FROM subscription.webhook w
WHERE w.secrets IS NOT NULL AND w.next_attempt_at > clock_timestamp()
"""
ENDPOINT_SQL = """
SELECT url, secrets, resets, attempts, failures, failing_since, next_attempt_at, parked, outcome, status, stands_at,
  stands_at_event
FROM subscription.webhook WHERE tenant_id = $1 AND subscription_id = $2
"""
LOCK_SECRETS_SQL = """
SELECT w.secrets, s.state, clock_timestamp() AS now FROM subscription.subscription s
JOIN subscription.webhook w ON w.tenant_id = s.tenant_id AND w.subscription_id = s.subscription_id
WHERE s.tenant_id = $1 AND s.subscription_id = $2 FOR NO KEY UPDATE OF s
"""
SET_SECRETS_SQL = """
WITH restarted AS (
  UPDATE subscription.subscription SET channel_epoch = channel_epoch + 1, channel_kind = NULL
  WHERE tenant_id = $1 AND subscription_id = $2 RETURNING tenant_id, subscription_id, channel_epoch)
UPDATE subscription.webhook w SET secrets = $3
FROM restarted r WHERE w.tenant_id = r.tenant_id AND w.subscription_id = r.subscription_id RETURNING r.channel_epoch
"""
TAKEN_SQL = """
WITH moved AS (
  UPDATE subscription.subscription SET cursor_sequence = greatest(cursor_sequence, $4),
    delivered_sequence = greatest(delivered_sequence, $4), channel_sequence = greatest(channel_sequence, $4),
    progressed_at = clock_timestamp()
  WHERE tenant_id = $1 AND subscription_id = $2 AND channel_epoch = $3 RETURNING tenant_id, subscription_id
), counted AS (
  UPDATE subscription.webhook w SET attempts = w.attempts + 1, failures = 0, failing_since = NULL, parked = false,
    outcome = NULL, status = NULL, stands_at = NULL, stands_at_event = NULL
  FROM moved WHERE w.tenant_id = moved.tenant_id AND w.subscription_id = moved.subscription_id
  RETURNING w.scope_key, w.subscription_id, w.attempts
), trimmed AS (
  DELETE FROM subscription.webhook_delivery d USING counted c
  WHERE d.scope_key = c.scope_key AND d.subscription_id = c.subscription_id AND d.attempt <= c.attempts - $10)
INSERT INTO subscription.webhook_delivery
  (scope_key, subscription_id, attempt, outcome, status, latency_ms, events, first_sequence, last_sequence)
SELECT scope_key, subscription_id, attempts, $5, $6, $7, $8, $9, $4 FROM counted RETURNING attempt
"""
FAILED_SQL = """
WITH freed AS (
  UPDATE subscription.subscription SET lease_owner = NULL, lease_expires_at = NULL, channel_kind = NULL
  WHERE tenant_id = $1 AND subscription_id = $2 AND channel_epoch = $3 RETURNING tenant_id, subscription_id
), counted AS (
  UPDATE subscription.webhook w SET attempts = w.attempts + 1, failures = w.failures + 1,
    failing_since = coalesce(w.failing_since, clock_timestamp()), next_attempt_at = clock_timestamp() + $11::interval,
    parked = $12, outcome = $5, status = $6, stands_at = $9, stands_at_event = $13
  FROM freed WHERE w.tenant_id = freed.tenant_id AND w.subscription_id = freed.subscription_id
  RETURNING w.scope_key, w.subscription_id, w.attempts
), trimmed AS (
  DELETE FROM subscription.webhook_delivery d USING counted c
  WHERE d.scope_key = c.scope_key AND d.subscription_id = c.subscription_id AND d.attempt <= c.attempts - $10)
INSERT INTO subscription.webhook_delivery
  (scope_key, subscription_id, attempt, outcome, status, latency_ms, events, first_sequence, last_sequence)
SELECT scope_key, subscription_id, attempts, $5, $6, $7, $8, $9, $4 FROM counted RETURNING attempt
"""
PASS_OVER_SQL = """
UPDATE subscription.subscription SET cursor_sequence = greatest(cursor_sequence, $4),
  delivered_sequence = greatest(delivered_sequence, $4)
WHERE tenant_id = $1 AND subscription_id = $2 AND channel_epoch = $3 AND state = 'open'
"""
POSTPONE_SQL = """
WITH freed AS (
  UPDATE subscription.subscription SET lease_owner = NULL, lease_expires_at = NULL, channel_kind = NULL
  WHERE tenant_id = $1 AND subscription_id = $2 AND lease_owner = $3 RETURNING tenant_id, subscription_id)
UPDATE subscription.webhook w SET next_attempt_at = clock_timestamp() + $4::interval
FROM freed WHERE w.tenant_id = freed.tenant_id AND w.subscription_id = freed.subscription_id
"""
AT_ONCE_SQL = """
UPDATE subscription.webhook SET next_attempt_at = clock_timestamp(), failures = 0, failing_since = NULL,
  parked = false, outcome = NULL, status = NULL, stands_at = NULL, stands_at_event = NULL
WHERE tenant_id = $1 AND subscription_id = $2
"""
SKIP_SQL = """
WITH parked AS (
  SELECT w.tenant_id, w.subscription_id, w.scope_key, w.attempts FROM subscription.subscription s
  JOIN subscription.webhook w ON w.tenant_id = s.tenant_id AND w.subscription_id = s.subscription_id
  WHERE s.tenant_id = $1 AND s.subscription_id = $2 AND w.parked AND w.stands_at = $3 AND s.state = 'open'
  FOR NO KEY UPDATE OF s
), moved AS (
  UPDATE subscription.subscription s SET cursor_sequence = greatest(cursor_sequence, $3),
    delivered_sequence = greatest(delivered_sequence, $3), channel_epoch = channel_epoch + 1, channel_kind = NULL,
    progressed_at = clock_timestamp()
  FROM parked WHERE s.tenant_id = parked.tenant_id AND s.subscription_id = parked.subscription_id
  RETURNING s.channel_epoch
), again AS (
  UPDATE subscription.webhook w SET next_attempt_at = clock_timestamp(), failures = 0, failing_since = NULL,
    parked = false, outcome = NULL, status = NULL, stands_at = NULL, stands_at_event = NULL, attempts = w.attempts + 1
  FROM parked WHERE w.tenant_id = parked.tenant_id AND w.subscription_id = parked.subscription_id
  RETURNING w.scope_key, w.subscription_id, w.attempts
), logged AS (
  INSERT INTO subscription.webhook_delivery
    (scope_key, subscription_id, attempt, outcome, latency_ms, events, first_sequence, last_sequence)
  SELECT scope_key, subscription_id, attempts, 'skipped', 0, 1, $3, $3 FROM again)
SELECT channel_epoch FROM moved
"""
ENDED_SQL = """
WITH ended AS (
  UPDATE subscription.subscription SET lease_owner = NULL, lease_expires_at = NULL, channel_kind = NULL
  WHERE tenant_id = $1 AND subscription_id = $2 AND state IN ('closing', 'closed') RETURNING scope_key, subscription_id
), erased AS (
  DELETE FROM subscription.webhook_delivery d USING ended e
  WHERE d.scope_key = e.scope_key AND d.subscription_id = e.subscription_id)
UPDATE subscription.webhook w SET secrets = NULL, parked = false, outcome = NULL, status = NULL, stands_at = NULL,
  stands_at_event = NULL
FROM ended WHERE w.tenant_id = $1 AND w.subscription_id = ended.subscription_id RETURNING w.subscription_id
"""
DELIVERIES_SQL = """
SELECT attempt, at, outcome, status, latency_ms, events, first_sequence, last_sequence
FROM subscription.webhook_delivery WHERE scope_key = $1 AND subscription_id = $2 AND attempt < $3
ORDER BY attempt DESC LIMIT $4
"""
FORGET_SQL = """
DELETE FROM subscription.webhook_delivery WHERE (scope_key, subscription_id, attempt) IN (
  SELECT scope_key, subscription_id, attempt FROM subscription.webhook_delivery
  WHERE at < clock_timestamp() - $1::interval LIMIT $2)
"""


@dataclass(frozen=True)
class Endpoint:
    """The endpoint of a subscription and how it fares."""

    url: str
    secrets: bytes | None
    """Stored form; None before they are shown for the first time and after the end."""
    resets: int
    attempts: int
    failures: int
    failing_since: datetime | None
    next_attempt_at: datetime
    parked: bool
    outcome: str | None
    status: int | None
    stands_at: int | None
    stands_at_event: str | None


@dataclass(frozen=True)
class Tried:
    """An attempt as the log keeps it."""

    outcome: str
    status: int | None
    latency_ms: int
    events: int
    first: int
    last: int


async def claim(
    conn: Connection, owner: str, lease: timedelta, limit: int, share: int, held: Mapping[str, int], *, failing: bool
) -> list[Key]:
    """Take leases of what is due and held by nobody: of endpoints that took the last delivery, or of `failing` ones.

    No tenant gets more than its `share`, of which it has the places `held` by tenant.
    """
    places = (list(held), list(held.values()))
    rows = await conn.fetch(CLAIM_SQL, owner, lease, failing, limit, share, *places)
    return [(row["tenant_id"], row["subscription_id"]) for row in rows]


async def next_due(conn: Connection) -> float | None:
    """In how many seconds the next endpoint is due that is not due now."""
    seconds: float | None = await conn.fetchval(NEXT_DUE_SQL)
    return seconds


async def endpoint(conn: Connection, key: Key) -> Endpoint | None:
    """The endpoint of a subscription."""
    row = await conn.fetchrow(ENDPOINT_SQL, *key)
    return None if row is None else Endpoint(**row)


async def lock_secrets(conn: Connection, key: Key) -> tuple[bytes | None, datetime] | None:
    """The stored secrets of an open subscription, locked until the transaction ends, and the time."""
    row = await conn.fetchrow(LOCK_SECRETS_SQL, *key)
    return None if row is None or row["state"] != "open" else (row["secrets"], row["now"])


async def set_secrets(conn: Connection, key: Key, secrets: bytes) -> int:
    """Put other secrets in the place of the stored ones; a delivery under way starts over, under this channel epoch."""
    epoch: int = await conn.fetchval(SET_SECRETS_SQL, *key, secrets)
    return epoch


async def taken(conn: Connection, of: Subscription, tried: Tried, log_rows: int) -> bool:
    """The endpoint took it: the cursor moves; False when somebody else delivers now."""
    return await conn.fetchval(TAKEN_SQL, *_attempt(of, tried, log_rows)) is not None


async def failed(
    conn: Connection, of: Subscription, tried: Tried, log_rows: int, delay: timedelta, *, parked: bool, event_id: str
) -> bool:
    """It did not: delivery stands at `tried.first`, the lease is given back, and the next attempt is due after a while.

    False when somebody else delivers now.
    """
    values = (*_attempt(of, tried, log_rows), delay, parked, event_id)
    return await conn.fetchval(FAILED_SQL, *values) is not None


def _attempt(of: Subscription, tried: Tried, log_rows: int) -> tuple[object, ...]:
    answered = (tried.outcome, tried.status, tried.latency_ms, tried.events)
    return (*of.key, of.channel_epoch, tried.last, *answered, tried.first, log_rows)


async def pass_over(conn: Connection, of: Subscription, to: int) -> None:
    """Everything up to there was taken or was never to be delivered (S11)."""
    await conn.execute(PASS_OVER_SQL, *of.key, of.channel_epoch, to)


async def postpone(conn: Connection, key: Key, owner: str, delay: timedelta) -> None:
    """Give a lease back; nobody takes it for a while."""
    await conn.execute(POSTPONE_SQL, *key, owner, delay)


async def at_once(conn: Connection, key: Key) -> None:
    """Forget the failures: the next attempt is due now."""
    await conn.execute(AT_ONCE_SQL, *key)


async def skip(conn: Connection, key: Key, sequence: int) -> int | None:
    """Pass over the parked event, in the log too; the new channel epoch, None when delivery does not stand there."""
    epoch: int | None = await conn.fetchval(SKIP_SQL, *key, sequence)
    return epoch


async def ended(conn: Connection, key: Key) -> bool:
    """A subscription that closed is delivered no more: its secrets and its log are erased. False while it is open."""
    return await conn.fetchval(ENDED_SQL, *key) is not None


async def deliveries(conn: Connection, of: Subscription, before: int, limit: int) -> Sequence[asyncpg.Record]:
    """The log of attempts before a number, the newest first."""
    return await conn.fetch(DELIVERIES_SQL, of.scope_key, of.subscription_id, before, limit)


async def forget(conn: Connection, age: timedelta, limit: int) -> int:
    """Delete log entries that are older; how many."""
    return int((await conn.execute(FORGET_SQL, age, limit)).rpartition(" ")[2])
