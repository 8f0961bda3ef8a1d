"""A service of these tests alone, and a door in front of it that can be told to break one promise."""

from collections.abc import AsyncIterator

import pytest_asyncio

from libs.pamspec_conformance.tests.broken_door import BrokenDoor, broken_door
from pamspec_cli.own_service import OwnService, own_service


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def own() -> AsyncIterator[OwnService]:
    """The whole product as a process of its own, on servers of its own, which a test may restart."""
    async with own_service() as service:
        yield service


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def door(own: OwnService) -> AsyncIterator[BrokenDoor]:
    """A proxy in front of the product."""
    async with broken_door(own.url, own.key) as door:
        yield door
