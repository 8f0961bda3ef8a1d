"""Paths of a traversal: by which relationships each object was first reached (PAMSPEC P76, P151).

Invariant: steps are told breadth first and in a fixed order, so a kept path is a shortest one and equal state gives
equal paths.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Place = tuple[str, str]
"""A scope's id, and the id of an object or relationship in it."""


@dataclass(slots=True)
class Paths:
    """The first way to everything that was reached."""

    starts: set[Place] = field(default_factory=set)
    _nearer: dict[Place, tuple[Place, str]] = field(default_factory=dict)
    """Of an object: the one before it, and the relationship between."""
    _walked: dict[Place, tuple[Place, Place]] = field(default_factory=dict)
    """Of a relationship: the objects from and to which it was walked first."""

    def begin(self, places: Iterable[Place]) -> None:
        """Where the traversal starts."""
        self.starts.update(places)

    def walk(self, near: Place, relationship_id: str, far: Place) -> None:
        """A relationship was walked from one object to another; a way that is known already stays."""
        self._walked.setdefault((near[0], relationship_id), (near, far))
        if far not in self.starts:
            self._nearer.setdefault(far, (near, relationship_id))

    def to(self, place: Place) -> dict[str, Any] | None:
        """The path to an object or along a relationship that was reached: where it starts, and each step."""
        steps: list[dict[str, str]] = []
        if place in self._walked:
            near, far = self._walked[place]
            steps.append(_step(place[1], near, far))
            place = near
        while place in self._nearer:
            near, relationship_id = self._nearer[place]
            steps.append(_step(relationship_id, near, place))
            place = near
        if not steps:
            return None
        return {"from": place[1], "steps": steps[::-1]}


def _step(relationship_id: str, near: Place, far: Place) -> dict[str, str]:
    step = {"object_id": far[1], "relationship_id": relationship_id}
    return step if near[0] == far[0] else {**step, "scope_id": far[0]}
