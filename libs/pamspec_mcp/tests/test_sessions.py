"""Sessions: whose they are, how they end, and what a host sees of the door before it is let in."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from pamspec_common.keys import new_key
from services.gateway.tests.behind import insert_key
from services.gateway.tests.whole import Whole

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
TOOLS = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


class Wire:
    """A host by hand: one request, its status, headers and body."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str | None) -> None:
        self._session, self._url = session, url + "/mcp"
        self.headers = {**ACCEPT, **({"Authorization": f"Bearer {key}"} if key else {})}

    async def ask(
        self, body: Mapping[str, Any], session_id: str | None = None, method: str = "POST", **headers: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a message."""
        sent = {**self.headers, **headers, **({"Mcp-Session-Id": session_id} if session_id else {})}
        async with self._session.request(method, self._url, json=body, headers=sent) as response:
            return response.status, response.headers, await response.read()

    async def opened(self) -> str:
        """The id of a new session."""
        status, headers, body = await self.ask(INITIALIZE)
        assert status == 200, body
        return headers["Mcp-Session-Id"]


async def test_a_stranger_is_told_where_to_ask_for_a_token(whole: Whole) -> None:
    async with aiohttp.ClientSession() as session:
        for key in (None, new_key(), "nonsense"):
            status, headers, body = await Wire(session, whole.url, key).ask(INITIALIZE)
            assert status == 401
            assert json.loads(body)["error"]["code"] == "access_denied"
            metadata = headers["WWW-Authenticate"].partition('resource_metadata="')[2].rstrip('"')
            assert metadata == f"{whole.url}/.well-known/oauth-protected-resource/mcp"
        for path in ("", "/mcp"):
            async with session.get(f"{whole.url}/.well-known/oauth-protected-resource{path}") as response:
                assert response.status == 200
                told = await response.json()
            assert told["resource"] == f"{whole.url}/mcp"
            assert told["bearer_methods_supported"] == ["header"]


async def test_a_session_is_its_principals_alone(whole: Whole, stranger: str) -> None:
    colleague = new_key()
    await insert_key(whole.database.dsn, colleague, actor="agent:colleague", key_id="key:colleague")
    async with aiohttp.ClientSession() as session:
        own = Wire(session, whole.url, whole.key)
        session_id = await own.opened()
        for key in (stranger, colleague):
            other = Wire(session, whole.url, key)
            for method in ("POST", "DELETE", "GET"):
                status, _, _ = await other.ask(TOOLS, session_id, method)
                assert status == 404
        status, _, _ = await own.ask(TOOLS, session_id)
        assert status == 200


async def test_a_session_that_nobody_has_is_not_there(whole: Whole) -> None:
    async with aiohttp.ClientSession() as session:
        wire = Wire(session, whole.url, whole.key)
        status, _, _ = await wire.ask(TOOLS, "0" * 32)
        assert status == 404
        session_id = await wire.opened()
        status, _, _ = await wire.ask({}, session_id, "DELETE")
        assert status == 200
        status, _, _ = await wire.ask(TOOLS, session_id)
        assert status == 404


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("https://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("null", 403),
        ("http://[", 403),
    ],
)
async def test_pages_of_other_origins_are_refused(whole: Whole, origin: str, status: int) -> None:
    async with aiohttp.ClientSession() as session:
        wire = Wire(session, whole.url, whole.key)
        assert (await wire.ask(INITIALIZE, Origin=origin))[0] == status


async def test_a_rebound_name_helps_nobody(whole: Whole) -> None:
    async with aiohttp.ClientSession() as session:
        wire = Wire(session, whole.url, whole.key)
        answer = await wire.ask(INITIALIZE, Origin="http://evil.example", Host="evil.example")
        assert answer[0] == 403


async def test_methods_and_sets_that_there_are_not(whole: Whole) -> None:
    async with aiohttp.ClientSession(headers={**ACCEPT, "Authorization": f"Bearer {whole.key}"}) as session:
        async with session.put(f"{whole.url}/mcp") as response:
            assert response.status == 405
            assert response.headers["Allow"] == "DELETE, GET, OPTIONS, POST"
        for path in ("/mcp/none", "/mcp?names=none"):
            async with session.post(whole.url + path, json=INITIALIZE) as response:
                assert response.status in (400, 404)
                assert json.loads(await response.read())["error"]["code"] == "invalid_request"
        async with session.get(f"{whole.url}/mcpx") as response:
            assert response.status == 404


async def test_a_revoked_key_ends_the_stream_of_its_session(whole: Whole) -> None:
    key = new_key()
    await insert_key(whole.database.dsn, key, actor="agent:short", key_id="key:short")
    async with aiohttp.ClientSession() as session:
        wire = Wire(session, whole.url, key)
        session_id = await wire.opened()
        headers = {**wire.headers, "Mcp-Session-Id": session_id, "Accept": "text/event-stream"}
        async with session.get(f"{whole.url}/mcp", headers=headers) as stream:
            assert stream.status == 200
            status, answer = await whole.post("revoke_key", {"key_id": "key:short", "policy_basis": "a test"})
            assert status == 200, answer
            async with asyncio.timeout(60):
                await stream.read()
        assert (await wire.ask(TOOLS, session_id))[0] == 401
