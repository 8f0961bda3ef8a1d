"""The servers beneath a deployment: migrated, with a login per service, kept running, replaced by external ones."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import nats as nats_client
import psutil
import pytest

from pamspec_cli.data import DataDirectory
from pamspec_cli.servers.databases import SERVICES, Database, create_database, with_database, with_login
from pamspec_cli.servers.nats import NatsAddress
from pamspec_cli.servers.postgres import EmbeddedPostgres
from pamspec_cli.servers.process import ServerError, free_port, working_in
from pamspec_cli.stack import servers


@pytest.fixture
def data() -> Iterator[DataDirectory]:
    path = Path(tempfile.mkdtemp(prefix="pamspec-stack-"))
    with DataDirectory(path) as directory:
        yield directory
    shutil.rmtree(path)


def pid_of(data: DataDirectory, server: str) -> int:
    return int((data.path / server / f"{server}.pid").read_text(encoding="ascii"))


async def test_every_service_has_a_login_and_the_servers_end_with_the_block(data: DataDirectory) -> None:
    async with servers(data, {}) as addresses:
        for service in SERVICES:
            connection = await asyncpg.connect(addresses.of_role(service))
            assert await connection.fetchval("SELECT current_user") == f"pamspec_{service}"
            await connection.close()
        pids = [pid_of(data, server) for server in ("postgres", "nats", "valkey")]
        assert all(psutil.pid_exists(pid) for pid in pids)
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    async with servers(data, {}) as again:
        assert again == addresses


async def test_a_server_that_dies_is_started_again_at_its_address(data: DataDirectory) -> None:
    async with servers(data, {}) as addresses:
        psutil.Process(pid_of(data, "nats")).kill()
        psutil.Process(pid_of(data, "postgres")).kill()
        async with asyncio.timeout(60):
            client = await nats_client.connect(
                addresses.nats_url,
                nkeys_seed_str=addresses.nats_seed,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.05,
            )
            await client.close()
            while not await answers(addresses.database_url):
                await asyncio.sleep(0.02)
    for place in ("postgres/data", "nats", "valkey"):
        assert not working_in(data.path / place)


async def answers(dsn: str) -> bool:
    try:
        connection = await asyncpg.connect(dsn)
    except (OSError, asyncpg.PostgresError):
        return False
    await connection.close()
    return True


async def test_external_servers_are_used_when_their_urls_are_set(
    data: DataDirectory, nats: NatsAddress, valkey_server: str
) -> None:
    # A server of its own: the roles of a server belong to whoever sets their passwords.
    postgres = EmbeddedPostgres(data.path / "elsewhere")
    dsn = (await postgres.start()).dsn()
    given = {
        "PAMSPEC_DATABASE_URL": await create_database(dsn, "memory"),
        "PAMSPEC_NATS_URL": nats.url,
        "PAMSPEC_NATS_NKEY_SEED": nats.service_seed,
        **nats.callout_variables(),
        "PAMSPEC_VALKEY_URL": valkey_server,
    }
    async with servers(data, given) as addresses:
        assert addresses.database_url == given["PAMSPEC_DATABASE_URL"]
        assert (addresses.nats_url, addresses.nats_seed) == (nats.url, nats.service_seed)
        assert addresses.callout == nats.callout_variables()
        assert addresses.valkey_url == valkey_server
        assert not [name for name in ("postgres", "nats", "valkey") if (data.path / name).exists()]
        assert await answers(addresses.of_role("write"))
    await postgres.stop()


async def test_an_external_database_that_cannot_be_used_is_one_line_that_says_why(
    data: DataDirectory, postgres_server: str, database: Database
) -> None:
    closed = f"postgresql://someone:secret@127.0.0.1:{free_port()}/memory"
    for dsn, reason in (
        (with_database(postgres_server, "nowhere"), 'database "nowhere" does not exist: create it'),
        (with_login(postgres_server, "nobody", "secret"), "password authentication failed"),
        (closed, "check the address"),
        ("http://127.0.0.1", "check the address"),
        (database.role("write"), "CREATEROLE"),
    ):
        with pytest.raises(ServerError, match=reason) as refused:
            async with servers(data, {"PAMSPEC_DATABASE_URL": dsn}):
                pass
        assert "secret" not in str(refused.value)


async def test_a_silent_bus_is_told_and_the_start_goes_on(
    data: DataDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    silent = f"nats://127.0.0.1:{free_port()}"
    async with servers(data, {"PAMSPEC_NATS_URL": silent}) as addresses:
        assert addresses.nats_url == silent
    assert [record.getMessage() for record in caplog.records if "PAMSPEC_NATS_URL" in record.getMessage()]


async def test_one_server_that_cannot_start_stops_the_others(data: DataDirectory) -> None:
    broken = data.path / "postgres" / "data"
    broken.mkdir(parents=True)
    (broken / "PG_VERSION").write_text("18\n", encoding="ascii")
    with pytest.raises(ServerError, match="PostgreSQL ended while starting"):
        async with servers(data, {}):
            pass
    for place in ("postgres/data", "nats", "valkey"):
        assert not working_in(data.path / place)
