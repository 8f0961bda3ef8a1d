"""Streamable HTTP: sessions of hosts, each bound to the principal that opened it.

Invariants: a session answers its own principal; to every other, and once it has ended, it is not there (404). A session
without a request for `idle_s` ends, and what it watched ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from pamspec_common.asgi import Receive, Scope, Send
from pamspec_common.errors import ServiceUnavailable
from pamspec_mcp.app import HOST, Host

_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


class Sessions:
    """The sessions of one process."""

    def __init__(
        self, server: Server[dict[str, Any]], *, idle_s: float, most: int, most_of_one: int, body_bytes: int
    ) -> None:
        self._most_of_one = most_of_one
        self._manager = StreamableHTTPSessionManager(
            server, session_idle_timeout=idle_s, max_sessions=most, max_request_body_size=body_bytes
        )
        self._stopping = asyncio.Event()
        self._ready = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to take requests."""
        self._running = asyncio.create_task(self._run(), name="mcp sessions")
        await self._ready.wait()

    async def _run(self) -> None:
        async with self._manager.run():
            self._ready.set()
            await self._stopping.wait()

    async def stop(self) -> None:
        """End every session and what it watches."""
        self._stopping.set()
        if self._running is not None:
            await self._running

    @property
    def open(self) -> int:
        """How many sessions there are."""
        return len(self._manager._server_instances)

    def open_of(self, principal: str) -> int:
        """How many sessions a principal has."""
        return sum(owner["client_id"] == principal for owner in self._manager._session_owners.values())

    @staticmethod
    def _opens(scope: Scope) -> bool:
        """Whether a request opens a session, unless it is refused."""
        headers = dict(scope["headers"])
        version = headers.get(b"mcp-protocol-version", b"").decode("latin-1")
        return b"mcp-session-id" not in headers and (not version or version in HANDSHAKE_PROTOCOL_VERSIONS)

    async def serve(self, scope: Scope, receive: Receive, send: Send, host: Host, principal: str) -> None:
        """Answer a request of a principal, which is any text that no other principal has.

        ServiceUnavailable (429) for one more session of a principal that has as many as it may.
        """
        if self._opens(scope) and self.open_of(principal) >= self._most_of_one:
            message = f"Each principal has at most {self._most_of_one} sessions; end some, or wait until they end."
            raise ServiceUnavailable(message, status=429)
        user = AuthenticatedUser(AccessToken(token="", client_id=principal, scopes=[]))
        await self._manager.handle_request({**scope, "user": user, HOST: host}, receive, send)


def origin_allowed(origin: bytes | None, allowed: Sequence[str]) -> bool:
    """Whether a page of that origin may speak to the door: those of this machine, and those that are named.

    The name in the Host header counts for nothing, since whoever rebinds a name chooses it.
    """
    if origin is None:
        return True
    text = origin.decode("latin-1")
    try:
        return text in allowed or urlsplit(text).hostname in _LOOPBACK
    except ValueError:
        return False


def resource_metadata(resource: str, issuers: Sequence[str]) -> dict[str, Any]:
    """The protected-resource metadata of the door (RFC 9728)."""
    told: dict[str, Any] = {
        "resource": resource,
        "resource_name": "PAMSPEC memory",
        "bearer_methods_supported": ["header"],
    }
    return {**told, "authorization_servers": list(issuers)} if issuers else told
