"""How candidates become one order: fusion, neighbours of a session, ordering profiles, tie-breaks, explanations.

Invariant: a pure function of the candidates, so that the same index state and request give the same bytes (PAMSPEC
P156). All that can be tuned stands in `PARAMETERS` and `PROFILES`; the answer names what was used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

DIGITS = 6
"""Decimals of every score: sums of the same floats in another order stay equal."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What fusion goes by."""

    weights: Mapping[str, float] = field(default_factory=lambda: {"lexical": 1.0, "vector": 1.0, "graph": 0.5})
    depth: int = 200
    """How many candidates of each list are fused, after authorization and filters."""
    context_decay: float = 0.5
    """What a neighbour in the same source session adds, as a part of its own; times that again for each place more."""
    context_reach: int = 2
    """How many places apart neighbours are at most."""
    quality_unknown: float = 0.5
    """The quality of a version without quality_signals."""


PARAMETERS = Parameters()
MAX_RANKED = 400
"""An answer ranks no more items than that over all of its pages: its cursors carry them."""


@dataclass(frozen=True, slots=True)
class Profile:
    """An ordering profile: which parts of the score are the signals'; the rest is the lists'."""

    name: str
    recency: float = 0.0
    quality: float = 0.0
    half_life_days: float = 30.0


PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile("relevance"),
        Profile("recent", recency=0.25),
        Profile("quality", quality=0.25),
        Profile("balanced", recency=0.15, quality=0.15),
    )
}


@dataclass(slots=True)
class Candidate:
    """A version that some list holds: its keys for tie-breaks, its score by mode, and what profiles look at."""

    sequence: int
    keys: Sequence[Any] = ()
    scores: dict[str, float] = field(default_factory=dict)
    committed_at: datetime | None = None
    quality: Mapping[str, Any] | None = None


class Neighbours(NamedTuple):
    """Two candidates of one source session, by their sequences, and how many places they are apart, from 1."""

    earlier: int
    later: int
    distance: int


@dataclass(frozen=True, slots=True)
class Standing:
    """An item of the order: the version's sequence, its score, and why."""

    sequence: int
    score: float
    explanation: Mapping[str, Any] | None = None
    semantic_score: float | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """What one query is ordered by."""

    profile: Profile
    descending: Sequence[bool]
    """The direction of each key."""
    by_semantic_score: bool = False
    explain: bool = False
    now: datetime | None = None
    """The instant that ages are measured from: the scope's last entry, not a clock, so that answers repeat."""
    parameters: Parameters = PARAMETERS


def ranked(
    candidates: Iterable[Candidate], modes: Sequence[str], rules: Rules, neighbours: Iterable[Neighbours] = ()
) -> list[Standing]:
    """All candidates, best first, at most MAX_RANKED; neighbours names each pair of them once."""
    everyone = list(candidates)
    ties = {one.sequence: tuple(_tie(one.keys, rules.descending)) for one in everyone}
    lists = {mode: _contributions(everyone, mode, modes, rules.parameters) for mode in modes}
    fused = {one.sequence: sum(each.get(one.sequence, 0.0) for each in lists.values()) for one in everyone}
    context = _context(neighbours, fused, rules.parameters)
    places = {mode: _places(everyone, mode, ties) for mode in modes} if rules.explain else {}
    weighed = [
        _standing(one, fused[one.sequence], context.get(one.sequence, 0.0), rules, _told(one, lists, places))
        for one in everyone
    ]
    by_sequence = {one.sequence: one for one in everyone}

    def order(standing: Standing) -> tuple[Any, ...]:
        semantic = by_sequence[standing.sequence].scores.get("vector", -math.inf) if rules.by_semantic_score else 0.0
        return (-standing.score, -semantic, *ties[standing.sequence])

    return sorted(weighed, key=order)[:MAX_RANKED]


def _tie(keys: Sequence[Any], descending: Sequence[bool]) -> Iterable[tuple[bool, Any]]:
    """Keys as Python compares them: what is missing comes last."""
    for value, backwards in zip(keys, descending, strict=True):
        if value is None:
            yield (True, 0)
        else:
            yield (False, _Backwards(value) if backwards else value)


@dataclass(frozen=True, slots=True)
class _Backwards:
    """A value that compares the other way round."""

    value: Any

    def __lt__(self, other: _Backwards) -> bool:
        return bool(other.value < self.value)


