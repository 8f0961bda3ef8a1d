"""Peers: another service, in this process or behind a URL; a caller cannot tell the difference."""

from __future__ import annotations

from typing import Any, Protocol

import aiohttp
import orjson
from msgspec import structs

from pamspec_common.asgi import ASGIApp
from pamspec_common.calls import Answer, Call
from pamspec_common.internal import RemoteOperations, answer
from pamspec_common.proxy import StreamProxy
from pamspec_common.service import Part, Service
from pamspec_common.telemetry import tracing
from pamspec_common.tls import TlsFiles, client_context


class Peer(Protocol):
    """Another service: its operations and its readiness."""

    async def call(self, call: Call) -> Answer:
        """The answer of an operation; refusals and an unreachable service are answers too."""

    async def ready(self) -> tuple[bool, list[Part]]:
        """Whether the service takes work, with its parts."""

    @property
    def app(self) -> ASGIApp | None:
        """The routes of the service beyond its operations (streams)."""


class LocalPeer:
    """A service of the same process."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def app(self) -> ASGIApp | None:
        """The routes of the service beyond its operations (streams)."""
        return self._service.app

    async def call(self, call: Call) -> Answer:
        """The answer of the service itself, without a copy."""
        return await answer(self._service.operations, call, self._service.name)

    async def ready(self) -> tuple[bool, list[Part]]:
        """The service's own readiness."""
        return await self._service.ready()


ANSWER_TIMEOUT_S = 45.0
"""How long a service may be silent before its caller is told to try again; longer than any wait_ms (30 s)."""


def peer_session(tls: TlsFiles | None = None) -> aiohttp.ClientSession:
    """A session for remote peers, to be made in a running loop and closed by its owner; `tls` is for https URLs."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30, ssl=client_context(tls) if tls else True),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=ANSWER_TIMEOUT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept-Encoding"),
    )


def closing(service: Service, session: aiohttp.ClientSession) -> Service:
    """The service, which closes the session of its peers once it has stopped."""
    stop = service.on_stop

    async def stop_and_close() -> None:
        await stop()
        await session.close()

    service.on_stop = stop_and_close
    return service


class RemotePeer:
    """A service behind a URL; the session belongs to the caller.

    With a name it is ready only while the service of that name answers there: a wrong URL is seen before it is used.
    """

    def __init__(self, session: aiohttp.ClientSession, base_url: str, name: str | None = None) -> None:
        self._session, self.base_url, self._name = session, base_url.rstrip("/"), name
        self._operations = RemoteOperations(session, base_url)
        self._proxy = StreamProxy(session, base_url)

    @property
    def app(self) -> ASGIApp:
        """The streams of the service, passed through as they come."""
        return self._proxy

    async def call(self, call: Call) -> Answer:
        """The answer of the service over HTTP, grouped with the calls that wait."""
        if tracing.enabled and call.traceparent is None:
            call = structs.replace(call, traceparent=tracing.current())
        return await self._operations.call(call)

    async def ready(self) -> tuple[bool, list[Part]]:
        """What the service's /readyz says."""
        try:
            async with self._session.get(self.base_url + "/readyz", timeout=aiohttp.ClientTimeout(2)) as response:
                document = orjson.loads(await response.read())
                found = document.get("service") if isinstance(document, dict) else None
                if self._name is not None and found != self._name:
                    return False, [Part("reachable", False, {"expected": self._name, "found": str(found)})]
                return response.status == 200, _parts(document)
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError):
            return False, [Part("reachable", False)]


def _parts(document: Any) -> list[Part]:
    """The parts of a /readyz; what is none of ours is one part that is not well."""
    parts = document.get("parts") if isinstance(document, dict) else None
    if not isinstance(parts, dict) or not all(isinstance(detail, dict) for detail in parts.values()):
        return [Part("reachable", False)]
    return [
        Part(name, bool(detail.pop("ok", False)), detail, bool(detail.pop("essential", True)))
        for name, detail in parts.items()
    ]
