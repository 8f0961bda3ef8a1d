"""Turns: who goes next to the services when more is asked for than they are given at once.

Invariants: of the places, one tenant holds a fixed share at most, so another tenant always finds one soon; those who
wait are let in tenant by tenant, one each, however many of one tenant's wait; a waiter who leaves gives up its place.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Line:
    """The requests of one tenant: those with a place, and those who wait for one."""

    __slots__ = ("busy", "waiting")

    def __init__(self) -> None:
        self.busy = 0
        self.waiting: deque[asyncio.Future[None]] = deque()


class Turns:
    """`places` in all, of which one line holds `share` at most."""

    def __init__(self, places: int, share: int) -> None:
        self._free, self._share = places, share
        self._lines: deque[Line] = deque()

    def take(self, line: Line) -> bool:
        """A place now, where one is free and nobody waits for it; otherwise `wait`."""
        if self._free > 0 and line.busy < self._share and not line.waiting:
            self._free -= 1
            line.busy += 1
            return True
        return False

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
        """A place is free again: the next line in turn gets it."""
        self._free += 1
        line.busy -= 1
        for _ in range(len(self._lines)):
            if self._free <= 0:
                return
            following = self._lines.popleft()
            if following.busy >= self._share:
                self._lines.append(following)
                continue
            self._let_in(following)

    def _let_in(self, line: Line) -> None:
        while line.waiting:
            future = line.waiting.popleft()
            if not future.done():
                self._free -= 1
                line.busy += 1
                future.set_result(None)
                break
        if line.waiting:
            self._lines.append(line)
