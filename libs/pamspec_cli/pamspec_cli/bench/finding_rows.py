"""Texts, sources and vectors of any number of objects to find: clustered, and the same in every run (seed 7).

An object is a turn of a session of 20. A session is about one of 500 topics; half of its words are the topic's own, the
others are as frequent as the words of a language are, but for its function words: the most frequent is in 7 of 100
objects (Zipf and Mandelbrot). Its vector lies around its topic's.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

SEED = 7
TOPICS = 500
WORDS = 20_000
OF_TOPIC = 40
FLAT = 20
LENGTH = 20
SESSION = 20
DIMENSIONS = 384
SPREAD = 0.6
_SYLLABLES = tuple(a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "ar", "en", "is", "ol", "ut"))


@cache
def words() -> tuple[str, ...]:
    """The vocabulary, the most frequent first."""
    chosen = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < WORDS:
        found["".join(chosen.choices(_SYLLABLES, k=chosen.choice((2, 3, 3, 4))))] = None
    return tuple(found)


@cache
def _reached() -> list[float]:
    return list(accumulate(1 / (rank + FLAT) for rank in range(1, WORDS + 1)))


def topic(number: int) -> int:
    """What the session of an object is about."""
    return random.Random(SEED * 1_000_003 + number // SESSION).randrange(TOPICS)


def said(number: int) -> list[str]:
    """The words of an object."""
    chosen, about = random.Random(SEED * 2_000_003 + number), topic(number)
    reached, vocabulary = _reached(), words()
    own = [vocabulary[(about * OF_TOPIC + chosen.randrange(OF_TOPIC)) % WORDS] for _ in range(LENGTH // 2)]
    others = [vocabulary[bisect(reached, chosen.random() * reached[-1])] for _ in range(LENGTH // 2)]
    mixed = own + others
    chosen.shuffle(mixed)
    return mixed


def observation(number: int) -> tuple[dict[str, Any], str]:
    """The content of an object and its source."""
    content = {"speaker": f"Speaker {number % 5}", "text": " ".join(said(number)) + "."}
    return content, f"bench:finding/session_{number // SESSION}#{number % SESSION}"


def question(number: int) -> str:
    """Some words about an object, as somebody would look for it."""
    chosen = random.Random(SEED * 3_000_017 + number)
    return " ".join(chosen.sample(said(number), 5))


@cache
def _centre(about: int) -> tuple[float, ...]:
    chosen = random.Random(SEED * 4_000_037 + about)
    return tuple(chosen.gauss(0, 1) for _ in range(DIMENSIONS))


def vector(number: int, *, near: int | None = None) -> Sequence[float]:
    """The unit vector of an object, or of a question about the object `near`."""
    chosen = random.Random(SEED * 5_000_011 + number)
    centre = _centre(topic(number)) if near is None else vector(near)
    spread = SPREAD if near is None else SPREAD / math.sqrt(DIMENSIONS)
    raw = [value + spread * chosen.gauss(0, 1) for value in centre]
    length = math.sqrt(math.fsum(value * value for value in raw))
    return [value / length for value in raw]
