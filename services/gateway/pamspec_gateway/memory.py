"""A bounded memory: the oldest entry makes room for the newest."""

from __future__ import annotations

from typing import TypeVar

V = TypeVar("V")


class Remembered(dict[bytes, V]):
    """A dict that holds at most `limit` entries."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: bytes, value: V) -> None:
        self.pop(key, None)
        while len(self) >= self._limit:
            del self[next(iter(self))]
        super().__setitem__(key, value)
