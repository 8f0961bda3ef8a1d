"""Permissions that the processes of the service share over Valkey: its loss, delay or absence is harmless.

Invariant: what is found there counts only when it was signed by one of us, and then as much as what a process keeps by
itself: under the epochs that it names, while they are confirmed. Whatever goes wrong is a miss, and then Valkey is left
alone for a moment.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging

import msgspec
import redis.asyncio as valkey
from redis.exceptions import RedisError

from pamspec_delegation.model import Permission

_log = logging.getLogger(__name__)

_PATIENCE_S = 0.05
_LEFT_ALONE_S = 1.0
_MAC = 32
_TROUBLE = (RedisError, OSError, TimeoutError)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Permission)

Name = tuple[str, ...]
"""Everything that tells one check from another."""


class SharedCache:
    """Valkey, or nothing where no URL is given."""

    def __init__(self, url: str | None, key: bytes, lifetime_s: float) -> None:
        self._key, self._lifetime_ms = key, int(lifetime_s * 1000)
        self._client: valkey.Redis | None = None
        if url and self._lifetime_ms:
            self._client = valkey.Redis.from_url(url, socket_timeout=_PATIENCE_S, socket_connect_timeout=_PATIENCE_S)
        self._again_at = 0.0

    @property
    def away(self) -> bool:
        """Whether it did not answer lately."""
        return _now() < self._again_at

    async def get(self, name: Name) -> Permission | None:
        """A permission under this name, whatever its epochs are worth now."""
        if self._client is None or self.away:
            return None
        place = _place(name)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                stored = await self._client.get(place)
        except _TROUBLE as error:
            self._trouble(error)
            return None
        if not isinstance(stored, bytes) or not hmac.compare_digest(stored[:_MAC], self._mac(place, stored[_MAC:])):
            return None
        try:
            return _decoder.decode(stored[_MAC:])
        except msgspec.DecodeError:
            return None

    async def put(self, name: Name, made: Permission) -> None:
        """Share a permission for as long as it may be repeated at most."""
        if self._client is None or self.away:
            return
        place, body = _place(name), _encoder.encode(made)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._client.set(place, self._mac(place, body) + body, px=self._lifetime_ms)
        except _TROUBLE as error:
            self._trouble(error)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    def _mac(self, place: str, body: bytes) -> bytes:
        return hmac.digest(self._key, place.encode() + b"\0" + body, "sha256")

    def _trouble(self, error: Exception) -> None:
        _log.info("valkey: %s", type(error).__name__, extra={"action": "cache_away", "error": type(error).__name__})
        self._again_at = _now() + _LEFT_ALONE_S


def _place(name: Name) -> str:
    return "pamspec:delegation:permission:" + hashlib.sha256(_encoder.encode(name)).hexdigest()


def _now() -> float:
    return asyncio.get_running_loop().time()
