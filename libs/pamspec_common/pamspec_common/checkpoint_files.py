"""Checkpoints in files: appended to, never rewritten, bounded.

A directory holds segments `checkpoints-<number>.ndjson`, one signed checkpoint a line. When there are too many of them
the oldest goes, after the newest checkpoints of the ledgers that no later segment names were appended anew. A line that
was cut off by a crash is passed over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from pamspec_common.checkpoints import Checkpoint, read
from pamspec_common.segments import SEGMENT_BYTES, Segments

SEGMENTS = 8


class CheckpointFiles:
    """One directory of segments, written by one process at a time."""

    def __init__(self, directory: Path, *, segment_bytes: int = SEGMENT_BYTES, segments: int = SEGMENTS) -> None:
        self._files, self._segments = Segments(directory, "checkpoints", segment_bytes), max(2, segments)

    def append(self, documents: Collection[bytes]) -> None:
        """Append checkpoints; they are on disk when this returns. OSError when they are not."""
        self._files.append(documents)
        paths = self._files.paths()
        if len(paths) > self._segments:
            self._retire(paths[0], paths[1:])

    def latest(self, ledger_ids: Collection[str] | None = None) -> dict[str, Checkpoint]:
        """The newest checkpoint of each ledger by its id, of these ledgers or of all."""
        return _latest(_read(self._files.lines()), ledger_ids)

    def _retire(self, oldest: Path, later: list[Path]) -> None:
        going = _latest(_read(self._files.lines([oldest])), None)
        for checkpoint in _read(self._files.lines(later)):
            going.pop(checkpoint.ledger_id, None)
        if going:
            self._files.append([checkpoint.document() for checkpoint in going.values()])
        oldest.unlink()


def _read(lines: Iterable[bytes]) -> Iterator[Checkpoint]:
    for line in lines:
        try:
            yield read(line)
        except ValueError:
            continue


def _latest(checkpoints: Iterable[Checkpoint], ledger_ids: Collection[str] | None) -> dict[str, Checkpoint]:
    found: dict[str, Checkpoint] = {}
    for checkpoint in checkpoints:
        if ledger_ids is not None and checkpoint.ledger_id not in ledger_ids:
            continue
        known = found.get(checkpoint.ledger_id)
        if known is None or checkpoint.position >= known.position:
            found[checkpoint.ledger_id] = checkpoint
    return found
