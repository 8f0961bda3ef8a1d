"""Taking entries in: effect and inbox in one transaction, what is missing read from the ledger, poison parked.

Invariant: the inbox row moves by compare-and-set in the transaction of the effect, so of two that take the same entry
in one is rolled back whole; an entry that no effect can take is parked, and its neighbours take effect.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

import asyncpg
import nats.errors

from pamspec_common.consuming import queries
from pamspec_common.consuming.model import Doubt, Entry, Heard, Place, Poison, Span, reach, sort_out
from pamspec_common.errors import PamspecError
from pamspec_common.postgres import Connection, scoped
from pamspec_common.telemetry import metrics

_log = logging.getLogger(__name__)

PASSING = (
    Doubt,
    PamspecError,
    nats.errors.Error,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.LockNotAvailableError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    TimeoutError,
    OSError,
)
"""What another try may mend."""

_PAGE = 1000


class Effect(Protocol):
    """What a service makes of entries."""

    async def apply(self, conn: Connection, entries: Sequence[Entry]) -> None:
        """Take entries in, in the transaction that `conn` is in; each scope's stand in order, without a hole.

        Raises Poison for one that can never be taken.
        """

    async def forget(self, conn: Connection, scope_key: int) -> None:
        """A restore has replaced the scope's ledger: what was made of it is void, its entries come again."""

    async def committed(self, entries: Sequence[Entry]) -> None:
        """These have taken effect for good. What is done here may be lost, and may come twice."""


class Intake:
    """Takes entries in over one connection."""

    def __init__(self, conn: Connection, effect: Effect, service: str) -> None:
        self._conn, self._effect, self._service = conn, effect, service

    async def heard(self, messages: Sequence[Heard]) -> None:
        """Take in what messages of the bus tell; afterwards each of them has taken effect, here or before."""
        places = await queries.fetch_places(self._conn, {message.scope_token for message in messages})
        for place in places.values():
            if place.outdated:
                await self._begin_again(place)
        found = sort_out(messages, places)
        epochs = {place.scope_key: place.ledger_epoch for place in places.values()}
        if found.entries:
            await self._take(found.entries, epochs)
        if found.holes:
            await self.refill(found.holes, epochs)
        if found.dropped:
            metrics.CONSUMER_DROPPED.add(found.dropped, {"service": self._service})

    async def behind(self, places: Sequence[Place]) -> None:
        """Take in from the ledger what these scopes lack."""
        for place in places:
            if place.outdated:
                await self._begin_again(place)
        spans = [Span(place.scope_key, 0 if place.outdated else place.taken, place.head) for place in places]
        await self.refill(spans, {place.scope_key: place.ledger_epoch for place in places})

    async def refill(self, spans: Sequence[Span], epochs: Mapping[int, int]) -> None:
        """Take these spans in from the ledger, page by page."""
        left = [span for span in spans if span.to > span.after]
        while left:
            entries = await queries.fetch_ledger(self._conn, left, _PAGE)
            if not entries:
                raise Doubt(f"the ledger of scope {left[0].scope_key} holds nothing beyond {left[0].after}")
            await self._take(entries, epochs)
            metrics.CONSUMER_REFILLED.add(len(entries), {"service": self._service})
            reached = {key: last for key, (_, last) in reach(entries).items()}
            left = [span._replace(after=reached.get(span.scope_key, span.after)) for span in left]
            left = [span for span in left if span.to > span.after]

    async def _begin_again(self, place: Place) -> None:
        _log.warning("a restored ledger", extra={"action": "consumer_begins_again", "scope_key": place.scope_key})
        async with scoped(self._conn, [place.scope_key]):
            if await queries.forget(self._conn, place):
                await self._effect.forget(self._conn, place.scope_key)

    async def _take(self, entries: Sequence[Entry], epochs: Mapping[int, int]) -> None:
        """All together; where that fails for a reason that stays, one by one, so that only what fails is parked."""
        try:
            await self._commit(entries, {}, epochs)
        except PASSING:
            raise
        except Exception as error:
            if not isinstance(error, Poison):
                _log.exception("an effect failed", extra={"action": "effect_failed", "service": self._service})
            for entry in entries:
                await self._take_one(entry, epochs)
        metrics.CONSUMED.add(len(entries), {"service": self._service})

    async def _take_one(self, entry: Entry, epochs: Mapping[int, int]) -> None:
        try:
            await self._commit([entry], {}, epochs)
        except PASSING:
            raise
        except Exception as error:
            reason = _reason(error)
            await self._commit([entry], {(entry.scope_key, entry.sequence): reason}, epochs)
            metrics.CONSUMER_PARKED.add(1, {"service": self._service})
            extra = {"action": "entry_parked", "scope_key": entry.scope_key, "sequence": entry.sequence}
            _log.error("an entry is parked: %s", reason, extra=extra)

    async def _commit(
        self, entries: Sequence[Entry], parked: Mapping[tuple[int, int], str], epochs: Mapping[int, int]
    ) -> None:
        """One transaction: the inbox moves, the effect follows."""
        reached = reach(entries)
        async with scoped(self._conn, reached):
            if await queries.move(self._conn, reached, epochs) != reached.keys():
                raise Doubt("another process takes the same entries in")
            live = [entry for entry in entries if (entry.scope_key, entry.sequence) not in parked]
            if live:
                await self._effect.apply(self._conn, live)
            if parked:
                aside = [(e, parked[e.scope_key, e.sequence]) for e in entries if (e.scope_key, e.sequence) in parked]
                await queries.park(self._conn, aside)
        await self._effect.committed(live)


async def carry_out(conn: Connection, effect: Effect, limit: int = 100) -> int:
    """Do what operators asked for with parked entries; how many of them were looked at.

    An entry that fails again stays parked with its new reason. Raises one of PASSING, and the rest is done later.
    """
    asked = await queries.fetch_asked(conn, limit)
    for key, sequence, wanted in asked:
        if wanted == "skip":
            await queries.skip_parked(conn, key, sequence)
            continue
        try:
            await replay(conn, effect, key, sequence)
        except PASSING:
            raise
        except Exception as error:
            reason = _reason(error)
            await queries.park_again(conn, key, sequence, reason)
            extra = {"action": "entry_parked", "scope_key": key, "sequence": sequence}
            _log.error("a replayed entry stays parked: %s", reason, extra=extra)
    return len(asked)


def _reason(error: Exception) -> str:
    """Why an entry is parked, without content."""
    return error.reason if isinstance(error, Poison) else type(error).__name__


async def replay(conn: Connection, effect: Effect, scope_key: int, sequence: int) -> bool:
    """Take a parked entry in now; False when there is none. It stays parked when the effect raises."""
    async with scoped(conn, [scope_key]):
        entry = await queries.take_parked(conn, scope_key, sequence)
        if entry is None:
            return False
        await effect.apply(conn, [entry])
    await effect.committed([entry])
    return True
