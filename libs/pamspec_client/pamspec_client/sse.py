"""Server-sent events: bytes to (id, data), by the rules of the HTML standard as far as this service uses them."""

from __future__ import annotations

from collections.abc import Iterator


class SseParser:
    """Takes bytes as they come, in pieces of any size; gives whole messages."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of every message that this piece completes; comments and empty messages give nothing."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        for ended in lines:
            line = ended.removesuffix(b"\r")
            if not line:
                if self._data:
                    yield b"\n".join(self._data)
                    self._data = []
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
