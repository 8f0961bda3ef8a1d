"""The development tenant of a deployment on one machine: one principal with all rights, one key, one scope.

The key comes from PAMSPEC_DEV_KEY, else it is made once and kept in the data directory. The database holds its keyed
hash alone.
"""

import json
import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import asyncpg

from pamspec_cli import keys
from pamspec_cli.data import DEFAULT, DataDirectory
from pamspec_cli.servers.process import ServerError
from pamspec_common.keys import MAX_KEY_LENGTH, MIN_KEY_LENGTH, is_key, key_hash, new_key

TENANT_ID = "tenant:development"
ACTOR_ID = "human:developer"
ACTOR_KIND = "human"
SCOPE_ID = "workspace:default"
KEY_ID = "key:development"
RIGHTS = keys.RIGHTS
ROLES = ("admin", "platform")

UPSERT_KEY_SQL = """
INSERT INTO core.api_key (key_id, tenant_id, key_hash, actor_id, actor_kind, rights, roles)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (key_id) DO UPDATE
  SET key_hash = EXCLUDED.key_hash, rights = EXCLUDED.rights, roles = EXCLUDED.roles,
    epoch = core.api_key.epoch + 1, revoked_at = NULL
  WHERE core.api_key.key_hash <> EXCLUDED.key_hash OR core.api_key.rights <> EXCLUDED.rights
    OR core.api_key.roles <> EXCLUDED.roles
"""


@dataclass(frozen=True)
class DevelopmentKey:
    """The key as its owner sends it."""

    text: str = field(repr=False)


def chosen_key(data: DataDirectory) -> DevelopmentKey:
    """PAMSPEC_DEV_KEY, else the key of this data directory; ServerError for a text that can't be a key."""
    given = os.environ.get("PAMSPEC_DEV_KEY")
    if given and not is_key(given):
        raise ServerError(
            f"PAMSPEC_DEV_KEY must have {MIN_KEY_LENGTH} to {MAX_KEY_LENGTH} visible ASCII characters: choose another"
        )
    return DevelopmentKey(given or data.secret("development-key", new_key))


async def ensure_principal(database_url: str, pepper: bytes, key: DevelopmentKey) -> None:
    """The tenant and its key are in the database; an earlier key of the same name no longer opens anything."""
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute(keys.INSERT_TENANT_SQL, TENANT_ID)
            await connection.execute(
                UPSERT_KEY_SQL, KEY_ID, TENANT_ID, key_hash(pepper, key.text), ACTOR_ID, ACTOR_KIND, RIGHTS, ROLES
            )
    finally:
        await connection.close()


async def ensure_scope(gateway: str, key: DevelopmentKey) -> None:
    """The development scope exists; ServerError when the gateway refuses."""
    document = {"scope_id": SCOPE_ID, "scope_kind": "workspace"}
    headers = {"Authorization": f"Bearer {key.text}"}
    timeout = aiohttp.ClientTimeout(total=30)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(f"{gateway}/v1/scopes", json=document, headers=headers) as answer,
    ):
        if answer.status not in (200, 201):
            raise ServerError(f"the development scope could not be made: {await answer.text()}")


def export_line(gateway: str, key: DevelopmentKey, data: DataDirectory) -> str:
    """A command after which clients and commands here know where to go, as whom, and which data is meant."""
    line = f"export PAMSPEC_URL={gateway} PAMSPEC_API_KEY={shlex.quote(key.text)}"
    usual = data.path == Path(DEFAULT).resolve()
    return line if usual else f"{line} PAMSPEC_DATA={shlex.quote(str(data.path))}"


def curl_line(gateway: str, key: DevelopmentKey) -> str:
    """A command that stores one observation; it can be repeated."""
    body = {
        "scope_id": SCOPE_ID,
        "object_type": "observation",
        "canonical_content": {"text": "hello"},
        "provenance": {"activity": "manual"},
    }
    return (
        f"curl -sS {gateway}/v1/create -H 'Authorization: Bearer {key.text}' "
        f"-H 'Content-Type: application/json' -d '{json.dumps(body)}'"
    )
