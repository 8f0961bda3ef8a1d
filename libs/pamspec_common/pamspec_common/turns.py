"""Turns: who goes next where more is asked for than is done at once.

Invariants: of the places, one tenant holds a fixed share at most, and a smaller one while another tenant is there too,
so whoever comes finds one soon; those who wait are let in tenant by tenant, one each, however many of one tenant's
wait; a waiter who leaves gives up its place.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

LINES = 10_000
"""Tenants whose lines are remembered."""
RECENT_S = 1.0
"""For how long a line that asked for a place counts as there."""


class Line:
    """The requests of one tenant: those with a place, and those who wait for one."""

    __slots__ = ("busy", "seen_at", "waiting")

    def __init__(self) -> None:
        self.busy = 0
        self.seen_at = -RECENT_S
        self.waiting: deque[asyncio.Future[None]] = deque()


class Turns:
    """`places` in all, of which one line holds `share` at most, and `beside` while another line is there."""

    def __init__(
        self, places: int, share: int, beside: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._free, self._share, self._clock = places, share, clock
        self._beside = share if beside is None else beside
        self._lines: deque[Line] = deque()
        self._last, self._other = Line(), Line()
        """The lines that asked last, and last before it."""

    def take(self, line: Line) -> bool:
        """A place now, where one is free and nobody waits for it; otherwise `wait`."""
        line.seen_at = self._clock()
        if line is not self._last:
            self._last, self._other = line, self._last
        if self._free > 0 and not line.waiting and line.busy < self._most(line):
            self._free -= 1
            line.busy += 1
            return True
        return False

    def _most(self, line: Line) -> int:
        """How many places a line may hold now."""
        if self._beside == self._share:
            return self._share
        other = self._other if line is self._last else self._last
        return self._beside if other.busy or self._clock() - other.seen_at < RECENT_S else self._share

    async def wait(self, line: Line) -> None:
        """A place, as soon as it is this line's turn."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not line.waiting:
            self._lines.append(line)
        line.waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give_back(line)
            raise

    def give_back(self, line: Line) -> None:
        """A place is free again: the next line in turn gets it, and what else is free the lines after it."""
        self._free += 1
        line.busy -= 1
        while self._free > 0 and self._round():
            continue

    def _round(self) -> bool:
        """Let one of each line in, as far as there are places; whether anybody came in."""
        came = False
        for _ in range(len(self._lines)):
            if self._free <= 0:
                break
            following = self._lines.popleft()
            if following.busy < self._most(following):
                came |= self._let_in(following)
            if following.waiting:
                self._lines.append(following)
        return came

    def _let_in(self, line: Line) -> bool:
        while line.waiting:
            future = line.waiting.popleft()
            if not future.done():
                self._free -= 1
                line.busy += 1
                future.set_result(None)
                return True
        return False


class Places:
    """Places for tenants by their ids, with a line for each."""

    def __init__(self, places: int, share: int, beside: int | None = None) -> None:
        self._turns = Turns(places, share, beside)
        self._lines: dict[str, Line] = {}

    @asynccontextmanager
    async def place(self, tenant_id: str, wait_s: float) -> AsyncIterator[None]:
        """A place of a tenant, for as long as the block takes; TimeoutError when it does not come in time."""
        line = self._lines.get(tenant_id) or self._new(tenant_id)
        if not self._turns.take(line):
            async with asyncio.timeout(wait_s):
                await self._turns.wait(line)
        try:
            yield
        finally:
            self._turns.give_back(line)

    def _new(self, tenant_id: str) -> Line:
        """A line; of many, those that neither have nor want a place are forgotten."""
        if len(self._lines) >= LINES:
            self._lines = {name: one for name, one in self._lines.items() if one.busy or one.waiting}
        line = self._lines[tenant_id] = Line()
        return line
