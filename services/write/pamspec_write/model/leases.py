"""How long a job of the write service may keep its work without saying anything."""

from __future__ import annotations

from typing import Final

_LONGEST_S: Final = 300.0
"""Half of the ten minutes after which the statements take a lease for one from before the store's clock jumped back."""


def lease_s(wanted_s: float) -> float:
    """The seconds of a lease that wants so many."""
    return min(wanted_s, _LONGEST_S)
