"""Where an answer goes on that was too large for one result.

Invariant: a cursor says what to ask again and from which character on, and opens nothing: whoever sends it back asks
with the rights that they have then. It holds the digest of the whole, so that parts of two different answers are never
joined.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from typing import Any

import msgspec

_MOST = 64 * 1024
_MOST_INSIDE = 256 * 1024


class BadCursor(ValueError):
    """This is none of our cursors."""


class Cursor(msgspec.Struct, array_like=True, frozen=True):
    """The rest of an answer."""

    operation: str
    arguments: dict[str, Any]
    begin: int
    digest: str
    member: str | None = None
    """Where the answer that is gone on with lies within the one that is asked for."""

    def written(self) -> str:
        """The cursor as a host carries it."""
        return base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(self))).rstrip(b"=").decode()


def read(text: str) -> Cursor:
    """The cursor that a host sent back. BadCursor for anything else."""
    if len(text) > _MOST:
        raise BadCursor
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        inflating = zlib.decompressobj()
        plain = inflating.decompress(packed, _MOST_INSIDE)
        if inflating.unconsumed_tail or not inflating.eof:
            raise BadCursor
        cursor = msgspec.json.decode(plain, type=Cursor)
    except (binascii.Error, zlib.error, msgspec.DecodeError, ValueError):
        raise BadCursor from None
    if cursor.begin < 0:
        raise BadCursor
    return cursor


def digest(text: str) -> str:
    """What tells one whole from another."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
