"""Tokens: what of a text can be searched for, whatever characters it is made of.

Invariant: any text has tokens, and none is an operator. Codes (with a digit, or joined by one of `_@:/\\#.+&`, or
capital letters joined by a hyphen) are kept whole and are there by their parts as well; scripts without spaces give
pairs of neighbouring characters, and single ones.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

MAX_TOKEN = 128
"""Characters of a token; a longer one is cut."""

_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Japanese, Chinese
    "\uac00-\ud7af\u1100-\u11ff"  # Korean
    "\U00020000-\U0003134f"
)
_SPLIT = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])\w)+(?:[-'_@:/\\#.+&]+(?:(?![{_UNSPACED}])\w)+)*[+#]*")
_PART = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_INSIDE = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_SCRIPT = re.compile(rf"[{_UNSPACED}]")
_JOINED = re.compile(r"[_@:/\\#.+&]")


class Kind(Enum):
    """How a token is looked up."""

    WORD = "w"
    """By its stem, in the language of the text."""
    CODE = "x"
    """As it stands, in any language."""
    PAIR = "c"
    """Two neighbouring characters of a script without spaces."""
    CHARACTER = "s"
    """One of them; found, but not counted in the length of a text."""


class Token(NamedTuple):
    """A token in lower case."""

    text: str
    kind: Kind
    placed: tuple[str, ...]
    """What it adds to the order of words, by which phrases are found."""


def normalized(text: str) -> str:
    """One form for what looks the same: compatibility forms, quotation marks that stand for an apostrophe."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text).replace("’", "'").replace("ʼ", "'")


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a normalized text in its order."""
    for found in _SPLIT.finditer(text):
        run = found[0]
        if _SCRIPT.match(run):
            yield from _characters(run)
        else:
            yield from _spaced(run)


def _characters(run: str) -> Iterator[Token]:
    for at, one in enumerate(run):
        yield Token(one, Kind.CHARACTER, (one,))
        if at + 1 < len(run):
            yield Token(run[at : at + 2], Kind.PAIR, ())


def _spaced(run: str) -> Iterator[Token]:
    """A word, or a code and its parts."""
    parts = _PART.findall(run)
    code = any(one.isdigit() for one in run) or _JOINED.search(run) is not None or ("-" in run and run.isupper())
    if code and parts != [run]:
        yield Token(run.lower()[:MAX_TOKEN], Kind.CODE, ())
    for part in parts:
        text = part.lower()[:MAX_TOKEN]
        yield Token(text, Kind.WORD if part.isalpha() or "'" in part else Kind.CODE, tuple(text.split("'")))
        if part.isdigit() or (part.isalpha() and (part.islower() or part.isupper())):
            continue
        pieces = _INSIDE.split(part)
        for piece in pieces if len(pieces) > 1 else ():
            yield Token(piece.lower()[:MAX_TOKEN], Kind.WORD if piece.isalpha() else Kind.CODE, ())
