"""`pamspec keys`: what the command does to the database, and that a made key opens until it is revoked."""

import asyncio
import json
import os
import sys
from pathlib import Path

import asyncpg
import pytest

from pamspec_cli import keys
from pamspec_cli.connection import Misused
from pamspec_cli.data import DataDirectory
from pamspec_cli.servers.databases import Database
from pamspec_common.keys import key_hash

PEPPER = "a pepper for tests"


@pytest.fixture
def by(database: Database) -> keys.Administrator:
    """An administrator of a database of this test alone."""
    return keys.Administrator(database.dsn, PEPPER.encode())


async def _found(database: Database, key: str) -> asyncpg.Record | None:
    conn = await asyncpg.connect(database.role("gateway"))
    try:
        return await conn.fetchrow(
            "SELECT * FROM core.key_principal WHERE key_hash = $1", key_hash(PEPPER.encode(), key)
        )
    finally:
        await conn.close()


async def _epoch(database: Database, tenant: str) -> int:
    conn = await asyncpg.connect(database.dsn)
    try:
        return int(await conn.fetchval("SELECT epoch_authz FROM core.tenant WHERE tenant_id = $1", tenant))
    finally:
        await conn.close()


async def test_a_key_opens_until_it_is_revoked(database: Database, by: keys.Administrator) -> None:
    key_id, key = await keys.create_key(
        by, keys.Owner("tenant:a", "agent:planner", "agent", ["audit"], roles=["editor"])
    )
    found = await _found(database, key)
    assert found is not None
    assert (found["tenant_id"], found["actor_id"]) == ("tenant:a", "agent:planner")
    assert (found["rights"], found["roles"]) == (["audit"], ["editor"])
    assert await keys.tenants(by) == ["tenant:a"]
    listed = await keys.administer(by, "list_keys", {"tenant_id": "tenant:a"})
    assert [(one["key_id"], one["state"], one["created_by"]) for one in listed["keys"]] == [
        (key_id, "valid", keys.OPERATOR_ID)
    ]
    assert (await keys.administer(by, "list_keys", {"tenant_id": "tenant:b"}))["keys"] == []
    before = await _epoch(database, "tenant:a")
    asked = {"key_id": key_id, "policy_basis": "incident:1"}
    assert (await keys.administer(by, "revoke_key", asked))["changed"]
    assert await _found(database, key) is None
    assert await _epoch(database, "tenant:a") == before + 1
    assert not (await keys.administer(by, "revoke_key", asked))["changed"]
    with pytest.raises(Misused, match="no such key"):
        await keys.administer(by, "revoke_key", asked | {"key_id": "key:none"})
    assert await _noted(database) == [
        ("create_key", key_id, keys.OPERATOR_ID, keys.BASIS),
        ("revoke_key", key_id, keys.OPERATOR_ID, "incident:1"),
    ]


async def _noted(database: Database) -> list[tuple[str, str, str, str]]:
    conn = await asyncpg.connect(database.dsn)
    try:
        rows = await conn.fetch("SELECT operation, detail, actor_id, policy_basis FROM core.administration ORDER BY id")
        return [tuple(row) for row in rows]
    finally:
        await conn.close()


@pytest.mark.parametrize(
    "owner",
    [
        keys.Owner("tenant", "agent:a", "agent"),
        keys.Owner("tenant:a", "agent:a\n", "agent"),
        keys.Owner("tenant:a", "agent:" + "a" * 250, "agent"),
        keys.Owner("tenant:a", "agent:a", "agent", ["service"]),
        keys.Owner("tenant:a", "agent:a", "agent", roles=["king"]),
    ],
)
async def test_owners_that_cannot_be(by: keys.Administrator, owner: keys.Owner) -> None:
    with pytest.raises(Misused):
        await keys.create_key(by, owner)
    assert (await keys.administer(by, "list_keys", {"tenant_id": "tenant:a"}))["keys"] == []


def test_nothing_to_administer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAMSPEC_DATABASE_URL", "PAMSPEC_KEY_PEPPER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Misused, match="pamspec up"):
        keys.administrator(DataDirectory(tmp_path))


async def test_the_command(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "PAMSPEC_DATABASE_URL", database.dsn)
    monkeypatch.setitem(os.environ, "PAMSPEC_KEY_PEPPER", PEPPER)
    made = json.loads(await _printed("create", "--actor", "agent:a", "--tenant", "tenant:a", "--days", "1", "--json"))
    found = await _found(database, made["key"])
    assert found is not None
    assert found["expires_at"] is not None
    assert found["roles"] == ["contributor"]
    listed = json.loads(await _printed("list", "--json"))
    assert (listed["key_id"], listed["state"]) == (made["key_id"], "valid")
    assert made["key"] not in json.dumps(listed)
    second = json.loads(await _printed("rotate", made["key_id"], "--hours", "2", "--json"))
    assert await _found(database, made["key"]) is not None
    assert await _found(database, second["key"]) is not None
    heading, *rows = (await _printed("list")).splitlines()
    assert heading.split() == [
        "state",
        "key",
        "tenant",
        "actor",
        "roles",
        "rights",
        "created",
        "expires",
        "last",
        "used",
    ]
    assert [row.split()[:6] for row in rows] == [
        ["valid", one["key_id"], "tenant:a", "agent:a", "contributor", "-"] for one in (made, second)
    ]
    assert f"revoked   {made['key_id']}" in await _printed("revoke", made["key_id"])
    assert await _found(database, made["key"]) is None
    assert "ended before" in await _printed("revoke", made["key_id"])
    assert made["key_id"] not in await _printed("list")
    assert made["key_id"] in await _printed("list", "--all")
    assert (await _run("rotate", made["key_id"]))[0] != 0


async def _printed(*arguments: str) -> str:
    code, output = await _run(*arguments)
    assert code == 0
    return output


async def _run(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pamspec_cli", "keys", *arguments, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    return process.returncode, output.decode()
