"""The query service on a database of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_cli.servers.nats import AgentUser, NatsAddress
from pamspec_common.principal import Principal
from pamspec_common.service import Service
from pamspec_query.app import build
from pamspec_write.app import build as build_write
from pamspec_write.settings import Settings as WriteSettings
from services.query.tests.door import KEY, Conn, Door, settings
from services.query.tests.seeds import TENANT
from services.query.tests.writing import Writer
from tests.servers.chosen import servers


@pytest_asyncio.fixture
async def seeding(database: Database) -> AsyncIterator[Conn]:
    """A superuser's connection for seeds."""
    conn = await asyncpg.connect(database.dsn)
    yield conn
    await conn.close()


@pytest_asyncio.fixture
async def service(database: Database) -> AsyncIterator[Service]:
    """A running query service."""
    built = build(settings(database))
    await built.start()
    yield built
    await built.stop()


@pytest_asyncio.fixture
async def door(service: Service) -> Door:
    """Its operations, for an agent of the test's tenant."""
    return Door(service, Principal(TENANT, "agent:reader", "agent", roles=frozenset({"admin"})))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def write_nats(server_directory: Path) -> AsyncIterator[NatsAddress]:
    """A bus for the wake-ups of the write service."""
    server = servers().nats(
        server_directory / "query-nats",
        agent=AgentUser.of_principal("querytests000000000000000a"),
        max_file_bytes=2**30,
    )
    yield await server.start()
    await server.stop()


@pytest_asyncio.fixture
async def writer(database: Database, write_nats: NatsAddress, seeding: Conn) -> AsyncIterator[Writer]:
    """A running write service with the scope of the test."""
    await seeding.execute("INSERT INTO core.tenant (tenant_id) VALUES ($1)", TENANT)
    settings: dict[str, Any] = {
        "database_url": database.role("write"),
        "nats_url": write_nats.url,
        "nats_nkey_seed": write_nats.service_seed,
        "token_keys": {"k1": KEY},
        "drain_s": 2.0,
    }
    service = build_write(WriteSettings(**settings))
    await service.start()
    found = Writer(service)
    await found.ok("create_scope")
    yield found
    await service.stop()
