"""Statements that move cursors and say who holds a subscription."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import asyncpg

from pamspec_common.postgres import Connection
from pamspec_subscription.model import Subscription

MOVE_SQL = """
UPDATE subscription.subscription SET
  cursor_sequence = greatest(cursor_sequence, $3), delivered_sequence = greatest(delivered_sequence, $4),
  progressed_at = CASE WHEN $3 > cursor_sequence THEN clock_timestamp() ELSE progressed_at END,
  channel_epoch = channel_epoch + CASE WHEN $6 THEN 1 ELSE 0 END,
  channel_kind = CASE WHEN $6 THEN $7 ELSE channel_kind END
WHERE tenant_id = $1 AND subscription_id = $2 AND state = 'open' AND ($5::bigint IS NULL OR delivered_sequence = $5)
RETURNING channel_epoch
"""
ACKNOWLEDGE_SQL = """
UPDATE subscription.subscription SET cursor_sequence = $3, acked_ahead = $4,
  progressed_at = CASE WHEN $3 > cursor_sequence THEN clock_timestamp() ELSE progressed_at END
WHERE tenant_id = $1 AND subscription_id = $2
"""
RESET_SQL = """
WITH reset AS (
  UPDATE subscription.subscription SET cursor_sequence = $3, delivered_sequence = $3, channel_sequence = $3,
    acked_ahead = '{}', progressed_at = clock_timestamp(), channel_epoch = channel_epoch + 1, channel_kind = NULL
  WHERE tenant_id = $1 AND subscription_id = $2 AND state = 'open' RETURNING tenant_id, subscription_id, channel_epoch
), endpoint AS (
  UPDATE subscription.webhook w SET next_attempt_at = clock_timestamp(), failures = 0, failing_since = NULL,
    parked = false, outcome = NULL, status = NULL, stands_at = NULL, stands_at_event = NULL, resets = resets + 1
  FROM reset WHERE w.tenant_id = reset.tenant_id AND w.subscription_id = reset.subscription_id)
SELECT channel_epoch FROM reset
"""
TAKE_SQL = """
UPDATE subscription.subscription SET channel_epoch = channel_epoch + 1, channel_kind = $3,
  cursor_sequence = greatest(cursor_sequence, $4),
  progressed_at = CASE WHEN $4 > cursor_sequence THEN clock_timestamp() ELSE progressed_at END
WHERE tenant_id = $1 AND subscription_id = $2 AND state = 'open' RETURNING channel_epoch
"""
LEAVE_SQL = """
UPDATE subscription.subscription SET channel_sequence = greatest(channel_sequence, $4),
  channel_kind = CASE WHEN channel_epoch = $3 THEN NULL ELSE channel_kind END
WHERE tenant_id = $1 AND subscription_id = $2
"""
PROGRESS_SQL = """
UPDATE subscription.subscription s SET channel_sequence = greatest(s.channel_sequence, k.sequence),
  progressed_at = CASE WHEN k.healthy THEN clock_timestamp() ELSE s.progressed_at END
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[]) AS k(tenant_id, subscription_id, sequence, healthy)
WHERE s.tenant_id = k.tenant_id AND s.subscription_id = k.subscription_id AND s.state = 'open'
"""
PASS_OVER_SQL = """
UPDATE subscription.subscription SET cursor_sequence = greatest(cursor_sequence, $3),
  delivered_sequence = greatest(delivered_sequence, $3)
WHERE tenant_id = $1 AND subscription_id = $2 AND state = 'open'
"""
WAITING_SINCE_SQL = """
UPDATE subscription.subscription SET progressed_at = greatest(progressed_at, $3)
WHERE tenant_id = $1 AND subscription_id = $2 AND state = 'open'
"""
STANDING_SQL = """
SELECT s.tenant_id, s.subscription_id, s.channel_epoch, s.cursor_sequence, s.acked_ahead
FROM unnest($1::text[], $2::text[]) AS k(tenant_id, subscription_id)
JOIN subscription.subscription s ON s.tenant_id = k.tenant_id AND s.subscription_id = k.subscription_id
"""


async def move(
    conn: Connection,
    subscription: Subscription,
    cursor: int,
    delivered: int,
    *,
    only_from: int | None = None,
    take: str | None = None,
    release: bool = False,
) -> int | None:
    """Move cursor and delivered position forward, never back; the channel epoch, or None when nothing was done.

    `only_from`: only while the delivered position still stands there (two polls at once). `take` names what holds the
    subscription from now on; `release` ends whatever held it.
    """
    epoch: int | None = await conn.fetchval(
        MOVE_SQL, *subscription.key, cursor, delivered, only_from, take is not None or release, take
    )
    return epoch


async def acknowledge(conn: Connection, subscription: Subscription, cursor: int, ahead: Sequence[int]) -> None:
    """Write a cursor with the single acknowledgements beyond it; the row must be locked."""
    await conn.execute(ACKNOWLEDGE_SQL, *subscription.key, cursor, ahead)


async def reset(conn: Connection, subscription: Subscription, sequence: int) -> int | None:
    """Put every position of an open subscription there and end whatever holds it; the new channel epoch."""
    epoch: int | None = await conn.fetchval(RESET_SQL, *subscription.key, sequence)
    return epoch


async def take(conn: Connection, subscription: Subscription, kind: str, cursor: int) -> int | None:
    """A new channel takes over, acknowledging up to `cursor`; its channel epoch, None when it is not open."""
    epoch: int | None = await conn.fetchval(TAKE_SQL, *subscription.key, kind, cursor)
    return epoch


async def leave(conn: Connection, subscription: Subscription, channel_epoch: int, sequence: int) -> None:
    """A channel ends where it stands."""
    await conn.execute(LEAVE_SQL, *subscription.key, channel_epoch, sequence)


async def progress(conn: Connection, rows: Iterable[tuple[str, str, int, bool]]) -> None:
    """Note how far channels are: (tenant, subscription, sequence, whether its client keeps pace)."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    if columns:
        await conn.execute(PROGRESS_SQL, *columns)


async def pass_over(conn: Connection, subscription: Subscription, to: int) -> None:
    """Move past entries that the filter excludes (S11); that is no acknowledgement."""
    await conn.execute(PASS_OVER_SQL, *subscription.key, to)


async def waiting_since(conn: Connection, subscription: Subscription, since: datetime) -> None:
    """The oldest unacknowledged event is of then, so that it need not be looked at again before it is old enough."""
    await conn.execute(WAITING_SINCE_SQL, *subscription.key, since)


async def standings(conn: Connection, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], asyncpg.Record]:
    """channel_epoch, cursor_sequence and acked_ahead of many subscriptions in one query."""
    rows = await conn.fetch(STANDING_SQL, [tenant for tenant, _ in keys], [name for _, name in keys])
    return {(row["tenant_id"], row["subscription_id"]): row for row in rows}
