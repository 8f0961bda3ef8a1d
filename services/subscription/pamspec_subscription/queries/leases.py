"""Statements on the leases of subscriptions that the service pushes itself.

Nobody holds a lease of a suspended tenant for longer than a round: it is neither claimed nor renewed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pamspec_common.postgres import Connection

# No lease lasts ten minutes: one that ends later was written before the store's clock jumped back.
CLAIM_SQL = """
UPDATE subscription.subscription SET lease_owner = $1, lease_expires_at = clock_timestamp() + $2::interval,
  channel_epoch = channel_epoch + 1, channel_kind = 'nats'
WHERE (tenant_id, subscription_id) IN (
  SELECT tenant_id, subscription_id FROM subscription.subscription
  WHERE state IN ('open', 'closing') AND channel = 'nats'
    AND (lease_owner IS NULL OR lease_expires_at < clock_timestamp()
      OR lease_expires_at > clock_timestamp() + interval '10 minutes') AND opened_sequence IS NOT NULL
    AND NOT EXISTS (SELECT FROM core.tenant t WHERE t.tenant_id = subscription.tenant_id AND t.state = 'suspended')
  ORDER BY created_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED)
RETURNING tenant_id, subscription_id, channel_epoch
"""
RENEW_SQL = """
UPDATE subscription.subscription s SET lease_expires_at = clock_timestamp() + $2::interval
FROM unnest($3::text[], $4::text[]) AS k(tenant_id, subscription_id)
WHERE s.tenant_id = k.tenant_id AND s.subscription_id = k.subscription_id AND s.lease_owner = $1
  AND NOT EXISTS (SELECT FROM core.tenant t WHERE t.tenant_id = s.tenant_id AND t.state = 'suspended')
RETURNING s.tenant_id, s.subscription_id
"""
RELEASE_SQL = """
UPDATE subscription.subscription s SET lease_owner = NULL, lease_expires_at = NULL
FROM unnest($2::text[], $3::text[]) AS k(tenant_id, subscription_id)
WHERE s.tenant_id = k.tenant_id AND s.subscription_id = k.subscription_id AND s.lease_owner = $1
"""


async def claim(conn: Connection, owner: str, lease: timedelta, limit: int) -> dict[tuple[str, str], int]:
    """Take leases of subscriptions over NATS that nobody holds; the channel epoch of each."""
    rows = await conn.fetch(CLAIM_SQL, owner, lease, limit)
    return {(row["tenant_id"], row["subscription_id"]): row["channel_epoch"] for row in rows}


async def renew(
    conn: Connection, owner: str, lease: timedelta, keys: Sequence[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Renew leases; those that are still held, and whose tenants are not suspended."""
    rows = await conn.fetch(RENEW_SQL, owner, lease, [tenant for tenant, _ in keys], [name for _, name in keys])
    return {(row["tenant_id"], row["subscription_id"]) for row in rows}


async def release(conn: Connection, owner: str, keys: Sequence[tuple[str, str]]) -> None:
    """Give leases back, so that another process can take them at once."""
    await conn.execute(RELEASE_SQL, owner, [tenant for tenant, _ in keys], [name for _, name in keys])
