"""The way of a call over HTTP: one request, tried again where that is safe.

Invariant: only transport errors and service_unavailable are tried again, always with the same bytes and therefore the
same idempotency key and operation_id; so a write whose answer was lost is answered with its first outcome, never
carried out twice (contracts K7, K8). Pauses grow exponentially with full jitter and honour Retry-After.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from pamspec_client.errors import NoAnswer, PamspecError, ProtocolError, ServiceUnavailable, refusal_of
from pamspec_client.tracing import trace_headers

# What a proxy answers when it does not reach the service.
_GATEWAY_FAILURES = frozenset({429, 500, 502, 503, 504})
"""Without an envelope: of a proxy on the way, or of a server that was cut off while it answered (500)."""
TRANSPORT_ERRORS = (aiohttp.ClientError, TimeoutError, ConnectionError, OSError)


@dataclass(frozen=True)
class RetryPolicy:
    """How often a call is tried and how long it pauses: before try n + 1 a random time up to `base_s * 2**(n - 1)`.

    `cap_s` bounds that time. A Retry-After is obeyed in full; one beyond `patience_s` ends the tries at once.
    """

    attempts: int = 8
    base_s: float = 0.1
    cap_s: float = 5.0
    patience_s: float = 60.0

    def pause_s(self, tries: int, retry_after_s: float | None = None) -> float:
        """The pause after so many tries; at least Retry-After, where the service named one."""
        jitter = random.uniform(0.0, min(self.cap_s, self.base_s * 2.0 ** min(tries - 1, 30)))
        return jitter + (retry_after_s or 0.0)


@dataclass(frozen=True)
class Reply:
    """The answer to one request."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    def number(self, header: str) -> int | None:
        """A header that holds a position, or None."""
        text = self.headers.get(header, "")
        return int(text) if text.isdigit() else None


@dataclass(frozen=True)
class Names:
    """How a call can be named afterwards."""

    operation: str
    operation_id: str | None = None
    idempotency_key: str | None = None


class Transport:
    """HTTP to one gateway, with the key of one principal; the session is made in the loop that first needs it."""

    def __init__(self, base_url: str, api_key: str | None, retry: RetryPolicy, timeout_s: float) -> None:
        self.base_url = base_url.rstrip("/")
        self.retry = retry
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session of this client; RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError("this client is closed")
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        return self._session

    async def close(self) -> None:
        """Close all connections; a second call does nothing."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, path: str, body: bytes, names: Names, wait_s: float = 0.0) -> Reply:
        """The answer of a success; raises the service's refusal, or NoAnswer when the tries are used up."""
        tries = 0
        while True:
            tries += 1
            try:
                return await self._once(path, body, wait_s)
            except ServiceUnavailable as error:
                if tries >= self.retry.attempts or (error.retry_after_s or 0.0) > self.retry.patience_s:
                    raise
                pause_s = self.retry.pause_s(tries, error.retry_after_s)
            except TRANSPORT_ERRORS as error:
                if tries >= self.retry.attempts:
                    raise NoAnswer(
                        f"{names.operation}: no answer from {self.base_url} after {tries} tries "
                        f"({type(error).__name__}); check the address and that the service runs",
                        operation=names.operation,
                        operation_id=names.operation_id,
                        idempotency_key=names.idempotency_key,
                    ) from error
                pause_s = self.retry.pause_s(tries)
            await asyncio.sleep(pause_s)

    async def _once(self, path: str, body: bytes, wait_s: float) -> Reply:
        timeout = aiohttp.ClientTimeout(total=self._timeout_s + wait_s, sock_connect=min(5.0, self._timeout_s))
        headers = trace_headers()
        async with self.session.post(self.base_url + path, data=body, timeout=timeout, headers=headers) as response:
            answer = await response.read()
            if response.status >= 300:
                raise failure(response, answer)
            return Reply(response.status, answer, response.headers)


def failure(response: aiohttp.ClientResponse, body: bytes) -> PamspecError | aiohttp.ClientError | ProtocolError:
    """What an answer that is no success stands for; one of `_GATEWAY_FAILURES` counts as a lost connection."""
    found = refusal_of(body, status=response.status, retry_after_s=seconds(response.headers.get("Retry-After")))
    if found is not None:
        return found
    if response.status in _GATEWAY_FAILURES:
        return aiohttp.ClientConnectionError(f"status {response.status} without an error envelope")
    return ProtocolError(f"status {response.status} without an error envelope; check the address")


def seconds(text: str | None) -> float | None:
    """The value of a Retry-After, or None."""
    return float(text) if text is not None and text.isdigit() else None
