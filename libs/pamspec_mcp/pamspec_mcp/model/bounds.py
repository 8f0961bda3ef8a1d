"""How much one answer may be, and where a text is cut.

Invariants: a cut falls between two characters, never inside one; the parts of a text, joined, are the text.
"""

from __future__ import annotations

from typing import Any

import orjson

BYTES_PER_TOKEN = 3
"""The rule by which contexts are counted too: a token for every three bytes of UTF-8."""
_BESIDE = 800
"""What stands around a part: names, positions, a cursor's share."""
_CURSOR = 16 * 1024


class Bounds:
    """The size of a result, which says everything twice: as structured content and as its text."""

    def __init__(self, tokens: int = 20_000) -> None:
        self.tokens = tokens
        self.result_bytes = tokens * BYTES_PER_TOKEN
        self.document_bytes = self.result_bytes // 2 - _BESIDE

    def holds(self, body: bytes) -> bool:
        """Whether a document fits into one result."""
        return len(body) <= self.document_bytes

    def part(self, text: str, begin: int, room: int) -> str:
        """As much of the text from there as fits beside `room` bytes, at least one character."""
        return cut(text, begin, max(self.document_bytes - room, _BESIDE))

    def smaller_page(self, limit: int, size: int) -> int:
        """How many entries to ask for when that many came to `size` bytes."""
        return max(1, min(limit - 1, limit * self.document_bytes // size))


def cut(text: str, begin: int, most: int) -> str:
    """The longest part of the text from `begin` on whose JSON form has at most `most` bytes, at least one character."""
    count = min(len(text) - begin, most)
    while count > 1:
        size = len(orjson.dumps(text[begin : begin + count])) - 2
        if size <= most:
            break
        count = max(1, min(count - 1, count * most // size))
    return text[begin : begin + count]


def cursor_fits(cursor: str) -> bool:
    """Whether a cursor is short enough to be sent back and forth."""
    return len(cursor) <= _CURSOR


def page_limit(arguments: dict[str, Any], default: int) -> int:
    """The page that the arguments ask for."""
    pagination = arguments.get("pagination")
    limit = pagination.get("limit") if isinstance(pagination, dict) else None
    return limit if isinstance(limit, int) else default
