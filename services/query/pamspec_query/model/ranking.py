"""How candidates become one order: rank fusion, neighbours of a session, ordering profiles, tie-breaks, explanations.

Invariant: a pure function of the candidates, so that the same index state and request give the same bytes (PAMSPEC
P156). All that can be tuned stands in `PARAMETERS` and `PROFILES`; the answer names what was used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

DIGITS = 6
"""Decimals of every score: sums of the same floats in another order stay equal."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What fusion goes by."""

    k: float = 60.0
    """Reciprocal rank fusion: the higher, the less the first ranks stand out."""
    weights: Mapping[str, float] = field(default_factory=lambda: {"lexical": 1.0, "vector": 1.0, "graph": 0.5})
    depth: int = 200
    """How many candidates of each list are fused, after authorization and filters."""
    context_weight: float = 0.0
    """What the best neighbour of the same source session adds to a candidate, as a part of the neighbour's own."""
    context_reach: int = 2
    """How far apart, in candidates of the session by ledger sequence, neighbours are."""
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
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """An item of the order: the version's sequence, its score, and why."""

    sequence: int
    score: float
    explanation: Mapping[str, Any] | None = None


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


def ranked(candidates: Iterable[Candidate], modes: Sequence[str], rules: Rules) -> list[Standing]:
    """All candidates, best first, at most MAX_RANKED."""
    everyone = list(candidates)
    ties = {one.sequence: tuple(_tie(one.keys, rules.descending)) for one in everyone}
    places = {mode: _places(everyone, mode, ties) for mode in modes}
    fused = {one.sequence: _fused(one, places, rules.parameters) for one in everyone}
    context = _context(everyone, fused, rules.parameters)
    weighed = [_standing(one, places, fused[one.sequence], context.get(one.sequence, 0.0), rules) for one in everyone]
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


class _Backwards:
    """A value that compares the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Backwards) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Backwards) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]


def _places(candidates: Iterable[Candidate], mode: str, ties: Mapping[int, tuple[Any, ...]]) -> dict[int, int]:
    """The rank of each candidate of a list, from 1; equal scores stand as their tie-break says."""
    held = [one for one in candidates if mode in one.scores]
    held.sort(key=lambda one: (-round(one.scores[mode], DIGITS), ties[one.sequence]))
    return {one.sequence: rank for rank, one in enumerate(held, 1)}


def _fused(one: Candidate, places: Mapping[str, Mapping[int, int]], parameters: Parameters) -> float:
    return sum(_contribution(mode, places, one.sequence, parameters) for mode in places if one.sequence in places[mode])


def _contribution(mode: str, places: Mapping[str, Mapping[int, int]], sequence: int, parameters: Parameters) -> float:
    """What a place in a list gives; the first places of all lists give 1 together."""
    weight = parameters.weights[mode] / sum(parameters.weights[name] for name in places)
    return weight * (parameters.k + 1) / (parameters.k + places[mode][sequence])


def _context(candidates: Iterable[Candidate], fused: Mapping[int, float], parameters: Parameters) -> dict[int, float]:
    """What neighbours in the same source session add: a part of the best of those within reach."""
    if parameters.context_weight <= 0:
        return {}
    sessions: dict[str, list[int]] = {}
    for one in candidates:
        if one.session is not None:
            sessions.setdefault(one.session, []).append(one.sequence)
    found: dict[int, float] = {}
    for sequences in sessions.values():
        sequences.sort()
        for index, sequence in enumerate(sequences):
            near = sequences[max(0, index - parameters.context_reach) : index + parameters.context_reach + 1]
            best = max((fused[other] for other in near if other != sequence), default=0.0)
            found[sequence] = parameters.context_weight * best
    return found


def _standing(
    one: Candidate, places: Mapping[str, Mapping[int, int]], fused: float, context: float, rules: Rules
) -> Standing:
    profile = rules.profile
    signals: dict[str, tuple[float, float]] = {}
    if profile.recency:
        signals["recency"] = (recency(one.committed_at, rules.now, profile.half_life_days), profile.recency)
    if profile.quality:
        signals["quality"] = (quality(one.quality, rules.parameters.quality_unknown), profile.quality)
    own = 1.0 - profile.recency - profile.quality
    if len(places) == 1 and not signals and not context:
        (mode,) = places
        score = one.scores[mode]
    else:
        score = own * (fused + context) + sum(value * weight for value, weight in signals.values())
    explanation = None
    if rules.explain:
        explanation = {
            "lists": {
                mode: {
                    "rank": ranks[one.sequence],
                    "score": round(one.scores[mode], DIGITS),
                    "contribution": round(_contribution(mode, places, one.sequence, rules.parameters), DIGITS),
                }
                for mode, ranks in sorted(places.items())
                if one.sequence in ranks
            },
            "fused": round(fused, DIGITS),
        }
        if rules.parameters.context_weight > 0:
            explanation["context"] = round(context, DIGITS)
        if signals:
            explanation["signals"] = {
                name: {"value": round(value, DIGITS), "contribution": round(value * weight, DIGITS)}
                for name, (value, weight) in sorted(signals.items())
            }
    return Standing(one.sequence, round(score, DIGITS), explanation)


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
        Standing(
            one.sequence,
            one.score,
            None if one.explanation is None else {**one.explanation, "rerank": {"score": round(score, DIGITS)}},
        )
        for one, score in zip(standings, scores, strict=False)
    ]
    order = sorted(range(len(first)), key=lambda index: (-round(scores[index], DIGITS), index))
    return [*(first[index] for index in order), *standings[len(first) :]]
