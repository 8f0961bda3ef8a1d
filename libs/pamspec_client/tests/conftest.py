"""A scripted gateway and clients on it."""

import itertools
from collections.abc import AsyncIterator

import pytest_asyncio

from libs.pamspec_client.tests.scripted_gateway import ScriptedGateway
from pamspec_client import AsyncClient, RetryPolicy

_numbers = itertools.count(1)
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


@pytest_asyncio.fixture
async def scope(agent_client: AsyncClient) -> str:
    """A scope of this test alone."""
    made = await agent_client.create_scope(scope_id=f"workspace:client-{next(_numbers)}", scope_kind="workspace")
    return made.scope_id
