"""Statements on the rows of subscriptions: found, opened, closed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import asyncpg
import msgspec
import orjson

from pamspec_common.postgres import Connection
from pamspec_common.principal import Principal
from pamspec_subscription.model import Delivery, Head, Subscription

Row = asyncpg.Record

_COLUMNS = """
  s.tenant_id, s.subscription_id, s.scope_key, s.scope_id, s.principal, s.actor, s.state, s.channel, s.filter,
  s.delivery, s.include_content, s.evaluation_run_id, s.operation_id, s.request_hash, s.ledger_epoch, s.after_sequence,
  s.start_sequence, s.cursor_sequence, s.delivered_sequence, s.acked_ahead, s.closed_reason,
  s.last_delivered_sequence, s.channel_epoch, s.channel_kind, w.url AS webhook_url,
  h.last_seq, h.ledger_epoch AS head_epoch, h.epoch_authz, t.epoch_authz AS tenant_authz,
  t.state = 'suspended' AS suspended
FROM subscription.subscription s
JOIN core.scope_head h ON h.scope_key = s.scope_key
JOIN core.tenant t ON t.tenant_id = s.tenant_id
LEFT JOIN subscription.webhook w ON w.tenant_id = s.tenant_id AND w.subscription_id = s.subscription_id
"""

LOAD_SQL = f"SELECT {_COLUMNS} WHERE s.tenant_id = $1 AND s.subscription_id = $2"
LOCK_SQL = LOAD_SQL + " FOR NO KEY UPDATE OF s"
FIND_REQUEST_SQL = f"""
SELECT {_COLUMNS} WHERE s.scope_key = $1 AND s.principal_id = $2 AND (s.idempotency_key = $3 OR s.operation_id = $4)
ORDER BY s.idempotency_key = $3 DESC LIMIT 1
"""
LIST_SQL = f"""
SELECT {_COLUMNS} WHERE s.tenant_id = $1 AND ($2::text IS NULL OR s.principal_id = $2)
  AND ($3::bigint IS NULL OR s.scope_key = $3) AND s.subscription_id > $4 AND s.state <> 'opening'
ORDER BY s.subscription_id LIMIT $5
"""
LEFTOVERS_SQL = f"""
SELECT {_COLUMNS} WHERE s.state IN ('opening', 'closing') AND s.changed_at < clock_timestamp() - $1::interval
ORDER BY s.changed_at LIMIT 100
"""
UNACKNOWLEDGED_SQL = f"""
SELECT {_COLUMNS} WHERE s.state = 'open' AND s.progressed_at < clock_timestamp() - $1::interval
  AND t.state <> 'suspended' AND t.state_at < clock_timestamp() - $1::interval AND s.cursor_sequence < h.last_seq
ORDER BY s.progressed_at LIMIT 100
"""
DELETED_SQL = f"""
SELECT {_COLUMNS} JOIN core.scope_deletion d ON d.scope_key = s.scope_key WHERE s.state = 'open'
ORDER BY s.scope_key, s.subscription_id LIMIT 100
"""
DELEGATED_SQL = f"""
SELECT {_COLUMNS} WHERE s.state = 'open' AND s.delegation_id IS NOT NULL AND s.subscription_id > $1
  AND t.state <> 'suspended'
