"""API keys: made, listed and revoked by an administrator of the database.

Invariant: the text of a key is known only when it is made; the database holds its hash under the pepper. A revocation
raises the tenant's authorization epoch with it, so that whatever was decided for the key is decided again.
"""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

import asyncpg

from pamspec_cli.connection import Misused
from pamspec_cli.data import DataDirectory
from pamspec_cli.servers.postgres import SUPERUSER, PostgresAddress
from pamspec_cli.servers.process import LOOPBACK
from pamspec_cli.stack import DATABASE
from pamspec_common.authorization.vocabulary import ROLES
from pamspec_common.ids import is_id, mint
from pamspec_common.keys import key_hash, new_key
from pamspec_common.principal import RIGHT_ADMIN, RIGHT_ASSERT_ACTOR, RIGHT_AUDIT

RIGHTS = (RIGHT_ADMIN, RIGHT_ASSERT_ACTOR, RIGHT_AUDIT)
"""What a key may be given; the services' own right is never among them."""

INSERT_TENANT_SQL = "INSERT INTO core.tenant (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING"
INSERT_KEY_SQL = """
INSERT INTO core.api_key (key_id, tenant_id, key_hash, actor_id, actor_kind, rights, expires_at, roles)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"""
REVOKE_KEY_SQL = """
WITH revoked AS (
  UPDATE core.api_key SET revoked_at = clock_timestamp(), epoch = epoch + 1
  WHERE key_id = $1 AND revoked_at IS NULL RETURNING tenant_id)
UPDATE core.tenant SET epoch_authz = epoch_authz + 1 WHERE tenant_id = (SELECT tenant_id FROM revoked)
RETURNING tenant_id"""
SELECT_KEYS_SQL = """
SELECT key_id, tenant_id, actor_id, actor_kind, rights, roles, created_at, expires_at, revoked_at
FROM core.api_key WHERE $1::text IS NULL OR tenant_id = $1 ORDER BY tenant_id, created_at, key_id"""


@dataclass(frozen=True)
class Administrator:
    """A login that may write keys, and the pepper of the gateways."""

    database_url: str = field(repr=False)
    pepper: bytes = field(repr=False)


@dataclass(frozen=True)
class Owner:
    """Whom a key stands for."""

    tenant_id: str
    actor_id: str
    actor_kind: str
    rights: Sequence[str] = ()
    expires_at: datetime | None = None
    roles: Sequence[str] = ()


@dataclass(frozen=True)
class StoredKey:
    """A key as it is listed."""

    key_id: str
    owner: Owner
    created_at: datetime
    revoked_at: datetime | None


def administrator(data: DataDirectory) -> Administrator:
    """From PAMSPEC_DATABASE_URL and PAMSPEC_KEY_PEPPER, else from the service that runs on this directory."""
    url, pepper = os.environ.get("PAMSPEC_DATABASE_URL"), os.environ.get("PAMSPEC_KEY_PEPPER")
    if url is None:
        port, password = data.port("postgres"), data.path / "postgres" / "superuser.password"
        if data.owner() is not None and (port is None or not password.is_file()):
            raise Misused(f"the service on {data.path} uses a database of its own: set PAMSPEC_DATABASE_URL as there")
        if data.owner() is None or port is None or not password.is_file():
            raise Misused(
                f"nothing runs on {data.path}: start it with  pamspec up  or set PAMSPEC_DATABASE_URL and "
                "PAMSPEC_KEY_PEPPER"
            )
        word = password.read_text(encoding="ascii").strip()
        url = PostgresAddress("", LOOPBACK, port, 0, SUPERUSER, word).tcp_dsn(DATABASE)
    kept = data.path / "secrets" / "key-pepper"
    if pepper is None:
        if not kept.is_file():
            raise Misused("the pepper of the keys is not known: set PAMSPEC_KEY_PEPPER to that of the gateways")
        pepper = kept.read_text(encoding="ascii").strip()
    return Administrator(url, pepper.encode())


async def create_key(by: Administrator, owner: Owner) -> tuple[str, str]:
    """A new key of this owner: its id, and its text, which nobody can show again. The tenant is made where missing."""
    for name, value in (("tenant", owner.tenant_id), ("actor", owner.actor_id)):
        if not is_id(value):
            raise Misused(f"the {name} must be an id like {name}:name, of at most 255 letters, digits and +._:-/")
    if not set(owner.rights) <= set(RIGHTS):
        raise Misused(f"a key may have the rights {', '.join(RIGHTS)}")
    if not set(owner.roles) <= set(ROLES):
        raise Misused(f"a key may have the roles {', '.join(ROLES)}")
    key_id, key = mint("key"), new_key()
    async with _connected(by) as conn, conn.transaction():
        await conn.execute(INSERT_TENANT_SQL, owner.tenant_id)
        await conn.execute(
            INSERT_KEY_SQL,
            key_id,
            owner.tenant_id,
            key_hash(by.pepper, key),
            owner.actor_id,
            owner.actor_kind,
            sorted(owner.rights),
            owner.expires_at,
            sorted(owner.roles),
        )
    return key_id, key


async def revoke_key(by: Administrator, key_id: str) -> bool:
    """Whether the key was valid until now; gateways that remember it let it in for two seconds more at most."""
    async with _connected(by) as conn:
        return await conn.fetchval(REVOKE_KEY_SQL, key_id) is not None


async def list_keys(by: Administrator, tenant_id: str | None = None) -> list[StoredKey]:
    """The keys of one tenant or of all, revoked ones too; never their texts."""
    async with _connected(by) as conn:
        rows = await conn.fetch(SELECT_KEYS_SQL, tenant_id)
    return [
        StoredKey(
            row["key_id"],
            Owner(row["tenant_id"], row["actor_id"], row["actor_kind"], row["rights"], row["expires_at"], row["roles"]),
            row["created_at"],
            row["revoked_at"],
        )
        for row in rows
    ]


@asynccontextmanager
async def _connected(by: Administrator) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    try:
        conn = await asyncpg.connect(by.database_url, timeout=10, server_settings={"application_name": "pamspec-keys"})
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise Misused(f"the database does not let us in ({type(error).__name__}): check PAMSPEC_DATABASE_URL") from None
    try:
        yield conn
    finally:
        await conn.close()
