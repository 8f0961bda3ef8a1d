"""API keys as rows: what administrators see of them and change. The text of a key never comes here, only its hash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import asyncpg

from pamspec_common.postgres import Connection

_SHOWN = """key_id, tenant_id, actor_id, actor_kind, roles, rights, created_at, created_by, expires_at, last_used_at,
  revoked_at, replaced_by,
  CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= clock_timestamp() THEN 'expired' ELSE 'valid' END
    AS state"""

INSERT_KEY_SQL = (
    """
INSERT INTO core.api_key
  (key_id, tenant_id, key_hash, actor_id, actor_kind, roles, rights, expires_at, created_by, request_key)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (tenant_id, request_key) WHERE request_key IS NOT NULL DO NOTHING RETURNING """
    + _SHOWN
)
KEY_OF_REQUEST_SQL = "SELECT key_id FROM core.api_key WHERE tenant_id = $1 AND request_key = $2"
KEYS_SQL = (
    "SELECT "
    + _SHOWN
    + """
FROM core.api_key
WHERE tenant_id = $1 AND ($2::text IS NULL OR actor_id = $2) AND key_id > $3
  AND ($4 OR (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())))
ORDER BY key_id LIMIT $5
"""
)
LOCK_KEY_SQL = "SELECT " + _SHOWN + " FROM core.api_key WHERE key_id = $1 AND tenant_id = $2 FOR UPDATE"

# The new key lasts as long as the old one was to last; without an end it has none either.
REPLACE_KEY_SQL = (
    """
INSERT INTO core.api_key
  (key_id, tenant_id, key_hash, actor_id, actor_kind, roles, rights, expires_at, created_by)
SELECT $1, tenant_id, $2, actor_id, actor_kind, roles, rights,
  coalesce($3::timestamptz, clock_timestamp() + (expires_at - created_at)), $4
FROM core.api_key WHERE key_id = $5 RETURNING """
    + _SHOWN
)
END_KEY_SQL = (
    """
UPDATE core.api_key SET replaced_by = $2, epoch = epoch + 1,
  expires_at = least(expires_at, greatest(clock_timestamp(), coalesce($3, clock_timestamp() + interval '1 day')))
WHERE key_id = $1 RETURNING """
    + _SHOWN
)
REVOKE_KEY_SQL = (
    "UPDATE core.api_key SET revoked_at = clock_timestamp(), epoch = epoch + 1 WHERE key_id = $1 RETURNING " + _SHOWN
)


class NewKey(NamedTuple):
    """A key that is made."""

    key_id: str
    tenant_id: str
    key_hash: bytes
    actor_id: str
    actor_kind: str
    roles: Sequence[str]
    rights: Sequence[str]
    expires_at: datetime | None
    created_by: str
    request_key: str


async def insert_key(conn: Connection, new: NewKey) -> asyncpg.Record | None:
    """The key as it is shown; None when the same request has made one before."""
    return await conn.fetchrow(INSERT_KEY_SQL, *new)


async def key_of_request(conn: Connection, tenant_id: str, request_key: str) -> str:
    """The id of the key that a request has made."""
    key_id: str = await conn.fetchval(KEY_OF_REQUEST_SQL, tenant_id, request_key)
    return key_id


async def lock_key(conn: Connection, tenant_id: str, key_id: str) -> asyncpg.Record | None:
    """A key of the tenant, held until the transaction ends."""
    return await conn.fetchrow(LOCK_KEY_SQL, key_id, tenant_id)


async def replace_key(
    conn: Connection, old_id: str, new: tuple[str, bytes], by: str, until: datetime | None, ends: datetime | None
) -> tuple[asyncpg.Record, asyncpg.Record]:
    """A new key (id and hash) in the place of an old one, which ends at `until`: both as they are shown."""
    made = await conn.fetchrow(REPLACE_KEY_SQL, *new, ends, by, old_id)
    old = await conn.fetchrow(END_KEY_SQL, old_id, new[0], until)
    assert made is not None
    assert old is not None
    return made, old


async def revoke_key(conn: Connection, key_id: str) -> asyncpg.Record:
    """The key, which opens nothing any more."""
    row = await conn.fetchrow(REVOKE_KEY_SQL, key_id)
    assert row is not None
    return row
