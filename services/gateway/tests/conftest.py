"""A gateway on a free port before a small service."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_common.keys import new_key
from pamspec_common.peers import LocalPeer, RemotePeer, peer_session
from pamspec_common.server import serving
from pamspec_gateway.app import build
from services.gateway.tests.behind import Behind, Door, echo_service, gateway_settings, insert_key


@pytest_asyncio.fixture(loop_scope="session", params=["one process", "processes"])
async def door(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[Door]:
    """A gateway whose peers are in the same process, then one whose peers are behind HTTP."""
    behind, key = Behind(), new_key()
    await insert_key(database.dsn, key)
    echo = echo_service("echo", behind)
    async with aiohttp.ClientSession() as session:
        if request.param == "one process":
            await echo.start()
            peers = dict.fromkeys(("write", "query", "subscription"), LocalPeer(echo))
            async with serving(gateway := build(gateway_settings(database), peers)) as url:
                yield Door(url, key, behind, session, database.dsn, gateway)
            await echo.stop()
            return
        async with serving(echo) as behind_url, peer_session() as to_peers:
            peers = dict.fromkeys(("write", "query", "subscription"), RemotePeer(to_peers, behind_url))
            async with serving(gateway := build(gateway_settings(database), peers)) as url:
                yield Door(url, key, behind, session, database.dsn, gateway)
