"""Sessions: whose they are, how they end, and what a host sees of the door before it is let in."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import aiohttp
import asyncpg
import pytest

from pamspec_common.keys import new_key
from services.gateway.tests.behind import insert_key
from services.gateway.tests.whole import SCOPE, Whole

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


async def test_a_page_that_may_speak_may_read_and_no_other(whole: Whole) -> None:
    async with aiohttp.ClientSession() as session:
        for origin, may in {"http://localhost:6274": True, "https://evil.example": False}.items():
            asking = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            async with session.options(f"{whole.url}/mcp", headers=asking) as preflight:
                assert preflight.status == 204
                assert preflight.headers.get("Access-Control-Allow-Origin") == (origin if may else None)
            wire = Wire(session, whole.url, whole.key)
            _, headers, _ = await wire.ask(INITIALIZE, Origin=origin)
            assert headers.get("Access-Control-Allow-Origin") == (origin if may else None)
            if may:
                assert "Mcp-Session-Id" in headers["Access-Control-Expose-Headers"]
                assert "Mcp-Session-Id" in preflight.headers["Access-Control-Allow-Headers"]


async def test_a_rebound_name_helps_nobody(whole: Whole) -> None:
    async with aiohttp.ClientSession() as session:
        wire = Wire(session, whole.url, whole.key)
        answer = await wire.ask(INITIALIZE, Origin="http://evil.example", Host="evil.example")
        assert answer[0] == 403


async def test_who_calls_is_the_credential_whatever_a_header_says(whole: Whole, stranger: str) -> None:
    """Headers of the inner network are dropped, and a key in X-API-Key opens what it opens everywhere."""
    call = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "pamspec.get_scope", "arguments": {"scope_id": SCOPE}},
    }
    async with aiohttp.ClientSession() as session:
        own = Wire(session, whole.url, None)
        own.headers["X-API-Key"] = whole.key
        session_id = await own.opened()
        status, _, body = await own.ask(call, session_id)
        assert status == 200
        assert b"scope_not_found" not in body
        other = Wire(session, whole.url, stranger)
        session_id = await other.opened()
        for name in ("X-Pamspec-Principal", "X-Tenant-Id", "X-Forwarded-User", "Pamspec-Actor"):
            status, _, body = await other.ask(call, session_id, **{name: "tenant:t agent:a"})
            assert status == 200
            assert b"scope_not_found" in body
        both = {"X-API-Key": whole.key}
        _, _, body = await other.ask(call, session_id, **both)
        assert b"scope_not_found" in body


async def test_a_budget_that_is_spent_is_told(whole: Whole) -> None:
    """Lists that reach no operation cost what a request costs."""
    key = new_key()
    await insert_key(whole.database.dsn, key, tenant="tenant:poor", actor="agent:poor", key_id="key:poor")
    quotas = {"tenant": {"requests_per_s": 1, "burst": 5, "channels": 1, "concurrency": 1}}
    conn = await asyncpg.connect(whole.database.dsn)
    try:
        await conn.execute("UPDATE core.tenant SET quotas_version = 1 WHERE tenant_id = 'tenant:poor'")
        await conn.execute(
            "INSERT INTO core.quotas (tenant_id, quotas_version, quotas, policy_basis, actor_id, operation_id)"
            " VALUES ('tenant:poor', 1, $1, 'x', 'human:o', 'op:o')",
            json.dumps(quotas),
        )
    finally:
        await conn.close()
    call = {
        "jsonrpc": "2.0",
        "id": 3,
        "method": "tools/call",
        "params": {"name": "pamspec.list_scopes", "arguments": {}},
    }
    async with aiohttp.ClientSession() as session:
        wire = Wire(session, whole.url, key)
        session_id = await wire.opened()
        headers = {**wire.headers, "Mcp-Session-Id": session_id, "Accept": "text/event-stream"}
        async with session.get(f"{whole.url}/mcp", headers=headers) as stream:
            assert stream.status == 200
            # One stream and one operation at once is all that this tenant may have, and enough for a host.
            assert (await wire.ask(call, session_id))[0] == 200
        for asked in (TOOLS, call):
            for _ in range(2000):
                status, _, body = await wire.ask(asked, session_id)
                assert status == 200
                if b"service_unavailable" in body:
                    assert (b'"isError":true' in body) is (asked is call)
                    break
            else:
                raise AssertionError("nothing was refused")


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
