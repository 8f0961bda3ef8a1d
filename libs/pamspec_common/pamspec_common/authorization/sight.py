"""Sight: the memories that a subject may see by several actions at once, narrowed by a grant; the refusal of an action.

Invariant: `allows` and `sql` say the same of every memory, as the decisions that they join do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pamspec_common.authorization.decisions import Decision
from pamspec_common.authorization.rights import Memory, Rights
from pamspec_common.documents import STATES
from pamspec_common.errors import AccessDenied, ScopeNotFound


class Narrowing(NamedTuple):
    """What a grant leaves of what its grantor may see; a relationship has no type that a grant could name."""

    object_types: frozenset[str] | None = None
    """None: objects of every type, and relationships."""
    object_ids: frozenset[str] | None = None
    """None: every object and relationship; else only these, and relationships only with both ends among them."""

    def allows(self, object_id: str, object_type: str, *, is_object: bool) -> bool:
        """Whether it leaves an object or a relationship in sight."""
        types, ids = self.object_types, self.object_ids
        return (types is None or (is_object and object_type in types)) and (ids is None or object_id in ids)


class Sight:
    """Several decisions, each of which must allow a memory, within a grant's terms; without any, everything is seen."""

    __slots__ = ("decisions", "narrowing")

    def __init__(self, decisions: tuple[Decision, ...] = (), narrowing: Narrowing | None = None) -> None:
        self.narrowing = None if narrowing == Narrowing() else narrowing
        kept: list[Decision] = []
        for decision in decisions:
            if not decision.always and decision not in kept:
                kept.append(decision)
        self.decisions = tuple(kept)

    @property
    def everything(self) -> bool:
        """Whether every memory is seen."""
        return not self.decisions and self.narrowing is None

    @property
    def nothing(self) -> bool:
        """Whether one of the actions is allowed for no memory at all."""
        return any(decision.never for decision in self.decisions)

    def names(self, *attributes: str) -> bool:
        """Whether it rests on one of these attributes."""
        return any(name in decision.named for decision in self.decisions for name in attributes)

    @property
    def by_state(self) -> bool:
        """Whether a memory may come into sight, or leave it, as its states change."""
        return self.names(*STATES)

    def narrowed(self, narrowing: Narrowing) -> Sight:
        """The same within the terms of a grant."""
        return Sight(self.decisions, narrowing)

    def allows(self, memory: Memory) -> bool:
        """Whether a memory with these attributes is seen; what a grant leaves of it is asked of `narrowing`."""
        return all(decision.allows(memory) for decision in self.decisions)

    def sql(self, columns: Mapping[str, str], first: int) -> tuple[str, list[list[str]]]:
        """A condition that selects what is seen, with its arguments from `$first` on; `columns` by attribute."""
        parts: list[str] = []
        arguments: list[list[str]] = []
        for decision in self.decisions:
            part, more = decision.sql(columns, first + len(arguments))
            parts.append(part)
            arguments += more
        return ("(" + " AND ".join(parts) + ")" if parts else "true"), arguments


EVERYTHING = Sight()


def sight(rights: Rights, *actions: str) -> Sight:
    """What all of these actions allow."""
    decisions = tuple([rights.decision(action) for action in actions])
    kept = rights.joined.get(actions)
    if kept is None or kept[0] != decisions:
        kept = rights.joined[actions] = decisions, Sight(decisions)
    found: Sight = kept[1]
    return found


def require(rights: Rights, *actions: str) -> None:
    """Raise unless the subject may do one of these to some memory: ScopeNotFound in a scope that it can't see."""
    if any(not rights.decision(action).never for action in actions):
        return
    rights.check_assertion()
    if not rights.sees_scope:
        raise ScopeNotFound
    raise AccessDenied(
        f"You may not {actions[0].replace('_', ' ')} here; ask an administrator of the scope for a role that may.",
        details={"action": actions[0]},
    )
