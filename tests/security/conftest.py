"""All services behind one gateway, with a tenant that has something to hide and people who want to see it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from conftest import TemplateDatabase
from services.gateway.tests import whole
from tests.security.people import People


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def people(
    template_database: TemplateDatabase, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[People]:
    """An owner, a guest of one of the owner's scopes, and the administrator of another tenant."""
    async with whole.running(template_database, tmp_path_factory.mktemp("security")) as product:
        yield await People.of(product)