ORDER BY s.subscription_id LIMIT $2
"""

_principal = msgspec.json.Decoder(Principal)


def _subscription(row: Row) -> Subscription:
    return Subscription(
        tenant_id=row["tenant_id"],
        subscription_id=row["subscription_id"],
        scope_key=row["scope_key"],
        scope_id=row["scope_id"],
        principal=_principal.decode(row["principal"]),
        actor=orjson.loads(row["actor"]),
        state=row["state"],
        channel=row["channel"],
        filter=orjson.loads(row["filter"]),
        delivery=Delivery(**orjson.loads(row["delivery"])),
        include_content=row["include_content"],
        evaluation_run_id=row["evaluation_run_id"],
        operation_id=row["operation_id"],
        request_hash=row["request_hash"],
        ledger_epoch=row["ledger_epoch"],
        after_sequence=row["after_sequence"],
        start_sequence=row["start_sequence"],
        cursor=row["cursor_sequence"],
        delivered=row["delivered_sequence"],
        acked_ahead=tuple(row["acked_ahead"]),
        closed_reason=row["closed_reason"],
        last_delivered=row["last_delivered_sequence"],
        channel_epoch=row["channel_epoch"],
        channel_kind=row["channel_kind"],
        webhook_url=row["webhook_url"],
        suspended=row["suspended"],
        head=Head(row["last_seq"], row["head_epoch"], (row["epoch_authz"], row["tenant_authz"])),
    )


async def load(conn: Connection, tenant_id: str, subscription_id: str) -> Subscription | None:
    """A subscription with the head of its scope, in one snapshot."""
    row = await conn.fetchrow(LOAD_SQL, tenant_id, subscription_id)
    return None if row is None else _subscription(row)


async def lock(conn: Connection, tenant_id: str, subscription_id: str) -> Subscription | None:
    """The same, locked against other acknowledgements until the transaction ends."""
    row = await conn.fetchrow(LOCK_SQL, tenant_id, subscription_id)
    return None if row is None else _subscription(row)


async def find_request(
    conn: Connection, scope_key: int, principal_id: str, key: str, operation_id: str | None
) -> Subscription | None:
    """The subscription that an earlier request with this key, or this operation_id, opened."""
    row = await conn.fetchrow(FIND_REQUEST_SQL, scope_key, principal_id, key, operation_id)
    return None if row is None else _subscription(row)


async def list_page(
    conn: Connection, tenant_id: str, principal_id: str | None, scope_key: int | None, after_id: str, limit: int
) -> list[Subscription]:
    """Subscriptions in order of their ids; `principal_id` None: of everybody."""
    rows = await conn.fetch(LIST_SQL, tenant_id, principal_id, scope_key, after_id, limit)
    return [_subscription(row) for row in rows]


async def leftovers(conn: Connection, age: timedelta) -> list[Subscription]:
    """Subscriptions whose opening or closing was interrupted at least `age` ago."""
    return [_subscription(row) for row in await conn.fetch(LEFTOVERS_SQL, age)]


async def delegated(conn: Connection, after_id: str, limit: int) -> list[Subscription]:
    """Open subscriptions under a grant, in order of their ids."""
    return [_subscription(row) for row in await conn.fetch(DELEGATED_SQL, after_id, limit)]


async def unacknowledged(conn: Connection, age: timedelta) -> list[Subscription]:
    """Open subscriptions behind their head without an acknowledgement for `age`."""
    return [_subscription(row) for row in await conn.fetch(UNACKNOWLEDGED_SQL, age)]


async def of_deleted_scopes(conn: Connection) -> list[Subscription]:
    """Open subscriptions to scopes that were deleted."""
    return [_subscription(row) for row in await conn.fetch(DELETED_SQL)]


INSERT_SQL = """
WITH opening AS (
  INSERT INTO subscription.subscription (
    tenant_id, subscription_id, scope_key, scope_id, principal, principal_id, actor, state, channel, filter, delivery,
    include_content, evaluation_run_id, operation_id, idempotency_key, request_hash, ledger_epoch, after_sequence,
    delegation_id)
  VALUES ($1, $2, $3, $4, $5, $6, $7, 'opening', $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $19)
  ON CONFLICT DO NOTHING RETURNING tenant_id, subscription_id, scope_key
), endpoint AS (
  INSERT INTO subscription.webhook (tenant_id, subscription_id, scope_key, url)
  SELECT tenant_id, subscription_id, scope_key, $18 FROM opening WHERE $18::text IS NOT NULL)
SELECT count(*) FROM opening
"""
OPENED_SQL = """
UPDATE subscription.subscription SET state = 'open', changed_at = clock_timestamp(), opened_sequence = $3,
  start_sequence = coalesce(after_sequence, $3), cursor_sequence = coalesce(after_sequence, $3),
  delivered_sequence = coalesce(after_sequence, $3), channel_sequence = coalesce(after_sequence, $3),
  progressed_at = clock_timestamp()
