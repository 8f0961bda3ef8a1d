"""Posting to endpoints that nobody here trusts.

Invariants: a name is looked up once for a connection and the connection is made to an address that was checked, never
to the name again; the last check stands where the socket is made. Redirects are not followed, proxies of the
environment are ignored, cookies are not kept; of an answer only its status and Retry-After are looked at, its body is
read within bounds and thrown away. Nothing about an endpoint is logged.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from pamspec_subscription.webhooks.attempts import Attempt, outcome_of, retry_after
from pamspec_subscription.webhooks.targets import Targets

_NAME_THREADS = 16
_FIRST_STATUS = 100
_BODY_BYTES = 16 * 1024
_BODY_S = 1.0
_IDLE_S = 3.0
"""How long a connection is kept for the next delivery; shorter than servers keep theirs, so that none breaks in use."""

Lookup = Callable[[str], Sequence[str]]
"""The addresses of a name; OSError when it has none. Runs in a thread."""


@dataclass(frozen=True)
class Limits:
    """How long a request may take, in seconds."""

    total_s: float = 15.0
    connect_s: float = 5.0


class NoAddress(OSError):
    """No address that a webhook may lead to."""


class _CheckedResolver(AbstractResolver):
    """Names become addresses that were checked; threads of its own, so that slow names delay nobody else."""

    def __init__(self, targets: Targets, lookup: Lookup) -> None:
        self._targets, self._lookup = targets, lookup
        self._threads = ThreadPoolExecutor(_NAME_THREADS, "webhook-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host that may be connected to; NoAddress for none, whatever the reason."""
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, self._lookup, host)
        except (OSError, UnicodeError) as error:
            raise NoAddress from error
        allowed = [address for address in found if self._targets.allows(address)]
        if not allowed:
            raise NoAddress
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in allowed
        ]

    async def close(self) -> None:
        """End the threads that have nothing to do."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Poster:
    """Requests of one lane; its names and connections are its own."""

    def __init__(self, targets: Targets, limits: Limits, ca_file: Path | None = None, lookup: Lookup | None = None):
        self._targets, self._limits = targets, limits
        self._resolver = _CheckedResolver(targets, lookup or addresses_of)
        trust = ssl.create_default_context()
        if ca_file is not None:
            trust.load_verify_locations(ca_file)
        connector = aiohttp.TCPConnector(
            resolver=self._resolver,
            use_dns_cache=False,
            socket_factory=self._socket,
            ssl=trust,
            limit=0,
            keepalive_timeout=_IDLE_S,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=limits.total_s, sock_connect=limits.connect_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            headers={"User-Agent": "pamspec-webhooks/1", "Content-Type": "application/json"},
            skip_auto_headers=("Accept-Encoding",),
        )

    async def post(self, url: URL, body: bytes, headers: Mapping[str, str]) -> Attempt:
        """Post a body once; whatever happens is the outcome."""
        began = time.monotonic()
        status, again = None, None
        try:
            async with asyncio.timeout(self._limits.total_s + 1):
                answered, again = await self._post(url, body, headers)
            outcome, status = outcome_of(answered), answered if answered >= _FIRST_STATUS else None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            outcome = _failure(error)
        return Attempt(outcome, status, again, int((time.monotonic() - began) * 1000))

    async def _post(self, url: URL, body: bytes, headers: Mapping[str, str]) -> tuple[int, float | None]:
        if url.host is None or not self._targets.allows_host(url.host):
            raise NoAddress
        async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as response:
            again = retry_after(response.headers.get("Retry-After"), time.time)
            await _read_away(response)
            return response.status, again

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        """The last check: nothing is connected to that may not be."""
        family, kind, protocol, _, where = address
        if not self._targets.allows(where[0]):
            raise NoAddress
        return socket.socket(family, kind, protocol)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()
        await self._resolver.close()


async def _read_away(response: aiohttp.ClientResponse) -> None:
    """Read a short body, so that the connection can be used again; a long or slow one ends it."""
    left = _BODY_BYTES
    try:
        async with asyncio.timeout(_BODY_S):
            while left > 0 and (piece := await response.content.read(left)):
                left -= len(piece)
    except (TimeoutError, aiohttp.ClientError, OSError):
        left = 0
    if left <= 0:
        response.close()


def addresses_of(host: str) -> list[str]:
    """What the system's resolver says."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def _failure(error: Exception) -> str:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, NoAddress) or isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no_address"
    if isinstance(error, TimeoutError):
        return "timed_out"
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return "tls_failed"
    return "unreachable"
