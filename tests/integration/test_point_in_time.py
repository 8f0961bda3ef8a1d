"""A store of one's own goes back to a point in time by PostgreSQL's own tools; `pamspec restored` does the rest."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pamspec_cli.deployment import SERVICES
from pamspec_cli.servers.postgres import NEWEST, installation
from pamspec_cli.servers.process import unprivileged_account
from pamspec_client import AsyncClient, ObjectDeleted, ObjectNotFound
from pamspec_client.documents import Provenance
from tests.integration.checks import whole
from tests.integration.conftest import SCALED, fleets
from tests.integration.harness import Fleet, deployed, start_all, until
from tests.integration.load import make_scopes

PROVENANCE: Provenance = {"activity": "test"}
ARCHIVE = "archived"
"""Beside the data, where the account of the server can write; on a real server another machine."""
RECOVERY = """
restore_command = 'cp archived/%f %p'
recovery_target_time = '{}'
recovery_target_action = 'promote'
"""


async def made(client: AsyncClient, scope_id: str, name: str) -> str:
    one = await client.create(
        scope_id=scope_id, object_id=name, object_type="claim", canonical_content=f"of {name}", provenance=PROVENANCE
    )
    return one.version_id


@pytest.mark.timeout(420)
async def test_a_store_goes_back_to_a_point_in_time(tmp_path: Path) -> None:
    """What came before it is there, what came after it is lost, what was erased at any time is erased."""
    async with deployed(SCALED) as fleet:
        fleets.append(fleet)
        client = fleet.client()
        (scope_id,) = await make_scopes(client, "back", 1)
        before = await made(client, scope_id, "obj:before")
        await _archiving(fleet)
        await fleet.ready(within_s=60)
        backup = tmp_path / "backup"
        await _base_backup(fleet, backup)
        await made(client, scope_id, "obj:between")
        async with fleet.database() as database:
            target = await database.fetchval("SELECT clock_timestamp()::text")
        await client.delete(scope_id=scope_id, object_id="obj:before", expected_version_id=before, policy_basis="asked")
        await made(client, scope_id, "obj:after")
        await until(lambda: _told(fleet), 60, "the erasure is told outside the store")
        async with fleet.database() as database:
            await database.execute("SELECT pg_switch_wal()")
            await until(lambda: _archived(fleet), 60, "the log is archived")
        await asyncio.gather(*(fleet[name].stop() for name in SERVICES))
        await _recovered(fleet, backup, target)
        out = await _restored(fleet)
        assert "erased again: 1 objects and relationships, 0 scopes" in out
        await start_all([fleet[name] for name in SERVICES])
        await fleet.ready(within_s=60)
        again = fleet.client()
        assert (await again.read(scope_id=scope_id, object_id="obj:between")).content == "of obj:between"
        with pytest.raises(ObjectDeleted):
            await again.read(scope_id=scope_id, object_id="obj:before")
        with pytest.raises(ObjectNotFound):
            await again.read(scope_id=scope_id, object_id="obj:after")
        await made(again, scope_id, "obj:after")
        async with fleet.database() as database:
            epochs = await database.fetch("SELECT DISTINCT ledger_epoch FROM core.scope_head")
        assert [row["ledger_epoch"] for row in epochs] == [2]
        await whole(fleet, [scope_id], within_s=60)
        fleets.remove(fleet)


async def _archiving(fleet: Fleet) -> None:
    """From now on every segment of the write-ahead log is kept."""
    archive = fleet.postgres.data / ARCHIVE
    archive.mkdir(mode=0o700)
    _give(archive)
    async with fleet.database() as database:
        await database.execute("ALTER SYSTEM SET archive_mode = on")
        await database.execute(f"ALTER SYSTEM SET archive_command = 'cp %p {ARCHIVE}/%f'")
    await fleet.postgres.stop()
    await fleet.postgres.start()


async def _base_backup(fleet: Fleet, target: Path) -> None:
    address = fleet.postgres.address
    assert address is not None
    programs = installation(NEWEST) / "bin"
    place = {"PGHOST": address.host, "PGPORT": str(address.port), "PGUSER": address.superuser}
    await _run(
        [str(programs / "pg_basebackup"), "--pgdata", str(target), "--checkpoint", "fast"],
        {**os.environ, **place, "PGPASSWORD": address.password},
    )


async def _told(fleet: Fleet) -> bool:
    async with fleet.database() as database:
        return not await database.fetchval("SELECT count(*) FROM core.erasure WHERE logged_at IS NULL")


async def _archived(fleet: Fleet) -> bool:
    """Whether everything up to the switch is archived."""
    async with fleet.database() as database:
        return bool(
            await database.fetchval(
                "SELECT last_archived_wal >= pg_walfile_name(pg_current_wal_lsn() - 1) FROM pg_stat_archiver"
            )
        )


async def _recovered(fleet: Fleet, backup: Path, target: str) -> None:
    """The server as it was at that time, on its usual address."""
    await fleet.postgres.stop()
    data = fleet.postgres.data
    archive = backup / ARCHIVE
    shutil.rmtree(archive)
    shutil.copytree(data / ARCHIVE, archive)
    shutil.rmtree(data)
    shutil.copytree(backup, data)
    data.chmod(0o700)
    with (data / "postgresql.auto.conf").open("a", encoding="utf-8") as settings:
        settings.write(RECOVERY.format(target))
    (data / "recovery.signal").touch()
    _give(data)
    await fleet.postgres.start()

    async def promoted() -> bool:
        async with fleet.database() as database:
            return not await database.fetchval("SELECT pg_is_in_recovery()")

    await until(promoted, 60, "the server has recovered")


async def _restored(fleet: Fleet) -> str:
    """`pamspec restored` with the addresses and secrets of the deployment in its environment."""
    relay = fleet.deployment.variables("relay")
    names = ("PAMSPEC_NATS_URL", "PAMSPEC_NATS_NKEY_SEED", "PAMSPEC_TOKEN_KEYS", "PAMSPEC_CHECKPOINT_KEY")
    given = {name: relay[name] for name in (*names, "PAMSPEC_CHECKPOINT_DIR", "PAMSPEC_CHECKPOINT_PUBLIC_KEYS")}
    given["PAMSPEC_DATABASE_URL"] = fleet.database_url
    return await _run([sys.executable, "-m", "pamspec_cli", "restored"], {**os.environ, **given})


async def _run(command: list[str], environment: Mapping[str, str]) -> str:
    child = await asyncio.create_subprocess_exec(
        *command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await child.communicate()
    assert child.returncode == 0, out.decode() + err.decode()
    return out.decode()


def _give(place: Path) -> None:
    account = unprivileged_account()
    if account is not None:
        for one in (place, *place.rglob("*")):
            os.chown(one, account.uid, account.gid, follow_symlinks=False)
