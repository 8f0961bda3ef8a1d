"""Budgets: a rate with a burst, as the moment until which it is spent (generic cell rate algorithm).

Pure: the clock is handed in. A request passes while there is room for one; what it turns out to cost is charged whole,
even beyond the burst, and paid back by the time that follows. So one large batch never waits forever, and the rate
holds over time whatever single requests cost.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from pamspec_common.errors import ServiceUnavailable
from pamspec_common.quotas import over_quota

MAX_WEIGHT = 1000
"""The largest cost of one request: the items of the largest batch."""
_URGENT = 8


class Budget:
    """What is left of one rate. All times are seconds of the caller's steady clock."""

    __slots__ = ("depth", "learned_at", "name", "per_s", "period", "queued", "spent_until", "unsent", "urgent")

    def __init__(self, name: str) -> None:
        self.name = name
        """Under which name other gateways share it."""
        self.spent_until = 0.0
        self.unsent = 0.0
        """Seconds of the rate that were charged here and that no other gateway knows of."""
        self.queued = False
        self.learned_at = -1.0
        self.per_s: int | None = None
        self.period = self.depth = self.urgent = 0.0

    def set_rate(self, per_s: int | None, burst: int | None) -> None:
        """Let another rate hold from now on, under which nothing was spent yet; None: no bound."""
        period = 1 / per_s if per_s else 0.0
        depth = (burst or per_s or 0) * period
        if (per_s, depth) == (self.per_s, self.depth):
            return
        self.per_s, self.period, self.depth, self.urgent = per_s, period, depth, depth / _URGENT
        self.spent_until = self.unsent = 0.0
        self.learned_at = -1.0

    def wait(self, now: float) -> float:
        """Seconds until there is room for one more; zero or less when there is now."""
        return self.spent_until - now + self.period - self.depth if self.per_s else 0.0

    def charge(self, now: float, weight: int) -> None:
        """Take what a request costs."""
        cost = weight * self.period
        self.spent_until = max(self.spent_until, now) + cost
        self.unsent += cost

    def learn(self, now: float, ahead: float) -> None:
        """All gateways together have spent the budget until `ahead` seconds from now, what is unsent here not counted.

        What was charged here counts even where the others have lost it.
        """
        self.spent_until = max(self.spent_until, now + ahead + self.unsent)
        self.learned_at = now

    def settled(self, now: float) -> bool:
        """Whether forgetting it loses nothing."""
        return self.spent_until <= now and not self.queued

    @property
    def cap(self) -> float:
        """How far ahead a budget can be spent, in seconds."""
        return self.depth + MAX_WEIGHT * self.period

    def left(self, now: float) -> float:
        """The share of the burst that is left, from 0 to 1."""
        return min(1.0, max(0.0, 1 - (self.spent_until - now) / self.depth)) if self.depth else 1.0


def seconds(wait: float) -> int:
    """A wait as Retry-After tells it: after so many seconds there is room."""
    return max(1, math.ceil(wait))


class Spent(NamedTuple):
    """A budget that has no room for one more request."""

    budget: Budget
    wait: float
    """Seconds until it has."""
    limit: str
    """Its name in the quotas, like tenant.requests_per_s."""

    def refusal(self) -> ServiceUnavailable:
        """The error (429) that says so."""
        whose = "This tenant" if self.limit.startswith("tenant") else "This principal"
        bound = self.budget.per_s or 0
        return over_quota(
            self.limit,
            bound,
            f"{whose} may make {bound} requests a second (each item of a batch counts) and has made more; wait as long"
            f" as Retry-After says and spread them out, or ask the operator for a higher {self.limit}.",
            seconds(self.wait),
        )
