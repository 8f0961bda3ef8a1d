"""Where the lines of an import wait until all of them are checked: a file without a name, gone with the process.

Invariant: reading and writing never block the event loop, and memory holds some pieces of the file, never the file.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from types import TracebackType
from typing import IO, Self

from pamspec_common.errors import InvalidRequest, ServiceUnavailable

PIECE = 1024 * 1024


class Spool:
    """A temporary file of at most `max_bytes` in `directory`, or where the system keeps such files."""

    def __init__(self, directory: str | None, max_bytes: int) -> None:
        self._directory, self._max_bytes = directory, max_bytes
        self._file: IO[bytes] | None = None
        self._waiting = bytearray()
        self._size = 0

    async def __aenter__(self) -> Self:
        self._file = await asyncio.to_thread(tempfile.TemporaryFile, dir=self._directory)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            await asyncio.to_thread(self._file.close)

    async def add(self, lines: bytes) -> None:
        """Keep further bytes."""
        self._size += len(lines)
        if self._size > self._max_bytes:
            raise InvalidRequest(
                f"The file is larger than {self._max_bytes} bytes; the operator can raise the limit.",
                details={"limit": self._max_bytes},
                status=413,
            )
        self._waiting += lines
        if len(self._waiting) >= PIECE:
            await self._flush()

    async def _flush(self) -> None:
        assert self._file is not None
        piece, self._waiting = bytes(self._waiting), bytearray()
        try:
            await asyncio.to_thread(self._file.write, piece)
        except OSError:
            raise ServiceUnavailable(
                "There is no room to keep the file until it is checked; the operator must act.", retry_after=30
            ) from None

    async def lines(self) -> AsyncIterator[list[bytes]]:
        """All lines from the first on, some at a time, without their line feeds."""
        assert self._file is not None
        await self._flush()
        await asyncio.to_thread(self._file.flush)
        await asyncio.to_thread(self._file.seek, 0)
        rest = b""
        while piece := await asyncio.to_thread(self._file.read, PIECE):
            *whole, rest = (rest + piece).split(b"\n")
            yield whole
        if rest:
            yield [rest]
