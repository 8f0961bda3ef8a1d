"""The whole product in this process, for the tests of what stands on it: the client and the commands."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest_asyncio

from conftest import TemplateDatabase
from pamspec_cli import composition, development
from pamspec_cli.data import DataDirectory
from pamspec_cli.deployment import Deployment
from pamspec_cli.servers import databases
from pamspec_cli.stack import servers
from pamspec_client import AsyncClient, NatsLogin, RetryPolicy


@dataclass(frozen=True)
class Product:
    """A running product and how to log in to it."""

    url: str
    key: str = field(repr=False)
    nats: NatsLogin
    database_url: str = field(repr=False)
    """A superuser's."""

    def client(self, *, session: bool = False) -> AsyncClient:
        """A client of it."""
        return AsyncClient(self.url, self.key, session=session, nats=self.nats, retry=RetryPolicy(base_s=0.01))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def product(
    template_database: TemplateDatabase, valkey_server: str, server_directory: Path
) -> AsyncIterator[Product]:
    """One for all tests of this run; each takes scopes of its own."""
    name = databases.new_name("pamspec_product")
    dsn = await databases.create_database(template_database.server_dsn, name, template_database.name)
    environment = {"PAMSPEC_DATABASE_URL": dsn, "PAMSPEC_VALKEY_URL": valkey_server}
    with DataDirectory(server_directory / "product") as data:
        for role, password in template_database.passwords.items():
            data.secret(role, partial(str, password))
        async with servers(data, environment) as addresses:
            deployment = Deployment.of(data, addresses, None)
            key = development.chosen_key(data)
            await development.ensure_principal(dsn, deployment.key_pepper.encode(), key)
            login = NatsLogin(addresses.nats_url)
            async with composition.running(deployment) as url:
                yield Product(url, key.text, login, dsn)
    await databases.drop_database(template_database.server_dsn, name)


@pytest_asyncio.fixture(loop_scope="session")
async def agent_client(product: Product) -> AsyncIterator[AsyncClient]:
    """A client of the running product."""
    async with product.client() as client:
        yield client