WHERE tenant_id = $1 AND subscription_id = $2 AND state = 'opening'
"""
REFUSED_SQL = (
    "DELETE FROM subscription.subscription WHERE tenant_id = $1 AND subscription_id = $2 AND state = 'opening'"
)
# Who may follow a deleted scope no more has lost the scope, and not a right.
CLOSING_SQL = """
WITH closing AS (
  UPDATE subscription.subscription s SET state = 'closing', changed_at = clock_timestamp(),
    closed_reason = CASE WHEN $3::text = 'authorization_revoked'
        AND EXISTS (SELECT FROM core.scope_deletion d WHERE d.scope_key = s.scope_key)
      THEN 'scope_deleted' ELSE $3::text END,
    last_delivered_sequence = greatest(cursor_sequence, delivered_sequence, channel_sequence, $4)
  WHERE tenant_id = $1 AND subscription_id = $2 AND state = 'open' AND ($5::bigint IS NULL OR EXISTS (
    SELECT FROM core.tenant t WHERE t.tenant_id = $1 AND t.epoch_authz = $5 AND t.state <> 'suspended'))
  RETURNING tenant_id, subscription_id)
UPDATE subscription.webhook w SET next_attempt_at = clock_timestamp(), failures = 0, parked = false
FROM closing WHERE w.tenant_id = closing.tenant_id AND w.subscription_id = closing.subscription_id
"""
CLOSED_SQL = """
UPDATE subscription.subscription SET state = 'closed', changed_at = clock_timestamp(), closed_sequence = $3,
  lease_owner = CASE WHEN channel = 'webhook' THEN lease_owner END, channel_kind = NULL
WHERE tenant_id = $1 AND subscription_id = $2 AND state = 'closing'
"""

REMOVE_OFFBOARDED_SQL = """
DELETE FROM subscription.subscription WHERE (tenant_id, subscription_id) IN (
  SELECT s.tenant_id, s.subscription_id FROM core.tenant t
  JOIN subscription.subscription s ON s.tenant_id = t.tenant_id AND s.state = 'closed'
  LEFT JOIN subscription.webhook w ON w.tenant_id = s.tenant_id AND w.subscription_id = s.subscription_id
  WHERE t.state = 'offboarded' AND w.secrets IS NULL LIMIT 1000)
"""


@dataclass(frozen=True)
class NewSubscription:
    """What a row starts with."""

    tenant_id: str
    subscription_id: str
    scope_key: int
    scope_id: str
    principal: Principal
    actor: bytes
    channel: str
    filter: bytes
    delivery: bytes
    include_content: bool
    evaluation_run_id: str | None
    operation_id: str
    idempotency_key: str
    request_hash: bytes
    ledger_epoch: int
    after_sequence: int | None
    webhook_url: str | None = None
    delegation_id: str | None = None


async def insert(conn: Connection, new: NewSubscription) -> bool:
    """Insert a row in state opening; False when one with its key or operation_id exists."""
    inserted: int = await conn.fetchval(
        INSERT_SQL,
        new.tenant_id,
        new.subscription_id,
        new.scope_key,
        new.scope_id,
        msgspec.json.encode(new.principal, order="deterministic"),
        new.principal.actor_id,
        new.actor,
        new.channel,
        new.filter,
        new.delivery,
        new.include_content,
        new.evaluation_run_id,
        new.operation_id,
        new.idempotency_key,
        new.request_hash,
        new.ledger_epoch,
        new.after_sequence,
        new.webhook_url,
        new.delegation_id,
    )
    return inserted == 1


async def opened(conn: Connection, tenant_id: str, subscription_id: str, sequence: int) -> None:
    """The row becomes open at the sequence of its subscription_opened."""
    await conn.execute(OPENED_SQL, tenant_id, subscription_id, sequence)


async def refused(conn: Connection, tenant_id: str, subscription_id: str) -> None:
    """An opening that the ledger refused leaves nothing."""
    await conn.execute(REFUSED_SQL, tenant_id, subscription_id)


async def closing(
    conn: Connection, key: tuple[str, str], reason: str, delivered: int, tenant_epoch: int | None = None
) -> None:
    """From now on nothing is polled; the ledger entry follows.

    With `tenant_epoch` only while the tenant's rights are those of that epoch and it is not suspended.
    """
    await conn.execute(CLOSING_SQL, *key, reason, delivered, tenant_epoch)


async def remove_offboarded(conn: Connection) -> None:
    """Remove what is closed, and has told its endpoint so, of tenants that are gone."""
    await conn.execute(REMOVE_OFFBOARDED_SQL)


async def closed(conn: Connection, tenant_id: str, subscription_id: str, sequence: int) -> None:
    """The ledger holds the subscription_closed."""
    await conn.execute(CLOSED_SQL, tenant_id, subscription_id, sequence)
