"""All services in this process behind a gateway that listens, for tests that call the whole product."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import orjson

from conftest import TemplateDatabase
from pamspec_cli import composition
from pamspec_cli.deployment import SERVICES, Deployment
from pamspec_cli.servers import databases
from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.process import free_port
from pamspec_cli.stack import Addresses
from pamspec_common.keys import new_key
from services.gateway.tests.behind import PEPPER, insert_key
from tests.servers.chosen import servers

SCOPE = "workspace:garden"
"""A scope that is there."""


class Whole(NamedTuple):
    """All services behind one gateway."""

    url: str
    key: str
    nats_url: str
    session: aiohttp.ClientSession
    database: Database

    async def post(self, operation: str, body: bytes | object) -> tuple[int, bytes]:
        """Status and body of an operation."""
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        async with self.session.post(f"{self.url}/v1/{operation}", data=data) as response:
            return response.status, await response.read()


@asynccontextmanager
async def running(template: TemplateDatabase, directory: Path) -> AsyncIterator[Whole]:
    """The services of one process on a database and a bus of their own, with one scope."""
    name = databases.new_name("pamspec_whole")
    dsn = await databases.create_database(template.server_dsn, name, template.name)
    database = Database(name, dsn, databases.role_dsns(dsn, template.passwords))
    bus = servers().nats(directory / "nats")
    nats = await bus.start()
    key = new_key()
    await insert_key(dsn, key)
    callout = nats.callout_variables()
    addresses = Addresses(dsn, database.roles, nats.url, nats.service_seed, callout, "redis://127.0.0.1:9/0")
    ports = {service: free_port() for service in SERVICES}
    deployment = Deployment(addresses, {"k1": "a key between services"}, PEPPER, ports)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    async with composition.running(deployment) as url, aiohttp.ClientSession(headers=headers) as session:
        whole = Whole(url, key, nats.url, session, database)
        status, answer = await whole.post("create_scope", {"scope_id": SCOPE})
        assert status == 200, answer
        yield whole
    await bus.stop()
    await databases.drop_database(template.server_dsn, name)
