"""Which states an answer holds: the default trusted retrieval, its short forms, and what a request names itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pamspec_common.documents import STATES
from pamspec_query.documents import Filters

TRUSTED: Mapping[str, tuple[str, ...]] = {
    "lifecycle_state": ("active",),
    "availability_state": ("available",),
    "retention_state": ("retained",),
    "validation_state": ("corroborated",),
}
"""PAMSPEC P157."""

WORKING: Mapping[str, tuple[str, ...]] = {
    "lifecycle_state": ("active",),
    "availability_state": ("available", "partially_redacted"),
    "retention_state": ("retained",),
    "validation_state": ("unverified", "corroborated", "disputed"),
}
"""What an agent's own notes need."""

HINT = (
    "Nothing here is active, available, retained and corroborated at once, the default; objects in other states match. "
    'Send query.trust "working", or name states in query.filters.'
)


@dataclass(frozen=True, slots=True)
class States:
    """The states that pass, by dimension; None where any does."""

    passing: Mapping[str, tuple[str, ...] | None]
    named: Mapping[str, tuple[str, ...] | None]
    """Only what the request says itself, without the default."""
    defaulted: bool
    hides_lapsed: bool = False
    """Whether the request leaves it to us which retention passes: what has lapsed does not, marked or not."""

    def of(self, dimension: str) -> tuple[str, ...]:
        """The states of a dimension that pass."""
        passing = self.passing[dimension]
        return tuple(STATES[dimension]) if passing is None else passing

    def lists(self) -> list[tuple[str, ...]]:
        """The states that pass, dimension by dimension."""
        return [self.of(dimension) for dimension in STATES]

    @property
    def shows_erased(self) -> bool:
        """Whether tombstones are asked for (S21)."""
        availability = self.passing["availability_state"]
        return availability is None or not {"redacted", "deleted"}.isdisjoint(availability)


def states(filters: Filters, trust: str | None) -> States:
    """Each state that is not named takes its default; `trust` sets all four and a named filter overrides it."""
    short: Mapping[str, tuple[str, ...] | None]
    short = dict.fromkeys(STATES) if trust == "all" else WORKING if trust == "working" else TRUSTED
    passing: dict[str, tuple[str, ...] | None] = {}
    named: dict[str, tuple[str, ...] | None] = {}
    for dimension in STATES:
        given = getattr(filters, dimension)
        if given is None:
            passing[dimension] = short[dimension]
            named[dimension] = None if trust is None else short[dimension]
        else:
            passing[dimension] = named[dimension] = None if given == "any" else tuple(sorted(set(given)))
    return States(passing, named, passing != named, filters.retention_state is None and trust != "all")
