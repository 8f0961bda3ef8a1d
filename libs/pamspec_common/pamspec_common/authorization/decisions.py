"""Decisions: the rules of a scope applied to a principal and an action, for every class of memories at once.

Invariant: for each memory a decision answers what the engine itself would answer for that memory alone; the SQL of a
decision selects exactly the memories that it allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import cedarpy
import orjson

from pamspec_common.authorization.policies import Mentions, Policies
from pamspec_common.authorization.vocabulary import ATTRIBUTES

OTHER = "\0"
"""Stands for every value that no rule names; no attribute of a memory can hold it."""

Class = tuple[str, ...]


@dataclass(frozen=True)
class Subject:
    """Who acts, with the roles that it holds in the scope."""

    actor_id: str
    actor_kind: str
    roles: frozenset[str] = frozenset()
    delegation_id: str | None = None

    def entity(self) -> dict[str, object]:
        """The subject as the engine knows it."""
        attributes: dict[str, object] = {
            "actor_id": self.actor_id,
            "actor_kind": self.actor_kind,
            "roles": sorted(self.roles),
        }
        if self.delegation_id is not None:
            attributes["delegation_id"] = self.delegation_id
        return {"uid": {"type": "Agent", "id": self.actor_id}, "attrs": attributes, "parents": []}


@dataclass(frozen=True)
class Decision:
    """What a subject may do by one action, until a moment.

    `named` are the values that tell classes apart, by attribute; `allowed` the classes that the action may touch, in
    the order of `named`; `rules` the id of a rule that decided against a class, where one did.
    """

    named: Mapping[str, frozenset[str]]
    allowed: frozenset[Class]
    rules: Mapping[Class, str] = field(repr=False)
    classes: int
    until: int | None
    """Seconds of Unix time from which the decision has to be made again; None: it has no end of its own."""

    @property
    def always(self) -> bool:
        """Whether every memory is allowed."""
        return len(self.allowed) == self.classes

    @property
    def never(self) -> bool:
        """Whether no memory is allowed."""
        return not self.allowed

    def allows(self, memory: Mapping[str, str]) -> bool:
        """Whether a memory with these attributes may be touched."""
        return self._class_of(memory) in self.allowed

    def rule(self, memory: Mapping[str, str]) -> str | None:
        """The rule that forbids it; None where it is allowed, or where no rule permits it."""
        return self.rules.get(self._class_of(memory))

    def _class_of(self, memory: Mapping[str, str]) -> Class:
        return tuple([memory[name] if memory[name] in named else OTHER for name, named in self.named.items()])

    def sql(self, columns: Mapping[str, str], first: int) -> tuple[str, list[list[str]]]:
        """A condition that selects what is allowed, with its arguments from `$first` on.

        `columns` names the column of each attribute.
        """
        arguments: list[list[str]] = []
        names = list(self.named)
        condition = _condition(names, self.named, self.allowed, columns, first, arguments)
        return condition, arguments


NOTHING = Decision({}, frozenset(), {}, 1, None)
"""Allows nothing, whatever the rules."""


def _condition(
    names: Sequence[str],
    named: Mapping[str, frozenset[str]],
    allowed: frozenset[Class],
    columns: Mapping[str, str],
    first: int,
    arguments: list[list[str]],
) -> str:
    """The values of the first attribute, grouped by what they demand of the others."""
    if not allowed:
        return "false"
    if not names:
        return "true"
    rest: dict[str, frozenset[Class]] = {}
    values = _values(names[0], named[names[0]])
    for value in values:
        rest[value] = frozenset(one[1:] for one in allowed if one[0] == value)
    groups: dict[frozenset[Class], list[str]] = {}
    for value, below in rest.items():
        groups.setdefault(below, []).append(value)
    parts = []
    for below, members in groups.items():
        inner = _condition(names[1:], named, below, columns, first, arguments)
        if inner == "false":
            continue
        tests = (
            []
            if len(members) == len(values)
            else [_test(columns[names[0]], members, named[names[0]], first, arguments)]
        )
        parts.append(" AND ".join([*tests, *([] if inner == "true" else [inner])]) or "true")
    return parts[0] if len(parts) == 1 else "(" + " OR ".join(f"({part})" for part in parts) + ")"


def _test(column: str, members: list[str], named: frozenset[str], first: int, arguments: list[list[str]]) -> str:
    others = OTHER in members
    arguments.append(sorted(named - set(members)) if others else sorted(members))
    place = f"${first + len(arguments) - 1}"
    return f"{column} <> ALL ({place}::text[])" if others else f"{column} = ANY ({place}::text[])"


def _values(name: str, named: frozenset[str]) -> list[str]:
    """The values of an attribute that are told apart: those named, and OTHER where there can be another."""
    closed = ATTRIBUTES[name]
    if closed is None:
        return [*sorted(named), OTHER]
    possible = [value for value in closed if value in named]
    return possible if len(possible) == len(closed) else [*possible, OTHER]


def decide(policies: Policies, subject: Subject, action: str, now: int) -> Decision:
    """Decide an action of a subject at `now` (seconds of Unix time) for every class of memories."""
    found = policies.mentions[action]
    named = _named(found, subject)
    classes = list(product(*[_values(name, values) for name, values in named.items()]))
    entities = cedarpy.Entities.from_json_str(
        orjson.dumps([subject.entity(), *[_memory(named, number, one) for number, one in enumerate(classes)]]).decode()
    )
    requests = [
        {
            "principal": {"type": "Agent", "id": subject.actor_id},
            "action": {"type": "Action", "id": action},
            "resource": {"type": "Memory", "id": str(number)},
            "context": {"now": now},
        }
        for number in range(len(classes))
    ]
    results = cedarpy.is_authorized_batch(requests, policies.rules, entities)
    allowed = frozenset(one for one, result in zip(classes, results, strict=True) if result.allowed)
    rules = {
        one: rule
        for one, result in zip(classes, results, strict=True)
        if not result.allowed and (rule := _forbidding(result)) is not None
    }
    until = next((moment for moment in found.times if moment > now), None)
    return Decision(named, allowed, rules, len(classes), until)


def _named(found: Mentions, subject: Subject) -> dict[str, frozenset[str]]:
    """The values that matter for this subject, by attribute; attributes that no rule uses are left out."""
    named: dict[str, frozenset[str]] = {}
    for name, closed in ATTRIBUTES.items():
        values = set(found.values.get(name, ()))
        if name in found.principal:
            values.add(subject.actor_id)
        if closed is not None:
            values &= set(closed)
        if values:
            named[name] = frozenset(values)
    return named


def _memory(named: Mapping[str, frozenset[str]], number: int, one: Class) -> dict[str, object]:
    attributes = dict.fromkeys(ATTRIBUTES, OTHER)
    attributes.update(zip(named, one, strict=True))
    return {"uid": {"type": "Memory", "id": str(number)}, "attrs": attributes, "parents": []}


def _forbidding(result: cedarpy.AuthzResult) -> str | None:
    """The id of a rule that forbade; a denial for want of a permit has none."""
    names = result.diagnostics.id_annotations_by_reason
    return min((names.get(reason) or reason for reason in result.diagnostics.reasons), default=None)
