"""The public keys of identity providers, fetched when they are needed and kept for a while.

Invariants: an issuer is asked at most once per `again_s`, whatever tokens come; a key that it no longer publishes is
believed for at most `fresh_s`, and while it does not answer, the keys it published last for at most `stale_s`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
import jwt
import orjson

from pamspec_common.errors import ServiceUnavailable

_MAX_DOCUMENT = 256 * 1024
_MAX_KEYS = 100
_TIMEOUT = aiohttp.ClientTimeout(total=5)
_MIN_RSA_BITS = 2048

_log = logging.getLogger(__name__)


class _Unusable(Exception):
    """What an issuer answered can't be used."""


@dataclass
class _Issuer:
    keys: dict[str | None, jwt.PyJWK] = field(default_factory=dict)
    fetched_at: float = float("-inf")
    asked_at: float = float("-inf")
    asking: asyncio.Task[None] | None = None


class SigningKeys:
    """Keys by issuer and key id."""

    def __init__(
        self,
        *,
        fresh_s: float = 300.0,
        again_s: float = 10.0,
        stale_s: float = 3600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fresh_s, self._again_s, self._stale_s, self._clock = fresh_s, again_s, stale_s, clock
        self._issuers: dict[str, _Issuer] = {}
        self._session: aiohttp.ClientSession | None = None

    async def find(self, issuer: str, jwks_url: str | None, kid: str | None) -> jwt.PyJWK | None:
        """The key that an issuer publishes under `kid`; without `kid` its only one. None: it publishes no such key.

        ServiceUnavailable when no keys of the issuer can be had.
        """
        known = self._issuers.setdefault(issuer, _Issuer())
        age = self._clock() - known.fetched_at
        if age > self._fresh_s or self._key(known, kid) is None:
            await self._ask(issuer, jwks_url, known)
            age = self._clock() - known.fetched_at
        if age > self._stale_s:
            raise ServiceUnavailable("The identity provider does not answer; try again shortly.")
        return self._key(known, kid)

    @staticmethod
    def _key(known: _Issuer, kid: str | None) -> jwt.PyJWK | None:
        if kid is None:
            return next(iter(known.keys.values())) if len(known.keys) == 1 else None
        return known.keys.get(kid)

    async def _ask(self, issuer: str, jwks_url: str | None, known: _Issuer) -> None:
        """Fetch once for all who wait; not again before its time."""
        if known.asking is None:
            if self._clock() - known.asked_at < self._again_s:
                return
            known.asked_at = self._clock()
            known.asking = asyncio.create_task(self._fetch(issuer, jwks_url, known), name="signing-keys")
            known.asking.add_done_callback(lambda _: setattr(known, "asking", None))
        await asyncio.shield(known.asking)

    async def _fetch(self, issuer: str, jwks_url: str | None, known: _Issuer) -> None:
        try:
            keys = _usable(await self._get(jwks_url or await self._discovered(issuer)))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, _Unusable) as error:
            _log.warning("keys of %s: %s", issuer, repr(error), extra={"action": "signing_keys_failed"})
            return
        known.keys, known.fetched_at = keys, self._clock()

    async def _discovered(self, issuer: str) -> str:
        document = await self._get(issuer.rstrip("/") + "/.well-known/openid-configuration")
        if document.get("issuer") != issuer:
            raise _Unusable("the discovery document is that of another issuer")
        return str(document.get("jwks_uri"))

    async def _get(self, url: str) -> dict[str, object]:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT, cookie_jar=aiohttp.DummyCookieJar())
        async with self._session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise _Unusable(f"answered {response.status}")
            body = await response.content.read(_MAX_DOCUMENT + 1)
            while len(body) <= _MAX_DOCUMENT and (more := await response.content.read(_MAX_DOCUMENT)):
                body += more
        if len(body) > _MAX_DOCUMENT:
            raise _Unusable("the document is too large")
        document = orjson.loads(body)
        if not isinstance(document, dict):
            raise _Unusable("not a JSON object")
        return document

    async def close(self) -> None:
        """End what is under way."""
        for known in self._issuers.values():
            if known.asking is not None:
                known.asking.cancel()
        if self._session is not None:
            await self._session.close()


def _usable(document: dict[str, object]) -> dict[str | None, jwt.PyJWK]:
    """The keys of a JWKS that can verify a signature; symmetric, weak, unknown and encryption keys are left out."""
    published = document.get("keys")
    if not isinstance(published, list):
        raise _Unusable("no keys in the document")
    found: dict[str | None, jwt.PyJWK] = {}
    for entry in published[:_MAX_KEYS]:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or entry.get("kty") == "oct":
            continue
        try:
            key = jwt.PyJWK(entry)
        except (jwt.InvalidKeyError, jwt.PyJWKError, ValueError, TypeError):
            continue
        if getattr(key.key, "key_size", _MIN_RSA_BITS) < _MIN_RSA_BITS and entry.get("kty") == "RSA":
            continue
        kid = entry.get("kid")
        found[kid if isinstance(kid, str) else None] = key
    return found
