"""Waiting until exact moments of the steady clock.

The event loop's own timers count whole milliseconds from when they are set, so when they fire tells when that was. The
kernel's absolute timers do not: whoever waits here goes on at its moment, whenever it began to wait.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import itertools
import os
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_NANOSECONDS = 1_000_000_000


class _Timer(ctypes.Structure):
    """struct itimerspec."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns")]


class Moments:
    """One timer of the kernel for all who wait in an event loop; `open` it there, `close` it in the end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._fd = -1
        self._libc = ctypes.CDLL(None, use_errno=True)

    def open(self) -> None:
        """Begin; OSError when the process has no file left to open."""
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "no timer of the kernel")
        asyncio.get_running_loop().add_reader(self._fd, self._fire)

    async def until(self, moment: float) -> None:
        """Return at a moment of time.monotonic(), in seconds, and not before; at once when it is past or all ends."""
        if moment <= self._clock() or self._fd < 0:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (moment, next(self._numbers), future))
        if self._waiting[0][2] is future:
            self._set(moment)
        await future

    def _set(self, moment: float) -> None:
        at_s, at_ns = divmod(int(moment * _NANOSECONDS) + 1, _NANOSECONDS)
        self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(_Timer(0, 0, at_s, at_ns)), None)

    def _fire(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        now = self._clock()
        while self._waiting and (self._waiting[0][0] <= now or self._waiting[0][2].done()):
            _go_on(heapq.heappop(self._waiting)[2])
        if self._waiting:
            self._set(self._waiting[0][0])

    def close(self) -> None:
        """Let all go on who wait."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        while self._waiting:
            _go_on(self._waiting.pop()[2])


def _go_on(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