def _places(candidates: Iterable[Candidate], mode: str, ties: Mapping[int, tuple[Any, ...]]) -> dict[int, int]:
    """The rank of each candidate of a list, from 1; equal scores stand as their tie-break says."""
    held = [one for one in candidates if mode in one.scores]
    held.sort(key=lambda one: (-round(one.scores[mode], DIGITS), ties[one.sequence]))
    return {one.sequence: rank for rank, one in enumerate(held, 1)}


def _contributions(
    candidates: Iterable[Candidate], mode: str, modes: Sequence[str], parameters: Parameters
) -> dict[int, float]:
    """What its place between the worst and the best of a list gives to each; the best of all lists have 1 together."""
    scores = {one.sequence: round(one.scores[mode], DIGITS) for one in candidates if mode in one.scores}
    if not scores:
        return {}
    lowest, highest = min(scores.values()), max(scores.values())
    weight = parameters.weights[mode] / sum(parameters.weights[name] for name in modes)
    if lowest == highest:
        return dict.fromkeys(scores, weight)
    return {sequence: weight * (score - lowest) / (highest - lowest) for sequence, score in scores.items()}


def _context(neighbours: Iterable[Neighbours], fused: Mapping[int, float], parameters: Parameters) -> dict[int, float]:
    """What neighbours in the same source session add; pairs in one order, so that sums are equal to the last bit."""
    found: dict[int, float] = {}
    for earlier, later, distance in sorted(set(neighbours)):
        if distance <= parameters.context_reach and earlier in fused and later in fused:
            part = parameters.context_decay**distance
            found[earlier] = found.get(earlier, 0.0) + part * fused[later]
            found[later] = found.get(later, 0.0) + part * fused[earlier]
    return found


def _told(
    one: Candidate, lists: Mapping[str, Mapping[int, float]], places: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[str, float]]:
    """Where a candidate stands in each list that has it; nothing where nobody asks."""
    return {
        mode: {
            "rank": ranks[one.sequence],
            "score": round(one.scores[mode], DIGITS),
            "contribution": round(lists[mode][one.sequence], DIGITS),
        }
        for mode, ranks in sorted(places.items())
        if one.sequence in ranks
    }


def _standing(
    one: Candidate, fused: float, context: float, rules: Rules, lists: Mapping[str, Mapping[str, float]]
) -> Standing:
    profile = rules.profile
    signals: dict[str, tuple[float, float]] = {}
    if profile.recency:
        signals["recency"] = (recency(one.committed_at, rules.now, profile.half_life_days), profile.recency)
    if profile.quality:
        signals["quality"] = (quality(one.quality, rules.parameters.quality_unknown), profile.quality)
    own = 1.0 - profile.recency - profile.quality
    score = round(own * (fused + context) + sum(value * weight for value, weight in signals.values()), DIGITS)
    semantic = None if "vector" not in one.scores else round(one.scores["vector"], DIGITS)
    if not rules.explain:
        return Standing(one.sequence, score, None, semantic)
    explanation: dict[str, Any] = {"lists": lists, "fused": round(fused, DIGITS), "context": round(context, DIGITS)}
    if signals:
        explanation["signals"] = {
            name: {"value": round(value, DIGITS), "contribution": round(value * weight, DIGITS)}
            for name, (value, weight) in sorted(signals.items())
        }
    return Standing(one.sequence, score, explanation, semantic)


def recency(committed_at: datetime | None, now: datetime | None, half_life_days: float) -> float:
    """1 for what was committed last, halved with each half-life."""
    if committed_at is None or now is None:
        return 0.0
    days = max(0.0, (now - committed_at).total_seconds() / 86_400)
    return math.exp2(-days / half_life_days)


_GOOD = ("assessed_confidence", "evidence_strength", "source_diversity")
_BAD = ("contradiction_score", "staleness_score")


def quality(signals: Mapping[str, Any] | None, unknown: float) -> float:
    """The mean of a version's quality signals, each from 0 to 1, contradiction and staleness counted against it."""
    values: list[float] = []
    for name in (*_GOOD, *_BAD):
        value = None if signals is None else signals.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            values.append(1 - value if name in _BAD else float(value))
    return sum(values) / len(values) if values else unknown


def reranked(standings: Sequence[Standing], scores: Sequence[float]) -> list[Standing]:
    """The order with its first items ordered once more by a reranker's scores; the others stay behind them."""
    first = [
        one
        if one.explanation is None
        else replace(one, explanation={**one.explanation, "rerank": {"score": round(score, DIGITS)}})
        for one, score in zip(standings, scores, strict=False)
    ]
    order = sorted(range(len(first)), key=lambda index: (-round(scores[index], DIGITS), index))
    return [*(first[index] for index in order), *standings[len(first) :]]
