"""The rest of a ranked order, as a cursor carries it to the next page.

Invariant: a cursor stays within what a request takes (16,384 characters), so an order that explains itself is shorter.
What the request itself says, which has no such bound, is not carried: the next page is of the same request.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pamspec_common.errors import InvalidRequest
from pamspec_query.model.ranking import DIGITS, Standing

_SCALE = 10**DIGITS
MAX_PACKED = 11_500
"""Bytes; a cursor writes four characters for three of them."""


def written(order: Sequence[Standing], index: Mapping[str, Any]) -> list[Any]:
    """What a cursor holds of an order: all of it, or as much of its beginning as fits beside the bounded `index`."""
    rows = [[one.sequence, _whole(one.score), one.explanation, _whole(one.semantic_score)] for one in order]
    packed = zlib.compress(msgspec.msgpack.encode([rows, index]), 6)
    while rows and len(packed) > MAX_PACKED:
        rows = rows[: len(rows) * 4 // 5]
        packed = zlib.compress(msgspec.msgpack.encode([rows, index]), 6)
    return [packed]


def read(after: Sequence[Any]) -> tuple[list[Standing], dict[str, Any]]:
    """The order, and what its first page said of the indexes; InvalidRequest for a cursor of another kind."""
    try:
        (packed,) = after
        rows, index = msgspec.msgpack.decode(zlib.decompress(packed))
        order = [Standing(row[0], round(row[1] / _SCALE, DIGITS), row[2], _part(row[3])) for row in rows]
    except (ValueError, TypeError, zlib.error, msgspec.DecodeError):
        raise InvalidRequest("The cursor does not fit the query; start again without a cursor.") from None
    return order, index


def _whole(score: float | None) -> int | None:
    return None if score is None else round(score * _SCALE)


def _part(whole: int | None) -> float | None:
    return None if whole is None else round(whole / _SCALE, DIGITS)
