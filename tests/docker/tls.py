"""PostgreSQL and Valkey over TLS, in containers of the public images: those of the wheels are built without it."""

import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import asyncpg
import pytest
import redis.asyncio as redis
import trustme
from redis.exceptions import RedisError
from testcontainers.core.container import DockerContainer

from pamspec_cli.servers import databases
from pamspec_common.migrations import migrate
from pamspec_common.postgres import close_pool, connection, create_pool
from pamspec_common.settings import CommonSettings
from tests.servers.containers import POSTGRES, POSTGRES_IMAGE, VALKEY_IMAGE

LONG_S = 120
PASSWORD = "of-this-test-alone"
KEYS = "cp /tls/server.crt /tls/server.key /tmp/ && chown {user} /tmp/server.* && chmod 600 /tmp/server.key && "


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's certificate for loopback, its authority, and an authority that did not sign it."""
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1", "localhost")
    (directory / "server.crt").write_bytes(b"".join(one.bytes() for one in made.cert_chain_pems))
    (directory / "server.key").write_bytes(made.private_key_pem.bytes())
    (directory / "ca.crt").write_bytes(authority.cert_pem.bytes())
    (directory / "foreign.crt").write_bytes(trustme.CA().cert_pem.bytes())
    return directory


@pytest.fixture
def postgres(files: Path) -> Iterator[str]:
    """Where a PostgreSQL that speaks TLS listens."""
    start = (
        KEYS.format(user="postgres")
        + "exec docker-entrypoint.sh postgres -c ssl=on"
        + " -c ssl_cert_file=/tmp/server.crt -c ssl_key_file=/tmp/server.key"
    )
    container = DockerContainer(POSTGRES_IMAGE.format(version=POSTGRES), entrypoint=["sh", "-c", start])
    container.with_env("POSTGRES_PASSWORD", PASSWORD).with_exposed_ports(5432)
    with container.with_volume_mapping(str(files), "/tls", "ro"):
        yield f"postgresql://postgres:{PASSWORD}@127.0.0.1:{container.get_exposed_port(5432)}/postgres"


@pytest.fixture
def valkey(files: Path) -> Iterator[str]:
    """Where a Valkey that speaks nothing but TLS listens."""
    start = "exec valkey-server --port 0 --tls-port 6379 --tls-auth-clients no --tls-ca-cert-file /tls/ca.crt"
    start += f" --tls-cert-file /tmp/server.crt --tls-key-file /tmp/server.key --requirepass {PASSWORD}"
    command = KEYS.format(user="root") + start
    container = DockerContainer(VALKEY_IMAGE, entrypoint=["sh", "-c", command])
    with container.with_exposed_ports(6379).with_volume_mapping(str(files), "/tls", "ro"):
        yield f"rediss://:{PASSWORD}@127.0.0.1:{container.get_exposed_port(6379)}/0"


async def once_there(attempt: Callable[[], Awaitable[object]]) -> object:
    """What the attempt returns once the server of a new container answers."""
    deadline = time.monotonic() + LONG_S
    while True:
        try:
            return await attempt()
        except (OSError, asyncpg.PostgresError, RedisError, TimeoutError):
            if time.monotonic() > deadline:
                raise


async def test_postgres_is_verified_in_full_and_read_anew_at_each_connection(postgres: str, files: Path) -> None:
    trusted = files / "trusted.crt"
    trusted.write_bytes((files / "ca.crt").read_bytes())
    url = f"{postgres}?sslmode=verify-full&sslrootcert={trusted}"

    async def reached() -> None:
        await (await asyncpg.connect(url, timeout=5)).close()

    await once_there(reached)
    await migrate(url, databases.migration_sources())
    pool = await create_pool(CommonSettings.model_validate({"database_url": url}), "test")
    async with connection(pool, 30_000) as conn:
        assert await conn.fetchval("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    trusted.write_bytes((files / "foreign.crt").read_bytes())
    await pool.expire_connections()
    with pytest.raises(ssl.SSLCertVerificationError):
        await pool.acquire()
    trusted.write_bytes((files / "ca.crt").read_bytes())
    async with connection(pool, 30_000) as conn:
        assert await conn.fetchval("SELECT 1") == 1
    await close_pool(pool)


async def test_valkey_is_verified(valkey: str, files: Path) -> None:
    client: redis.Redis = redis.Redis.from_url(f"{valkey}?ssl_ca_certs={files / 'ca.crt'}")
    await once_there(client.ping)
    assert await client.set("a", "b")
    await client.aclose()
    doubting: redis.Redis = redis.Redis.from_url(f"{valkey}?ssl_ca_certs={files / 'foreign.crt'}")
    with pytest.raises(RedisError, match="CERTIFICATE_VERIFY_FAILED"):
        await doubting.ping()
    await doubting.aclose()
