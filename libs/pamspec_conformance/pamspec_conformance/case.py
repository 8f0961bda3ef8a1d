"""A conformance case: a name, the requirements that it covers, and the steps that judge an implementation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pamspec_conformance.trial import Trial

Facility = Literal["stranger", "restart", "http"]
Steps = Callable[["Trial"], Awaitable[None]]


class Deviation(AssertionError):
    """The implementation does not do what the requirement says; the message tells what it did instead."""


class NotYet(Exception):
    """The implementation itself says that it does not offer what the case needs."""


class NotTried(Exception):
    """The run lacks a facility that the case needs."""


@dataclass(frozen=True)
class Case:
    """One named case of one profile."""

    name: str
    profile: str
    covers: tuple[str, ...]
    """The requirements, by number."""
    promise: str
    """One sentence: what the implementation does when the case passes."""
    steps: Steps
    needs: frozenset[Facility] = frozenset()


class CaseList:
    """The cases of one profile, in the order of their definition."""

    def __init__(self, profile: str) -> None:
        self.profile = profile
        self.cases: list[Case] = []

    def case(self, *covers: str, needs: tuple[Facility, ...] = ()) -> Callable[[Steps], Steps]:
        """Declares a coroutine function as a case: its docstring is the promise, its name the case's name."""

        def declare(steps: Steps) -> Steps:
            name = f"{self.profile.lower().replace('-', '_')}.{getattr(steps, '__name__', '')}"
            promise = " ".join((steps.__doc__ or "").split())
            self.cases.append(Case(name, self.profile, covers, promise, steps, frozenset(needs)))
            return steps

        return declare
