"""API keys: made, listed, replaced and revoked by an administrator of the database, who needs no key for it.

Invariant: what is done here is done by the handlers of the write service, as an operator: with the same checks, epochs
and records as over the doors.
"""

import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import asyncpg

from pamspec_cli.connection import Misused
from pamspec_cli.data import DataDirectory
from pamspec_cli.servers.postgres import SUPERUSER, PostgresAddress
from pamspec_cli.servers.process import LOOPBACK
from pamspec_cli.stack import DATABASE
from pamspec_common.documents import Actor
from pamspec_common.errors import PamspecError
from pamspec_common.ids import is_id, mint
from pamspec_common.postgres import Connection
from pamspec_common.principal import RIGHT_ADMIN, RIGHT_ASSERT_ACTOR, RIGHT_AUDIT, RIGHT_OPERATOR, Principal
from pamspec_common.strict_json import dumps
from pamspec_write.documents.decoding import decode
from pamspec_write.handlers.administering import Asked
from pamspec_write.handlers.administration import KINDS, Answering
from pamspec_write.handlers.keys import Keys

RIGHTS = (RIGHT_ADMIN, RIGHT_ASSERT_ACTOR, RIGHT_AUDIT, RIGHT_OPERATOR)
"""What a key may be given; the services' own right is never among them."""

INSERT_TENANT_SQL = "INSERT INTO core.tenant (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING"
TENANTS_SQL = "SELECT tenant_id FROM core.tenant ORDER BY tenant_id"
OPERATOR_ID = "operator:database"
"""As whom what was done at the database is noted."""
BASIS = "pamspec keys"
TENANT_OF_SQL = "SELECT tenant_id FROM core.api_key WHERE key_id = $1"


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


async def create_key(by: Administrator, owner: Owner, basis: str = BASIS) -> tuple[str, str]:
    """A new key of this owner: its id, and its text, which nobody can show again. The tenant is made where missing."""
    if not is_id(owner.tenant_id):
        raise Misused("the tenant must be an id like tenant:name, of at most 255 letters, digits and +._:-/")
    document: dict[str, Any] = {
        "tenant_id": owner.tenant_id,
        "actor_id": owner.actor_id,
        "actor_kind": owner.actor_kind,
        "roles": list(owner.roles),
        "rights": list(owner.rights),
        "policy_basis": basis,
    }
    if owner.expires_at is not None:
        document["expires_at"] = owner.expires_at.isoformat()
    async with _connected(by) as conn:
        await conn.execute(INSERT_TENANT_SQL, owner.tenant_id)
        made = await _answer(conn, by, "create_key", document)
    return made["key"]["key_id"], made["secret"]


async def administer(by: Administrator, operation: str, document: dict[str, Any]) -> dict[str, Any]:
    """The answer of an operation on keys, carried out at the database as an operator; Misused for a refusal."""
    async with _connected(by) as conn:
        if "tenant_id" not in document and "key_id" in document:
            document = {
                **document,
                "tenant_id": await conn.fetchval(TENANT_OF_SQL, document["key_id"]) or "tenant:none",
            }
        return await _answer(conn, by, operation, document)


async def tenants(by: Administrator) -> list[str]:
    """Every tenant."""
    async with _connected(by) as conn:
        return [row["tenant_id"] for row in await conn.fetch(TENANTS_SQL)]


async def _answer(conn: Connection, by: Administrator, operation: str, document: dict[str, Any]) -> dict[str, Any]:
    """What the write service would answer an operator, by its own handler."""
    tenant_id = document["tenant_id"]
    principal = Principal(tenant_id, OPERATOR_ID, "human", frozenset({RIGHT_OPERATOR}))
    actor = Actor(OPERATOR_ID, principal.actor_kind)
    asked = Asked(operation, mint("op"), principal, actor, None, None, tenant_id)
    handler = Keys(by.pepper)
    answering: dict[str, Answering] = {
        "create_key": handler.create,
        "list_keys": handler.list,
        "rotate_key": handler.rotate,
        "revoke_key": handler.revoke,
    }
    try:
        request = decode(KINDS[operation], dumps(document))
        async with conn.transaction():
            answer = await answering[operation](conn, asked, request)
    except PamspecError as error:
        raise Misused(str(error)) from None
    answered: dict[str, Any] = json.loads(answer.body)
    return answered


@asynccontextmanager
async def _connected(by: Administrator) -> AsyncIterator[Connection]:
    settings = {"application_name": "pamspec-keys"}
    try:
        pool = await asyncpg.create_pool(by.database_url, min_size=1, max_size=1, timeout=10, server_settings=settings)
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise Misused(f"the database does not let us in ({type(error).__name__}): check PAMSPEC_DATABASE_URL") from None
    try:
        async with pool.acquire() as conn:
            yield conn
    finally:
        await pool.close()
