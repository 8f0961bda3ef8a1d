"""Confirming: the authorization epochs of scopes as they stand now, read once for all that ask within a moment.

Invariant: an epoch is told only when it was read after the caller asked, or at most `bound_s` before; PostgreSQL's
clock comes along with it. An event about a grant makes the next caller read again at once.
"""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import NamedTuple

from pamspec_common.authorization.rights import Epochs
from pamspec_delegation.queries.grants import fetch_epochs
from pamspec_delegation.store import Store

_KEPT = 100_000


class Confirmed(NamedTuple):
    """Epochs, and PostgreSQL's clock, as they were read by a statement that was sent at `asked_at` of our own clock."""

    epochs: Epochs
    now: datetime
    asked_at: float


class Confirmations:
    """What is confirmed of scopes in this process."""

    def __init__(self, store: Store, bound_s: float) -> None:
        self._store, self._bound_s = store, bound_s
        self._known: dict[int, Confirmed] = {}
        self._wanted: set[int] = set()
        self._reading: asyncio.Task[tuple[float, frozenset[int]]] | None = None
        self._generation = 0

    def forget(self) -> None:
        """Something happened to a grant: nothing that was read before counts any more."""
        self._generation += 1
        self._known.clear()

    async def confirmed(self, scope_key: int) -> Confirmed | None:
        """The scope's epochs; None where there is no such scope. ServiceUnavailable when the store is away."""
        asked_at = own_clock()
        held = self._known.get(scope_key)
        if held is not None and asked_at - held.asked_at <= self._bound_s:
            return held
        while True:
            self._wanted.add(scope_key)
            if self._reading is None:
                self._reading = asyncio.create_task(self._read())
            read_at, keys = await asyncio.shield(self._reading)
            if scope_key in keys and read_at >= asked_at:
                return self._known.get(scope_key)

    async def _read(self) -> tuple[float, frozenset[int]]:
        """Everything that is wanted, in one statement; who asks meanwhile waits for the next."""
        await asyncio.sleep(0)
        keys, generation, asked_at = frozenset(self._wanted), self._generation, own_clock()
        self._wanted.clear()
        try:
            async with self._store.session() as conn:
                found, now = await fetch_epochs(conn, sorted(keys))
        finally:
            self._reading = None
        if generation != self._generation:
            return asked_at, frozenset()
        if len(self._known) > _KEPT:
            self._known.clear()
        for key in keys:
            if key in found and now is not None:
                self._known[key] = Confirmed(found[key], now, asked_at)
            else:
                self._known.pop(key, None)
        return asked_at, keys


def own_clock() -> float:
    """Seconds, exact: the event loop's own clock stands still while it works and counts in milliseconds."""
    return time.monotonic()
