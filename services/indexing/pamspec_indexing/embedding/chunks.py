"""Chunks: the texts of an object in pieces that a model reads as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

PROFILE = "pamspec-chunks-1"
"""This way of cutting, as the descriptors of spaces name it."""
RULES = "strings of canonical_content in document order, joined by line feeds"
"""What is cut, as they tell it."""
MAX_CHARS = 1500
"""Of a chunk: some 400 tokens of the 512 that small models read."""
MAX_CHUNKS = 16
"""Of an object; what comes after is found by its words alone."""
_CUT = " \n\t.。!?;,、"


class Chunks(NamedTuple):
    """The pieces of an object, and whether its text goes on after the last."""

    texts: list[str]
    truncated: bool


def chunks(texts: Sequence[str], max_chars: int = MAX_CHARS, max_chunks: int = MAX_CHUNKS) -> Chunks:
    """The texts joined by lines, cut at word boundaries where there are any; no text gives no chunk."""
    found: list[str] = []
    for piece in _pieces("\n".join(text for text in texts if text and not text.isspace()), max_chars):
        if len(found) == max_chunks:
            return Chunks(found, True)
        found.append(piece)
    return Chunks(found, False)


def _pieces(text: str, max_chars: int) -> Iterable[str]:
    start = 0
    while start < len(text):
        end = start + max_chars
        if end < len(text):
            end = max((text.rfind(cut, start + max_chars // 2, end) + 1 for cut in _CUT), default=0) or end
            if end <= start:
                end = start + max_chars
        piece = text[start:end].strip()
        if piece:
            yield piece
        start = end
