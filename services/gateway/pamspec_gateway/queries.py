"""SQL of the gateway: keys, the number that tells when they changed, the note that one was used, quotas."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from asyncpg import Record

from pamspec_common.postgres import Connection
from pamspec_common.principal import Principal
from pamspec_common.quotas import Quotas, stored_quotas

SELECT_PRINCIPALS_SQL = """
SELECT key_hash, key_id, tenant_id, actor_id, actor_kind, rights, roles, epoch, expires_at
FROM core.key_principal WHERE key_hash = ANY ($1::bytea[])"""

SELECT_EPOCH_SQL = "SELECT epoch FROM core.credential_epoch"

NOTE_USE_SQL = "SELECT core.note_key_use($1)"

SELECT_PRINCIPALS_BY_ID_SQL = """
SELECT key_id, tenant_id, actor_id, actor_kind, rights, roles, epoch, expires_at
FROM core.key_principal WHERE key_id = ANY ($1::text[])"""

SELECT_QUOTAS_SQL = "SELECT tenant_id, quotas FROM core.quotas_in_force WHERE tenant_id = ANY ($1::text[])"

SELECT_REACHABLE_SQL = "SELECT true"


class KeyOwner(NamedTuple):
    """Whom a key stands for, and until when."""

    principal: Principal
    expires_at: datetime | None
    key_id: str


async def select_principals(conn: Connection, hashes: Sequence[bytes]) -> dict[bytes, KeyOwner]:
    """The owners of those of the keys that are valid now, by key hash."""
    return {row["key_hash"]: _owner(row) for row in await conn.fetch(SELECT_PRINCIPALS_SQL, hashes)}


async def select_principals_by_id(conn: Connection, key_ids: Sequence[str]) -> dict[str, KeyOwner]:
    """The owners of those of the keys that are valid now, by key id."""
    return {row["key_id"]: _owner(row) for row in await conn.fetch(SELECT_PRINCIPALS_BY_ID_SQL, key_ids)}


def _owner(row: Record) -> KeyOwner:
    principal = Principal(
        row["tenant_id"],
        row["actor_id"],
        row["actor_kind"],
        frozenset(row["rights"]),
        row["epoch"],
        frozenset(row["roles"]),
    )
    return KeyOwner(principal, row["expires_at"], row["key_id"])


async def select_quotas(conn: Connection, tenants: Sequence[str]) -> dict[str, Quotas]:
    """The quota documents of those of the tenants that have one."""
    rows = await conn.fetch(SELECT_QUOTAS_SQL, tenants)
    return {row["tenant_id"]: stored_quotas(row["quotas"]) for row in rows}


async def select_reachable(conn: Connection) -> bool:
    """True; raises when the database does not answer."""
    return bool(await conn.fetchval(SELECT_REACHABLE_SQL))


async def select_epoch(conn: Connection) -> int:
    """Grows whenever a key or a tenant opens less than before."""
    epoch: int = await conn.fetchval(SELECT_EPOCH_SQL)
    return epoch


async def note_use(conn: Connection, hashes: Sequence[bytes]) -> None:
    """Note that these keys were used; what was noted within a minute stays as it is."""
    await conn.execute(NOTE_USE_SQL, list(hashes))
