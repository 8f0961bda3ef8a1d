"""The query service on a database of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_common.principal import Principal
from pamspec_common.service import Service
from pamspec_query.app import build
from services.query.tests.door import Conn, Door, settings
from services.query.tests.seeds import TENANT


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
    return Door(service, Principal(TENANT, "agent:reader", "agent"))
