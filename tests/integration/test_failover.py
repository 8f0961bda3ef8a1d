"""The primary dies under load and its synchronous standby takes over; no service is started again."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlsplit

import asyncpg
import pytest

from pamspec_cli.deployment import SERVICES
from pamspec_cli.servers.postgres import EmbeddedPostgres, PostgresAddress
from tests.integration.conftest import SCALED, fleets
from tests.integration.harness import Fleet, deployed, start_all, until
from tests.integration.load import ordeal
from tests.integration.standby import replica

SYNCHRONOUS = ("synchronous_standby_names = '*'", "synchronous_commit = on")


@pytest.mark.timeout(420)
async def test_acknowledged_writes_survive_the_primary(tmp_path: Path) -> None:
    """Killed in the middle of the load; readers, writers and followers go on with what stands by, in their own time."""
    async with deployed(SCALED) as fleet:
        fleets.append(fleet)
        async with _standing_by(fleet) as server:
            assert server.address is not None
            await _over_both(fleet, server.address)
            async with ordeal(fleet, "failover", per_second=100) as load:
                await load.more(100)
                fleet.postgres.process.kill()
                connection = await asyncpg.connect(server.address.dsn())
                assert await connection.fetchval("SELECT pg_promote(true, 60)")
                await connection.close()
                _look_at(fleet, server.address)
                async with asyncio.timeout(60):
                    await load.more(200)
            await fleet.ready(within_s=60)
        fleets.remove(fleet)


@asynccontextmanager
async def _standing_by(fleet: Fleet) -> AsyncIterator[EmbeddedPostgres]:
    """A standby for which every commit of the primary waits."""
    directory = Path(tempfile.mkdtemp(prefix="pamspec-standby-"))
    try:
        async with replica(fleet, directory / "postgres") as server:
            async with fleet.database() as primary:
                for setting in SYNCHRONOUS:
                    await primary.execute(f"ALTER SYSTEM SET {setting}")
                await primary.execute("SELECT pg_reload_conf()")

                async def synchronous() -> bool:
                    return bool(
                        await primary.fetchval("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
                    )

                await until(synchronous, 60, "the standby is waited for")
            yield server
    finally:
        shutil.rmtree(directory)


async def _over_both(fleet: Fleet, other: PostgresAddress) -> None:
    """Every service knows both servers and takes the one that can be written."""
    primary = fleet.postgres.address
    assert primary is not None
    await asyncio.gather(*(fleet[name].stop() for name in SERVICES))
    for name in SERVICES:
        own = urlsplit(fleet.deployment.addresses.of_role(name))
        hosts = ",".join(f"{one.host}:{one.port}" for one in (primary, other))
        login = f"{own.username}:{quote(own.password or '', safe='')}"
        url = f"postgresql://{login}@{hosts}{own.path}?target_session_attrs=read-write"
        fleet.add(name, variables={"PAMSPEC_DATABASE_URL": url})
    await start_all([fleet[name] for name in SERVICES])
    await fleet.ready()


def _look_at(fleet: Fleet, address: PostgresAddress) -> None:
    """What is compared in the end is what the new primary has."""
    database = urlsplit(fleet.database_url).path.lstrip("/")
    addresses = replace(fleet.deployment.addresses, database_url=address.dsn(database))
    fleet.deployment = replace(fleet.deployment, addresses=addresses)
