"""The decay of memory: what an object is worth after some days without being read or written (AMP A38)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from pamspec_common.retention import DAY_S, Decay, later


class Scoring(msgspec.Struct, frozen=True):
    """What an object's score is made of."""

    importance: float
    confidence: float
    rate_per_day: float


def scoring_of(decay: Decay, content: Any, quality: Mapping[str, Any]) -> Scoring:
    """An object's own numbers where its content has valid ones at the places that the policy names, else the policy's.

    For confidence the object's assessed_confidence stands between the two.
    """
    assessed = _number(quality.get("assessed_confidence"), 1.0)
    return Scoring(
        _own(content, decay.importance_at, 1.0, decay.importance),
        _own(content, decay.confidence_at, 1.0, decay.confidence if assessed is None else assessed),
        _own(content, decay.rate_at, 1000.0, decay.rate_per_day),
    )


def score(scoring: Scoring, days: float) -> float:
    """What something is worth so many days after it was last used."""
    return scoring.importance * scoring.confidence * math.exp(-scoring.rate_per_day * days)


def falls_below(decay: Decay, scoring: Scoring, clock_start: datetime) -> datetime | None:
    """From when on importance x confidence x e^(-rate x days) is below the threshold; None where it never is.

    At the threshold it is not (A25).
    """
    best = scoring.importance * scoring.confidence
    if best < decay.threshold:
        return clock_start
    if scoring.rate_per_day == 0:
        return None
    days = math.log(best / decay.threshold) / scoring.rate_per_day
    return later(clock_start, math.floor(days * DAY_S * 1_000_000 + 1) / 1_000_000)


def _own(content: Any, place: str | msgspec.UnsetType, most: float, default: float) -> float:
    if place is msgspec.UNSET:
        return default
    for name in place.split("/")[1:]:
        if not isinstance(content, Mapping):
            return default
        content = content.get(name.replace("~1", "/").replace("~0", "~"))
    own = _number(content, most)
    return default if own is None else own


def _number(value: Any, most: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        return None
    return float(value)
