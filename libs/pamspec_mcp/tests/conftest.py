"""The whole product behind one gateway, and hosts that speak to it with the SDK's own client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from conftest import TemplateDatabase
from pamspec_common.ids import mint
from pamspec_common.keys import new_key
from services.gateway.tests import whole as all_services
from services.gateway.tests.behind import insert_key
from services.gateway.tests.whole import SCOPE, Whole

MODES = ["legacy", "2026-07-28"]
"""Both eras of the protocol: sessions, and requests that stand alone."""


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def whole(template_database: TemplateDatabase, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Whole]:
    """All services behind one gateway; what tests of this package leave there may be anything."""
    async with all_services.running(template_database, tmp_path_factory.mktemp("whole")) as running:
        yield running


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def stranger(whole: Whole) -> str:
    """The key of an administrator of another tenant."""
    key = new_key()
    await insert_key(whole.database.dsn, key, tenant="tenant:other", actor="agent:stranger", key_id="key:other")
    return key


@asynccontextmanager
async def host(url: str, key: str, path: str = "/mcp", **options: Any) -> AsyncIterator[Client]:
    """A host that is connected with a key."""
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=120) as http:
        transport = streamable_http_client(url + path, http_client=http)
        async with Client(transport, **options) as client:
            yield client


async def made(client: Client, text: str, **more: Any) -> dict[str, Any]:
    """The answer of a create."""
    answer = await client.call_tool(
        "pamspec.create",
        {
            "scope_id": SCOPE,
            "object_type": "claim",
            "canonical_content": {"statement": text},
            "provenance": {"activity": "told"},
            "object_id": mint("obj"),
            **more,
        },
    )
    assert not answer.is_error, answer
    document: dict[str, Any] = answer.structured_content
    return document
