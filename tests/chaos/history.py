"""What clients did and were answered, as far as a judgement needs it; instants are those of one clock."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["create", "increment", "delete", "read"]


@dataclass(frozen=True)
class Done:
    """An operation with its answer, or without: then nobody knows its outcome yet."""

    kind: Kind
    scope_id: str
    object_id: str
    began: float
    ended: float
    version: int = 0
    """The version that was made or read; 0 of an operation that was not answered, or found the object deleted."""
    event_id: str = ""
    sequence: int = 0
    """Of a write: its ledger sequence."""
    count: int = -1
    """Of a read or an increment: the counter."""

    @property
    def known(self) -> bool:
        """Whether it was answered."""
        return self.ended > 0


@dataclass
class History:
    """All of them, in the order of their answers."""

    done: list[Done] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    """Refusals that are right in a race, by their code."""
    objects: dict[str, str] = field(default_factory=dict)
    """The scope of each object that somebody began to create."""

    def now(self) -> float:
        """The clock of this history."""
        return time.monotonic()

    def writes(self) -> list[Done]:
        """Every acknowledged write."""
        return [one for one in self.done if one.kind != "read" and one.known]

    def unknown(self) -> list[Done]:
        """Writes without an answer."""
        return [one for one in self.done if one.kind != "read" and not one.known]
