"""Ids of cells: `mem_` and a ULID in capitals (AMP A2); the object's id is that under the scheme `amp`."""

from __future__ import annotations

import re

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CELL = re.compile(r"mem_[0-9A-Z]{26}\Z")
_SCHEME = "amp:"
RANDOM_BYTES = 10


def cell_id(ms: int, random: bytes) -> str:
    """The id of a cell that is made at these Unix milliseconds, with ten random bytes."""
    number = (ms & (1 << 48) - 1) << 80 | int.from_bytes(random[:RANDOM_BYTES], "big")
    return "mem_" + "".join(_DIGITS[number >> shift & 31] for shift in range(125, -1, -5))


def object_id(cell: str) -> str | None:
    """The object of a cell; None for a text that names none."""
    return _SCHEME + cell if _CELL.match(cell) else None


def cell_of(object_id: str) -> str | None:
    """The cell of an object; None for one that is none."""
    cell = object_id.removeprefix(_SCHEME)
    return cell if object_id.startswith(_SCHEME) and _CELL.match(cell) else None
