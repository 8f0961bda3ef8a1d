"""API keys as credentials.

Invariants: a key is found only by its keyed hash; what was found is trusted for `lifetime_s` at most, and until some
key opens less than before (`credential_watch.py`); guesses cost the database one grouped statement at a time, and an
address that guesses too often is put off before the database is asked. Keys that have worked before are never put off.
That a key was used is noted for all keys together, now and then, and never by a request.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

from pamspec_common.errors import ServiceUnavailable, Unauthenticated
from pamspec_common.keys import is_key, key_hash
from pamspec_common.postgres import Pool, connection
from pamspec_gateway.authentication import Identity
from pamspec_gateway.lookups import Lookups
from pamspec_gateway.memory import Remembered
from pamspec_gateway.queries import KeyOwner, note_use, select_principals

_REFUSED = 20_000
_PROVEN = 100_000
_ADDRESSES = 20_000
_REFUSED_S = 2.0
_USED = 100_000
_NOTED_TOGETHER = 1000


def seconds_left(owner: KeyOwner) -> float:
    """How long the key is valid; without an end infinitely long."""
    if owner.expires_at is None:
        return math.inf
    return max(0.0, (owner.expires_at - datetime.now(UTC)).total_seconds())


class ApiKeys:
    """Finds the owner of a key in `core.key_principal`."""

    def __init__(
        self,
        pool: Pool,
        pepper: bytes,
        guesses: Guesses,
        *,
        lifetime_s: float,
        wait_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pepper, self._guesses = pepper, guesses
        self._lifetime_s, self._clock = lifetime_s, clock
        self._refused: Remembered[float] = Remembered(_REFUSED)
        self._proven: Remembered[bool] = Remembered(_PROVEN)
        self._used: dict[bytes, None] = {}
        self._pool, self._wait_ms = pool, wait_ms
        self._lookups = Lookups(pool, wait_ms, select_principals)

    @property
    def statements(self) -> int:
        """How often the database was asked."""
        return self._lookups.statements

    def accepts(self, credential: str) -> bool:
        """Whether the text can be a key."""
        return is_key(credential)

    async def identify(self, credential: str, address: str) -> Identity:
        """The owner of a key. Unauthenticated: unknown, revoked or expired; ServiceUnavailable: 429 for a guesser."""
        digest = key_hash(self._pepper, credential)
        if self._refused.get(digest, 0.0) > self._clock():
            raise Unauthenticated
        if digest not in self._proven:
            self._guesses.check(address)
        owner = await self._lookups.find(digest)
        if owner is None:
            self._refused[digest] = self._clock() + min(self._lifetime_s, _REFUSED_S)
            self._guesses.charge(address)
            raise Unauthenticated
        self._proven[digest] = True
        if len(self._used) < _USED:
            self._used[digest] = None
        ends_in_s = seconds_left(owner)
        return Identity(owner.principal, min(self._lifetime_s, ends_in_s), ends_in_s, owner.key_id)

    def forget(self) -> None:
        """Ask again about keys that did not open."""
        self._refused.clear()

    async def note_use(self) -> None:
        """Note which keys were used since the last time; what could not be noted waits for the next."""
        noted = list(self._used)[:_NOTED_TOGETHER]
        if noted:
            async with connection(self._pool, self._wait_ms) as conn:
                await note_use(conn, noted)
            for digest in noted:
                self._used.pop(digest, None)

    async def close(self) -> None:
        """End the lookup that is under way."""
        await self._lookups.close()


class Guesses:
    """Wrong keys by address: `burst` at once, then `per_s`."""

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._left: Remembered[tuple[float, float]] = Remembered(_ADDRESSES)

    def check(self, address: str) -> None:
        """Raise ServiceUnavailable (429) when the address has no guess left."""
        if self._balance(place_of(address)) < 1:
            raise ServiceUnavailable("Too many wrong keys from this address; try again shortly.", status=429)

    def charge(self, address: str) -> None:
        """Count a wrong key."""
        place = place_of(address)
        self._left[place] = (self._balance(place) - 1, self._clock())

    def _balance(self, place: bytes) -> float:
        left, at = self._left.get(place, (float(self._burst), 0.0))
        return min(float(self._burst), left + (self._clock() - at) * self._per_s)


def place_of(address: str) -> bytes:
    """Whose address it is: of IPv6 the /64, of which one customer has all, and IPv4 by whichever way it came."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address.encode()
    if isinstance(parsed, ipaddress.IPv6Address):
        return parsed.packed[:8] if parsed.ipv4_mapped is None else parsed.ipv4_mapped.packed
    return parsed.packed
