"""The way of a call over the bus: the same documents, answers, refusals and tries as over HTTP."""

from __future__ import annotations

import aiohttp

from pamspec_client.bus import STATUS, Bus
from pamspec_client.errors import ClientError, ProtocolError, refusal_of
from pamspec_client.transport import Reply, RetryPolicy, Transport, seconds


def is_bus(url: str) -> bool:
    """Whether an address is one of NATS."""
    return url.startswith(("nats://", "tls://"))


class BusTransport(Transport):
    """Operations over one connection to the bus."""

    def __init__(self, bus: Bus, retry: RetryPolicy, timeout_s: float) -> None:
        super().__init__(bus.url, None, retry, timeout_s)
        self._bus = bus

    @property
    def session(self) -> aiohttp.ClientSession:
        """There is none: ClientError."""
        raise ClientError("this is there over HTTP alone: make a client of the gateway's address")

    async def _once(self, path: str, body: bytes, wait_s: float) -> Reply:
        answer = await self._bus.request(path.removeprefix("/v1/"), body, self._timeout_s + wait_s)
        headers = answer.headers or {}
        status = int(headers[STATUS])
        if status < 300:
            return Reply(status, answer.data, headers)
        refusal = refusal_of(answer.data, status=status, retry_after_s=seconds(headers.get("Retry-After")))
        raise refusal or ProtocolError(f"status {status} without an error envelope")
