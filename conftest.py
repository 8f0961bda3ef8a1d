"""The servers of every test: real ones, of wheels, of images or named by a URL. One that is missing is an error."""

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import uvloop

from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import AgentUser, EmbeddedNats, NatsAddress
from pamspec_common.migrations import migrate
from tests.servers.chosen import servers

TEST_PRINCIPAL_TOKEN = "testprincipaltoken00000000"

# How long a healthy machine makes somebody wait says nothing about a product that is tested on a busy one: what a test
# starts waits longer unless the test is about that wait and says so.
os.environ.setdefault("PAMSPEC_POOL_WAIT_MS", "30000")
os.environ.setdefault("PAMSPEC_STATEMENT_TIMEOUT_MS", "30000")
# A model takes a core for as long as anything waits to be embedded: only tests that are about it have one.
os.environ.setdefault("PAMSPEC_EMBEDDER", "none")


def pytest_report_header() -> str:
    """Which servers this run has."""
    return f"servers: {servers()}"


def pytest_asyncio_loop_factories() -> dict[str, type[asyncio.AbstractEventLoop]]:
    """Tests run on the event loop of the product."""
    return {"uvloop": uvloop.Loop}


@dataclass(frozen=True)
class TemplateDatabase:
    """A migrated database to clone, and the passwords of the service roles."""

    server_dsn: str
    name: str
    passwords: dict[str, str]


@pytest.fixture(scope="session")
def server_directory() -> Iterator[Path]:
    """Where the servers of this run keep their data; removed at its end."""
    path = Path(tempfile.mkdtemp(prefix="pamspec-test-"))
    yield path
    shutil.rmtree(path)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_server(server_directory: Path) -> AsyncIterator[str]:
    """A superuser's DSN: of PAMSPEC_TEST_DATABASE_URL when set, else of a server of this run."""
    given = os.environ.get("PAMSPEC_TEST_DATABASE_URL")
    if given:
        yield given
        return
    server = servers().postgres(server_directory / "postgres")
    address = await server.start()
    yield address.dsn()
    await server.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def template_database(postgres_server: str) -> AsyncIterator[TemplateDatabase]:
    """One database with all migrations of all services, and a password for each of their roles."""
    name = databases.new_name("pamspec_template")
    dsn = await databases.create_database(postgres_server, name)
    await migrate(dsn, databases.migration_sources())
    passwords = {role: secrets.token_urlsafe(16) for role in await databases.existing_roles(postgres_server)}
    await databases.set_role_passwords(postgres_server, passwords)
    yield TemplateDatabase(postgres_server, name, passwords)
    await databases.drop_database(postgres_server, name)


@pytest_asyncio.fixture(loop_scope="session")
async def database(template_database: TemplateDatabase) -> AsyncIterator[Database]:
    """A database of this test alone: a clone of the template, dropped afterwards."""
    name = databases.new_name("pamspec_test")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    yield Database(name, dsn, databases.role_dsns(dsn, template_database.passwords))
    await databases.drop_database(template_database.server_dsn, name)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def module_database(template_database: TemplateDatabase) -> AsyncIterator[Database]:
    """A database that the tests of one module share."""
    name = databases.new_name("pamspec_module")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    yield Database(name, dsn, databases.role_dsns(dsn, template_database.passwords))
    await databases.drop_database(template_database.server_dsn, name)


@pytest_asyncio.fixture(loop_scope="session")
async def nats_process(tmp_path: Path) -> AsyncIterator[EmbeddedNats]:
    """A nats-server of this test alone, empty (30 ms), which the test may kill and start again."""
    server = servers().nats(
        tmp_path / "nats", agent=AgentUser.of_principal(TEST_PRINCIPAL_TOKEN), max_file_bytes=2 * 1024**3
    )
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def nats(nats_process: EmbeddedNats) -> NatsAddress:
    """Where this test's nats-server is, with the seeds of its users."""
    assert nats_process.address is not None
    return nats_process.address


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def valkey_server(server_directory: Path) -> AsyncIterator[str]:
    """The URL of a Valkey server: of PAMSPEC_TEST_VALKEY_URL when set, else of one of this run."""
    given = os.environ.get("PAMSPEC_TEST_VALKEY_URL")
    if given:
        yield given
        return
    server = servers().valkey(server_directory / "valkey")
    address = await server.start()
    yield address.url
    await server.stop()
