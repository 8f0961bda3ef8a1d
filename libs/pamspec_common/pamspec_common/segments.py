"""Lines in numbered files of one directory, written by one process at a time; a crash costs at most the last line."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

SEGMENT_BYTES = 64 * 1024 * 1024


class Segments:
    """The files `<name>-<number>.ndjson`, the oldest first; one that is full is followed by another."""

    def __init__(self, directory: Path, name: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._directory, self._name, self._segment_bytes = directory, name, segment_bytes

    def append(self, documents: Collection[bytes]) -> None:
        """Append a line for each; they are on disk when this returns. OSError when they are not."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        paths = self.paths()
        current = paths[-1] if paths else self._path(1)
        if current.exists() and current.stat().st_size >= self._segment_bytes:
            current = self._path(_number(current) + 1)
        _append(current, documents)

    def lines(self, paths: Iterable[Path] | None = None) -> Iterator[bytes]:
        """The lines of these files, or of all; one that was cut off is among them."""
        for path in self.paths() if paths is None else paths:
            with path.open("rb") as lines:
                yield from lines

    def paths(self) -> list[Path]:
        """The files that there are."""
        return sorted(self._directory.glob(f"{self._name}-*.ndjson"), key=_number)

    def _path(self, number: int) -> Path:
        return self._directory / f"{self._name}-{number:06d}.ndjson"


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _append(path: Path, documents: Iterable[bytes]) -> None:
    """In one write behind a line feed where the last line was cut off, then to disk."""
    data = b"".join(document + b"\n" for document in documents)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            data = b"\n" + data
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.fsync(file)
    finally:
        os.close(file)
