"""BM25 as the Python package bm25s ranks by default, to compare with: the same words, the same formula.

Words of two letters and more, lower case, without 33 English function words, stemmed; k1 = 1.5, b = 0.75, and the
inverse document frequency of Lucene. No context, no vectors: what any search over the same texts gives.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import Stemmer

K1, B = 1.5, 0.75
_WORD = re.compile(r"(?u)\b\w\w+\b")
_FUNCTION_WORDS = {
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of",
    "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
}  # fmt: skip


class Bm25:
    """The texts of one scope, by position."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._stemmer = Stemmer.Stemmer("english")
        counted = [Counter(self._words(text)) for text in texts]
        lengths = [words.total() for words in counted]
        mean = sum(lengths) / len(lengths)
        found_in = Counter(word for words in counted for word in words)
        self._weights: dict[str, list[tuple[int, float]]] = {}
        for position, (words, length) in enumerate(zip(counted, lengths, strict=True)):
            for word, count in words.items():
                rare = math.log(1 + (len(texts) - found_in[word] + 0.5) / (found_in[word] + 0.5))
                weight = rare * count / (count + K1 * (1 - B + B * length / mean))
                self._weights.setdefault(word, []).append((position, weight))

    def best(self, question: str, count: int) -> list[int]:
        """The positions of the texts that fit best; equal ones in their order."""
        scores: dict[int, float] = {}
        for word in self._words(question):
            for position, weight in self._weights.get(word, ()):
                scores[position] = scores.get(position, 0.0) + weight
        return sorted(scores, key=lambda position: (-scores[position], position))[:count]

    def _words(self, text: str) -> list[str]:
        words = [word for word in _WORD.findall(text.lower()) if word not in _FUNCTION_WORDS]
        stemmed: list[str] = self._stemmer.stemWords(words)
        return stemmed
