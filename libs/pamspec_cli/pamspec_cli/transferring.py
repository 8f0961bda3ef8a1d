"""How far a long transfer is, on standard error: a line that is written over on a terminal, one a while elsewhere."""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self

MIB = 1024 * 1024
_EVERY_S, _EVERY_LOGGED_S = 0.2, 10.0


class Meter:
    """Bytes so far, their rate, and their share of the whole where that is known."""

    def __init__(self, verb: str, clock: Callable[[], float], whole: int | None = None) -> None:
        self._verb, self._clock, self._whole = verb, clock, whole
        self._live = sys.stderr.isatty()
        self._every_s = _EVERY_S if self._live else _EVERY_LOGGED_S
        self._started = self._shown_at = clock()
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._say("\n")
        elif self._live and self._bytes:
            print(file=sys.stderr)

    def show(self, so_far: int) -> None:
        """Say how far it is, at most a few times a second."""
        self._bytes = so_far
        now = self._clock()
        if now - self._shown_at >= self._every_s:
            self._shown_at = now
            self._say("\r" if self._live else "\n")

    def _say(self, end: str) -> None:
        seconds = max(self._clock() - self._started, 1e-6)
        share = f" of {self._whole / MIB:,.1f} MiB, storing" if self._whole and self._bytes >= self._whole else ""
        if self._whole and not share:
            share = f" of {self._whole / MIB:,.1f} MiB"
        if end == "\n" and self._live:
            share = share.removesuffix(", storing")
        rate = self._bytes / MIB / seconds
        print(
            f"{self._verb} {self._bytes / MIB:,.1f} MiB{share}, {rate:,.1f} MiB/s", end=end, file=sys.stderr, flush=True
        )
