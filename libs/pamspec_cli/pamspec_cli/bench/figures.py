"""A figure: a value, the floor beside it, and the target that decides.

Invariant: value and floor are medians over rounds that took turns; a figure without a target informs and is always ok.
"""

import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

ROUNDS = 5

Run = Callable[[], Awaitable[float]]


@dataclass(frozen=True)
class Measured:
    """Results of several rounds: their median, and how far they lie apart."""

    rounds: tuple[float, ...]

    @classmethod
    def of(cls, rounds: Sequence[float]) -> "Measured":
        """Some rounds, at least one."""
        return cls(tuple(rounds))

    @property
    def median(self) -> float:
        """The median."""
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """(largest - smallest) / median."""
        middle = self.median
        return (max(self.rounds) - min(self.rounds)) / middle if middle else 0.0


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    name: str
    value: float
    unit: str
    floor: float | None
    ratio: float | None
    target: str
    ok: bool
    spread: float = 0.0
    floor_spread: float | None = None
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The figure as JSON."""
        return {
            "name": self.name,
            "value": _rounded(self.value),
            "unit": self.unit,
            "floor": _rounded(self.floor),
            "ratio": _rounded(self.ratio),
            "target": self.target,
            "ok": self.ok,
            "spread": _rounded(self.spread),
            "floor_spread": _rounded(self.floor_spread),
            "note": self.note,
            **({"details": self.details} if self.details else {}),
        }


def at_least(
    name: str,
    value: Measured,
    unit: str,
    floor: Measured,
    ratio: float,
    *,
    or_value: float | None = None,
    note: str = "",
    details: dict[str, Any] | None = None,
) -> Figure:
    """A rate that must reach `ratio` times its floor, or `or_value`, where that suffices."""
    reached = value.median / floor.median
    ok = reached >= ratio or (or_value is not None and value.median >= or_value)
    target = f">= {ratio:g} x floor" + (f" or >= {or_value:,.0f} {unit}" if or_value is not None else "")
    return Figure(
        name, value.median, unit, floor.median, reached, target, ok, value.spread, floor.spread, note, details or {}
    )


async def in_turns(product: Run, floor: Run, rounds: int = ROUNDS) -> tuple[Measured, Measured]:
    """Product and floor by turns, so that whatever else happens on the machine meets both."""
    products, floors = [], []
    for _ in range(rounds):
        products.append(await product())
        floors.append(await floor())
    return Measured.of(products), Measured.of(floors)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(len(ordered) * share * 1_000_000) // 1_000_000) - 1))]


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
