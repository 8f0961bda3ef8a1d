"""What becomes of an attempt to deliver, and when the next one is due: pure, without clock or randomness.

Delivery stands at the first event that was not taken. It is tried with growing pauses; after so many failures in a row
the event is parked: tried seldom from then on, shown by list_parked, tried at once or passed over by replay. Nothing
after it is sent before it, so order is kept and nothing is lost; silence closes the subscription in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

DELIVERED = "delivered"
GONE = "gone"
PERMANENT = frozenset({"refused", "redirected"})
"""What another try alone does not change; parked sooner."""
_PASSING = frozenset({408, 425, 429})


@dataclass(frozen=True)
class Attempt:
    """One request and its end; nothing of the answer but its status."""

    outcome: str
    status: int | None = None
    retry_after_s: float | None = None
    latency_ms: int = 0


@dataclass(frozen=True)
class Patience:
    """How long an endpoint is waited for; times in seconds."""

    first_s: float = 1.0
    limit_s: float = 600.0
    parked_s: float = 3600.0
    attempts: int = 10
    """Failures in a row after which an event is parked, and after which a terminal record is given up."""
    refusals: int = 3
    """The same for what is refused for good."""


@dataclass(frozen=True)
class Next:
    """What follows a failure."""

    delay_s: float
    parked: bool


def outcome_of(status: int) -> str:
    """What a status means for the delivery; one that HTTP does not know is a failure."""
    if 200 <= status < 300:
        return DELIVERED
    if status == 410:
        return GONE
    if 300 <= status < 400:
        return "redirected"
    if 400 <= status < 500 and status not in _PASSING:
        return "refused"
    return "failed"


def retry_after(value: str | None, now: Callable[[], float]) -> float | None:
    """The seconds of a Retry-After header, from a number or a date; None for what is neither."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now())
    except (ValueError, OverflowError):
        return None


def after_failure(attempt: Attempt, failures: int, before: str | None, jitter: float, patience: Patience) -> Next:
    """When to try again; `failures` counts this one, `before` is the outcome of the one before, `jitter` in [0, 1).

    One refusal after an outage is not for good yet: an endpoint that is being deployed answers 404 for a while.

    Pauses double up to their limit and vary down to half, so that endpoints which failed together come apart.
    Retry-After is honoured up to the pause of a parked event.
    """
    for_good = attempt.outcome in PERMANENT and (before in PERMANENT or failures == 1)
    enough = patience.refusals if for_good else patience.attempts
    parked = failures >= enough
    pause = patience.parked_s if parked else min(patience.limit_s, patience.first_s * 2.0 ** min(failures - 1, 40))
    pause *= 1.0 - jitter / 2
    if attempt.retry_after_s is not None:
        pause = max(pause, min(attempt.retry_after_s, patience.parked_s))
    return Next(pause, parked)
