"""Checkpoints in files: appended to, never rewritten, bounded.

A directory holds segments `checkpoints-<number>.ndjson`, one signed checkpoint a line. When there are too many of them
the oldest goes, after the newest checkpoints of the ledgers that no later segment names were appended anew. A line that
was cut off by a crash is passed over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from pamspec_common.appending import append
from pamspec_common.checkpoints import Checkpoint, read

SEGMENT_BYTES = 64 * 1024 * 1024
SEGMENTS = 8
_PATTERN = "checkpoints-*.ndjson"


class CheckpointFiles:
    """One directory of segments, written by one process at a time."""

    def __init__(self, directory: Path, *, segment_bytes: int = SEGMENT_BYTES, segments: int = SEGMENTS) -> None:
        self.directory = directory
        self._segment_bytes, self._segments = segment_bytes, max(2, segments)

    def append(self, documents: Collection[bytes]) -> None:
        """Append checkpoints; they are on disk when this returns. OSError when they are not."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        paths = self._paths()
        current = paths[-1] if paths else self._path(1)
        if current.exists() and current.stat().st_size >= self._segment_bytes:
            current = self._path(_number(current) + 1)
            paths.append(current)
        append(current, documents)
        if len(paths) > self._segments:
            self._retire(paths[0], paths[1:], current)

    def latest(self, ledger_ids: Collection[str] | None = None) -> dict[str, Checkpoint]:
        """The newest checkpoint of each ledger by its id, of these ledgers or of all."""
        return _latest(self._lines(self._paths()), ledger_ids)

    def _retire(self, oldest: Path, later: list[Path], current: Path) -> None:
        going = _latest(self._lines([oldest]), None)
        for checkpoint in self._lines(later):
            going.pop(checkpoint.ledger_id, None)
        if going:
            append(current, [checkpoint.document() for checkpoint in going.values()])
        oldest.unlink()

    def _lines(self, paths: Iterable[Path]) -> Iterator[Checkpoint]:
        for path in paths:
            with path.open("rb") as lines:
                for line in lines:
                    try:
                        yield read(line)
                    except ValueError:
                        continue

    def _paths(self) -> list[Path]:
        return sorted(self.directory.glob(_PATTERN), key=_number)

    def _path(self, number: int) -> Path:
        return self.directory / f"checkpoints-{number:06d}.ndjson"


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _latest(checkpoints: Iterable[Checkpoint], ledger_ids: Collection[str] | None) -> dict[str, Checkpoint]:
    found: dict[str, Checkpoint] = {}
    for checkpoint in checkpoints:
        if ledger_ids is not None and checkpoint.ledger_id not in ledger_ids:
            continue
        known = found.get(checkpoint.ledger_id)
        if known is None or checkpoint.position >= known.position:
            found[checkpoint.ledger_id] = checkpoint
    return found
