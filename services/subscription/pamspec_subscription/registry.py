"""Who receives in this process, and how a newer poller or channel ends an older one, here or in another process.

Invariant: of one subscription at most one channel or waiting poll stays; the newest has the highest channel epoch, and
every other one learns of it at once in the same process, within the interval of the comparison elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from pamspec_common.errors import PamspecError, ServiceUnavailable
from pamspec_subscription.fanout import Subscriber
from pamspec_subscription.queries import cursors
from pamspec_subscription.store import Store

_log = logging.getLogger(__name__)

Acknowledged = Callable[[int, Sequence[int]], None]
"""Called with the cursor and the single acknowledgements beyond it."""


class Seat:
    """One channel or waiting poll, with what others may tell it and want to know of it."""

    def __init__(self, subscriber: Subscriber, kind: str, *, keeps_pace: bool = False) -> None:
        self.subscriber, self.kind = subscriber, kind
        self.keeps_pace = keeps_pace
        """Its client takes what is sent and has no other way to say so: a healthy stream is progress."""
        self.position = 0
        self.noted = -1
        self.on_acknowledged: Acknowledged | None = None
        self.gone = asyncio.Event()


class Registry:
    """The seats of a process."""

    def __init__(self, store: Store, limit: int) -> None:
        self._store, self._limit = store, limit
        self._seats: dict[tuple[str, str], Seat] = {}
        self._all: set[Seat] = set()
        self._comparing: asyncio.Task[None] | None = None
        self.stopping = False

    def __len__(self) -> int:
        return len(self._all)

    def check_room(self) -> None:
        """Raise ServiceUnavailable when this process takes no more channels."""
        if self.stopping:
            raise ServiceUnavailable("The service is stopping; connect again.")
        if len(self._all) >= self._limit:
            raise ServiceUnavailable("This process has as many channels as it takes; connect again shortly.")

    def enter(self, seat: Seat, *, beside: bool = False) -> None:
        """The seat is the subscription's newest and an older one here ends, unless it sits `beside` that."""
        self._all.add(seat)
        if self.stopping:
            seat.subscriber.end("shutdown")
        if beside:
            return
        older = self._seats.get(seat.subscriber.key)
        if older is not None:
            older.subscriber.end("replaced")
        self._seats[seat.subscriber.key] = seat

    def leave(self, seat: Seat) -> None:
        """The seat is done."""
        self._all.discard(seat)
        seat.gone.set()
        if self._seats.get(seat.subscriber.key) is seat:
            del self._seats[seat.subscriber.key]

    def replace(self, key: tuple[str, str], channel_epoch: int) -> None:
        """Something newer holds the subscription: what sits here under an older epoch ends."""
        seat = self._seats.get(key)
        if seat is not None and seat.subscriber.channel_epoch < channel_epoch:
            seat.subscriber.end("replaced")

    def position(self, key: tuple[str, str]) -> int:
        """How far a channel here has delivered; 0 when there is none."""
        seat = self._seats.get(key)
        return 0 if seat is None else seat.position

    def acknowledged(self, key: tuple[str, str], cursor: int, ahead: Sequence[int]) -> None:
        """Tell a channel here that waits for acknowledgements."""
        seat = self._seats.get(key)
        if seat is not None and seat.on_acknowledged is not None:
            seat.on_acknowledged(cursor, ahead)

    async def compare(self) -> None:
        """Read once for all seats: whether a newer channel holds one, and acknowledgements that came elsewhere."""
        keys = list(self._seats)
        if not keys:
            return
        async with self._store.for_channels() as conn:
            standings = await cursors.standings(conn, keys)
        for key in keys:
            row = standings.get(key)
            if row is not None:
                self.replace(key, row["channel_epoch"])
                self.acknowledged(key, row["cursor_sequence"], row["acked_ahead"])

    async def compare_soon(self) -> None:
        """The same at once, for a channel that waits for acknowledgements; one query serves all who ask meanwhile."""
        if self._comparing is None or self._comparing.done():
            self._comparing = asyncio.create_task(self.compare())
        try:
            await asyncio.shield(self._comparing)
        except PamspecError as error:
            _log.info("acknowledgements are read later: %s", error, extra={"action": "acknowledgements_wait"})

    async def note_progress(self) -> None:
        """Write down how far the channels are, for the record of a close."""
        channels = [seat for seat in self._all if seat.kind != "poll"]
        moved = [seat for seat in channels if seat.position != seat.noted or seat.keeps_pace]
        if not moved:
            return
        rows = [(*seat.subscriber.key, seat.position, seat.keeps_pace) for seat in moved]
        async with self._store.for_channels() as conn:
            await cursors.progress(conn, rows)
        for seat in moved:
            seat.noted = seat.position

    async def drain(self, timeout_s: float) -> None:
        """Ask everybody to end, and wait for it; bounded."""
        self.stopping = True
        waiting = list(self._all)
        for seat in waiting:
            seat.subscriber.end("shutdown")
        if waiting:
            gone = [asyncio.ensure_future(seat.gone.wait()) for seat in waiting]
            await asyncio.wait(gone, timeout=timeout_s)
            for task in gone:
                task.cancel()
