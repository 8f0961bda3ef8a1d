"""Languages: stems, and which language a text is most likely in.

Invariant: everything here is a pure function of the text. The language is that of which most function words occur;
where no other has more than English, it is English, or Russian for a text in Cyrillic letters alone.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache

import Stemmer

from pamspec_common.analysis.stop_words import STOP_WORDS

LANGUAGES = tuple(STOP_WORDS)
"""The languages that texts are told apart by, in the order in which a draw is decided."""

_KEPT_STEMS = 100_000


def folded(word: str) -> str:
    """A word without accents."""
    if word.isascii():
        return word
    return "".join(one for one in unicodedata.normalize("NFD", word) if not unicodedata.combining(one))


def _stemming(language: str) -> Callable[[str], str]:
    stemmer = Stemmer.Stemmer(language, 0)

    @lru_cache(_KEPT_STEMS)
    def stem(word: str) -> str:
        return folded(stemmer.stemWord(word))

    return stem


STEMS = {language: _stemming(language) for language in LANGUAGES}
"""The stem of a word in lower case, without accents, by language."""


def detect(words: Iterable[str]) -> str:
    """The language of a text, given its words in lower case."""
    hits = dict.fromkeys(LANGUAGES, 0)
    latin = cyrillic = False
    for word in words:
        if word.isascii():
            latin = True
        elif "Ѐ" <= word[0] <= "ӿ":
            cyrillic = True
        for language in _KNOWN.get(word, ()):
            hits[language] += 1
    found = max(LANGUAGES, key=hits.__getitem__)
    if hits[found] == 0 and cyrillic and not latin:
        return "russian"
    return found


_KNOWN: dict[str, tuple[str, ...]] = {
    word: tuple(name for name in LANGUAGES if word in STOP_WORDS[name])
    for word in frozenset().union(*STOP_WORDS.values())
}
