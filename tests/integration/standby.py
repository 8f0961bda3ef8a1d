"""A physical standby of a fleet's PostgreSQL whose replay a test pauses: a store that really lags."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg

from pamspec_cli.servers.postgres import NEWEST, EmbeddedPostgres, installation
from pamspec_cli.servers.process import free_port, unprivileged_account
from tests.integration.harness import Fleet, until
from tests.servers.chosen import servers

LAGGING_DOOR = "gateway-lagging"
"""The gateway whose reads come from the standby; its writes go where all writes go."""
LAGGING_QUERY = "query-lagging"


@dataclass
class Standby:
    """A running standby."""

    fleet: Fleet
    server: EmbeddedPostgres

    async def pause(self) -> None:
        """From now on the standby shows nothing new."""
        await self._execute("SELECT pg_wal_replay_pause()")

        async def paused() -> bool:
            return str(await self._execute("SELECT pg_get_wal_replay_pause_state()")) == "paused"

        await until(paused, 60, "the standby pauses")

    async def resume(self) -> None:
        """It catches up."""
        await self._execute("SELECT pg_wal_replay_resume()")

    async def caught_up(self) -> None:
        """Returns when it has replayed all that the primary has written by now."""
        async with self.fleet.database() as primary:
            position = str(await primary.fetchval("SELECT pg_current_wal_lsn()::text"))

        async def replayed() -> bool:
            return bool(await self._execute("SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", position))

        await until(replayed, 30, "the standby catches up")

    async def _execute(self, statement: str, *arguments: object) -> object:
        assert self.server.address is not None
        connection = await asyncpg.connect(self.server.address.dsn())
        try:
            return await connection.fetchval(statement, *arguments)
        finally:
            await connection.close()


@asynccontextmanager
async def replica(fleet: Fleet, directory: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A standby that follows the fleet's store; gone at the end."""
    primary = fleet.postgres.address
    assert primary is not None
    data = directory / "data"
    directory.mkdir(mode=0o700, parents=True)
    shutil.copy(fleet.postgres.directory / "superuser.password", directory / "superuser.password")
    await _copy_cluster(fleet, data)
    login = f"host={primary.host} port={primary.port} user={primary.superuser} password={primary.password}"
    server = servers().postgres(
        directory, port=free_port(), version=primary.version, settings={"primary_conninfo": login}
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def standby(fleet: Fleet, directory: Path) -> AsyncIterator[Standby]:
    """A standby, a query service on it, and a door in front of that; gone at the end."""
    primary = fleet.postgres.address
    assert primary is not None
    async with replica(fleet, directory) as server:
        assert server.address is not None
        own = urlsplit(fleet.deployment.addresses.of_role("query"))
        assert parse_qs(own.query)["port"] == [str(primary.port)]
        login_there = server.address.dsn(own.path.lstrip("/"), own.username, own.password)
        query = fleet.add("query", LAGGING_QUERY, {"PAMSPEC_DATABASE_URL": login_there})
        door = fleet.add("gateway", LAGGING_DOOR, {"PAMSPEC_QUERY_URL": query.url})
        async with fleet.extra(query, door):
            yield Standby(fleet, server)


async def _copy_cluster(fleet: Fleet, data: Path) -> None:
    primary = fleet.postgres.address
    assert primary is not None
    process = await asyncio.create_subprocess_exec(
        str(installation(NEWEST) / "bin" / "pg_basebackup"),
        *("--pgdata", str(data), "--wal-method", "stream", "--checkpoint", "fast", "--no-sync"),
        *("--host", primary.host, "--port", str(primary.port), "--username", primary.superuser),
        env=os.environ | {"PGPASSWORD": primary.password},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    (data / "standby.signal").touch(mode=0o600)
    account = unprivileged_account()
    if account is not None:
        for place in (data, *data.rglob("*")):
            os.chown(place, account.uid, account.gid)
