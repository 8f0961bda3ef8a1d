"""A scripted gateway and clients on it."""

from collections.abc import AsyncIterator

import pytest_asyncio

from libs.pamspec_client.tests.scripted_gateway import ScriptedGateway
from pamspec_client import AsyncClient, RetryPolicy

FAST = RetryPolicy(attempts=5, base_s=0.001, cap_s=0.01)


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    """A gateway of this test alone."""
    scripted = ScriptedGateway()
    async with scripted.running():
        yield scripted


@pytest_asyncio.fixture
async def client(gateway: ScriptedGateway) -> AsyncIterator[AsyncClient]:
    """A client of it that does not wait long before it tries again."""
    async with AsyncClient(gateway.url, "key", retry=FAST) as made:
        yield made
