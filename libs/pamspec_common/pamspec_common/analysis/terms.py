"""Terms: what the lexical index holds of a text, and what a query looks for. Index and query use the same analysis.

Invariant: pure functions. A term is a number that stands for a stem in its language, a code, or a pair of characters; a
text has terms of one language, and a query looks for each of its words in every language.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import islice

from pamspec_common.analysis.languages import LANGUAGES, STEMS, detect, folded
from pamspec_common.analysis.stop_words import STOP_WORDS
from pamspec_common.analysis.tokens import Kind, Token, normalized, tokens

VERSION = b"1"
"""Changes with everything that changes the terms of a text; what was analyzed by another is analyzed again."""
MAX_TOKENS = 50_000
"""Tokens of an object that are indexed; what is beyond them is not found, and `truncated` says so."""
MAX_QUERY_CHARS = 8192
"""Characters of a query that are looked at."""
MAX_QUERY_WORDS = 64
"""Different words of a query that are looked for."""
MAX_PHRASES = 8
ANY_LANGUAGE = -1

_DETECTED_BY = 400
_ELIDING = frozenset({"french", "italian"})
_QUOTED = re.compile(r'["“”„«»]([^"“”„«»]+)["“”„«»]')
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"


@dataclass(frozen=True, slots=True)
class Analyzed:
    """What the index holds of a text."""

    language: int
    """Its place in LANGUAGES."""
    terms: dict[int, int]
    """How often each occurs."""
    length: int
    """Tokens, as the ranking counts them."""
    order: str
    """The words in their order, five characters each, between spaces."""
    truncated: bool


@dataclass(frozen=True, slots=True)
class Sought:
    """What a query looks for: `terms[i]` belongs to word `words[i]`, in texts of `languages[i]` (or ANY_LANGUAGE)."""

    terms: list[int]
    words: list[int]
    languages: list[int]
    phrases: list[str]
    """Parts of an order of words; one that must occur begins with +, the others count like a rare word."""
    clamped: bool
    """Whether a part of the query was not looked at."""

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to look for: no text matches."""
        return not self.terms and not self.phrases


def analyze(texts: Iterable[str]) -> Analyzed:
    """What the index holds of an object, given its texts in their order."""
    found: list[Token] = []
    for text in texts:
        found += islice(tokens(normalized(text)), MAX_TOKENS + 1 - len(found))
        if len(found) > MAX_TOKENS:
            break
    truncated = len(found) > MAX_TOKENS
    del found[MAX_TOKENS:]
    language = detect(token.text for token in found[:_DETECTED_BY])
    terms: Counter[int] = Counter()
    length = 0
    for token, times in Counter(found).items():
        term = _term(token, language)
        if term is not None:
            terms[term] += times
            length += 0 if token.kind is Kind.CHARACTER else times
    order = _order(found)
    return Analyzed(LANGUAGES.index(language), dict(terms), length, order, truncated)


def sought(query: str) -> Sought:
    """What a query looks for. Every text is taken literally; quotation marks around words are all the syntax there is.

    What stands in them must occur as it stands where the query is nothing else, and counts like a rare word in a longer
    one. A query of nothing but function words is looked for as a phrase.
    """
    text = normalized(query[:MAX_QUERY_CHARS])
    found = list(tokens(text))
    language = detect(token.text for token in found)
    terms: list[int] = []
    words: list[int] = []
    languages: list[int] = []
    distinct = list(dict.fromkeys(found))
    characters = any(token.kind is Kind.PAIR for token in found)
    count = 0
    for token in distinct:
        variants = _variants(token, language, characters=characters)
        if not variants:
            continue
        if count == MAX_QUERY_WORDS:
            break
        for spoken, term in variants:
            terms.append(term)
            words.append(count)
            languages.append(spoken)
        count += 1
    phrases = _phrases(text, found, alone=not terms)
    clamped = len(query) > MAX_QUERY_CHARS or (count == MAX_QUERY_WORDS and len(distinct) > count)
    return Sought(terms, words, languages, phrases, clamped)


def _phrases(text: str, found: Sequence[Token], *, alone: bool) -> list[str]:
    """The phrases of a query, which must occur where they are all of it; all of it where no term is (`alone`)."""
    phrases = [_order(list(tokens(one))) for one in _QUOTED.findall(text)][:MAX_PHRASES]
    phrases = [one for one in phrases if one != " "]
    if not phrases and alone:
        phrases = [one for one in (_order(found),) if one != " "]
    if not alone and any(token.placed for token in tokens(_QUOTED.sub(" ", text))):
        return phrases
    return [f"+{one}" for one in phrases]


def _variants(token: Token, language: str, *, characters: bool) -> list[tuple[int, int]]:
    """The terms of one word of a query, each with the language in whose texts it counts."""
    if token.kind is Kind.CHARACTER and characters:
        return []
    if token.kind is not Kind.WORD:
        return [(ANY_LANGUAGE, _number(token.kind.value, folded(token.text)))]
    if token.text in STOP_WORDS[language]:
        return []
    found = []
    for place, spoken in enumerate(LANGUAGES):
        term = _term(token, spoken)
        if term is not None:
            found.append((place, term))
    return found


def _term(token: Token, language: str) -> int | None:
    """The term of a token in a text of that language; None for a function word."""
    if token.kind is not Kind.WORD:
        return _number(token.kind.value, folded(token.text))
    if token.text in STOP_WORDS[language]:
        return None
    text = token.text.rpartition("'")[2] if language in _ELIDING else token.text
    return _number(language, STEMS[language](text))


@lru_cache(200_000)
def _number(space: str, text: str) -> int:
    digest = blake2b(f"{space}\0{text}".encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _order(found: Sequence[Token]) -> str:
    placed = [_place(word) for token in found for word in token.placed if word]
    return " " + " ".join(placed) + " " if placed else " "


@lru_cache(100_000)
def _place(word: str) -> str:
    number = _number("order", folded(word)) & 0x3FFFFFFF
    return "".join(_DIGITS[number >> shift & 63] for shift in (24, 18, 12, 6, 0))
