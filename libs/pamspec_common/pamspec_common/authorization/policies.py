"""Policies: rules in Cedar's language, accepted only when a query can decide them row by row.

Invariant of what is accepted: an attribute of a memory is compared for equality, or for being in a set, with texts and
with the principal's own id, and with nothing else. Memories that differ only in values that no rule names are then one
class, and a decision for the class is a decision for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import accumulate
from typing import Any

import cedarpy
import orjson

from pamspec_common.authorization.vocabulary import ACTIONS, ATTRIBUTES, SCHEMA

MAX_TEXT = 64 * 1024
MAX_RULES = 200
MAX_NESTING = 100
"""How many brackets may be open at one place; the parser's stack ends the process at some more."""
MAX_PATH = 16
"""How many names may follow each other by dots; the time of the parser doubles with some of them."""
MAX_CLASSES = 4096
"""How many classes of memories the rules of one action may tell apart."""

_TEXT_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*+"|//[^\n]*+', re.DOTALL)
_PATH = re.compile(rf"(?:\s*+\.\s*+\w++){{{MAX_PATH + 1}}}")
_COMPARED = {"==", "!="}
_ON_TIME = {"<", "<=", ">", ">="}
_LOGIC = {"&&", "||", "!", "if-then-else", "contains", "containsAny", "containsAll", "isEmpty", "has", ".", "Record"}

Node = Mapping[str, Any]
_NOW: Node = {".": {"left": {"Var": "context"}, "attr": "now"}}
_WHOLE = {"resource": "itself; use its attributes", "context": "in a way that nobody can tell the end of"}


class PolicyRefused(ValueError):
    """A policy text that cannot apply; `problems` are pairs of a rule's id and what is wrong with it."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{rule}: {problem}" for rule, problem in problems))


@dataclass(frozen=True)
class Mentions:
    """What the rules of one action name."""

    values: Mapping[str, frozenset[str]]
    """By attribute of a memory: the texts that it is compared with."""
    principal: frozenset[str]
    """The attributes of a memory that are compared with the principal's id."""
    times: tuple[int, ...]
    """The moments at which a decision may change, in seconds of Unix time."""


@dataclass(frozen=True)
class Policies:
    """Accepted rules."""

    text: str
    rules: cedarpy.PolicySet = field(repr=False, compare=False)
    mentions: Mapping[str, Mentions] = field(repr=False, compare=False)
    """By action."""


@cache
def schema() -> cedarpy.Schema:
    """The schema of the vocabulary, parsed once."""
    return cedarpy.Schema.from_str(SCHEMA)


@cache
def default_text() -> str:
    """The rules that give the roles their rights."""
    return files("pamspec_common.authorization").joinpath("default.cedar").read_text()


def parse(text: str) -> Policies:
    """The rules of a text; PolicyRefused naming each rule that cannot apply, before anything of it does."""
    if len(text.encode()) > MAX_TEXT:
        raise PolicyRefused([("policy", f"it is longer than {MAX_TEXT} bytes")])
    _check_nesting(text)
    rules = _rules(text)
    problems = [(rule, problem) for rule, body in rules.items() for problem in _Reading(body).problems()]
    checked = cedarpy.validate_policies(text, schema())
    if not checked.validation_passed:
        names = list(rules)
        problems += [(_named(error.policy_id, names), error.error) for error in checked.errors]
    mentions = {action: _mentions(action, rules.values()) for action in ACTIONS}
    if problems:
        raise PolicyRefused(problems)
    _check_classes(mentions)
    return Policies(text, cedarpy.PolicySet.from_str(text), mentions)


def _check_nesting(text: str) -> None:
    """Before any parser sees the text."""
    if "\0" in text:
        raise PolicyRefused([("policy", "it holds a NUL character")])
    bare = _TEXT_OR_COMMENT.sub(lambda found: " " if found[0].startswith("//") else '""', text)
    deepest = max(accumulate((char in "([{") - (char in ")]}") for char in bare), default=0)
    if deepest > MAX_NESTING or _PATH.search(bare):
        raise PolicyRefused(
            [("policy", f"it nests deeper than {MAX_NESTING} brackets or names more than {MAX_PATH} members in a row")]
        )


def combined(parts: Sequence[Policies]) -> Policies:
    """Several accepted texts as one: a permit of any permits, a forbid of any forbids.

    PolicyRefused when the rules of an action tell too many cases apart together.
    """
    mentions: dict[str, Mentions] = {}
    for action in ACTIONS:
        found = [part.mentions[action] for part in parts]
        names = {name for one in found for name in one.values}
        mentions[action] = Mentions(
            {name: frozenset().union(*(one.values.get(name, frozenset()) for one in found)) for name in names},
            frozenset().union(*(one.principal for one in found)),
            tuple(sorted({moment for one in found for moment in one.times})),
        )
    _check_classes(mentions)
    text = "\n".join(part.text for part in parts)
    return Policies(text, cedarpy.PolicySet.from_str(text), mentions)


def _check_classes(mentions: Mapping[str, Mentions]) -> None:
    problems = [
        ("policy", f"its rules for {action} tell {classes} cases apart, more than {MAX_CLASSES}")
        for action, found in mentions.items()
        if (classes := count_classes(found)) > MAX_CLASSES
    ]
    if problems:
        raise PolicyRefused(problems)


def count_classes(found: Mentions) -> int:
    """How many classes of memories these mentions tell apart, at most."""
    total = 1
    for name in ATTRIBUTES:
        named = len(found.values.get(name, ())) + (name in found.principal)
        total *= named + 1
    return total


def _rules(text: str) -> dict[str, Node]:
    """The parsed rules by their `@id`."""
    try:
        static = orjson.loads(cedarpy.policies_to_json_str(text))
    except ValueError as error:
        raise PolicyRefused([("policy", f"it is not Cedar: {error}")]) from None
    if static.get("templates"):
        raise PolicyRefused([("policy", "templates are not offered; write each rule out")])
    found: dict[str, Node] = {}
    unnamed = 0
    for number, (key, body) in enumerate(static["staticPolicies"].items()):
        rule = (body.get("annotations") or {}).get("id")
        unnamed += rule is None
        name = rule if isinstance(rule, str) and rule else f"rule {number + 1}"
        if rule is None or rule == "" or name in found:
            raise PolicyRefused([(name, 'every rule needs an id of its own: @id("...")')])
        found[name] = {**body, "key": key}
    if len(found) > MAX_RULES:
        raise PolicyRefused([("policy", f"it has more than {MAX_RULES} rules")])
    return found


def _named(policy_id: str, names: list[str]) -> str:
    number = policy_id.removeprefix("policy")
    return names[int(number)] if number.isdigit() and int(number) < len(names) else policy_id


def _actions(rule: Node) -> frozenset[str]:
    constraint = rule["action"]
    if constraint["op"] == "All":
        return frozenset(ACTIONS)
    entities = constraint.get("entities") or [constraint["entity"]]
    return frozenset(entity["id"] for entity in entities)


def _mentions(action: str, rules: Any) -> Mentions:
    values: dict[str, set[str]] = {}
    principal: set[str] = set()
    times: set[int] = set()
    for rule in rules:
        if action not in _actions(rule):
            continue
        reading = _Reading(rule)
        reading.problems()
        for name, named in reading.values.items():
            values.setdefault(name, set()).update(named)
        principal |= reading.principal
        times |= reading.times
    return Mentions(
        {name: frozenset(named) for name, named in values.items()}, frozenset(principal), tuple(sorted(times))
    )


class _Reading:
    """One walk over a rule: what it compares, and what it does that no rule may do."""

    def __init__(self, rule: Node) -> None:
        self._rule = rule
        self.values: dict[str, set[str]] = {}
        self.principal: set[str] = set()
        self.times: set[int] = set()

    def problems(self) -> list[str]:
        """Why the rule cannot apply; empty when it can."""
        found = [] if self._rule["resource"]["op"] in ("All", "is") else ["it names a memory; rules are about classes"]
        if self._rule["principal"]["op"] not in ("All", "==", "is"):
            found.append("it names a group; use principal.roles")
        for condition in self._rule["conditions"]:
            found += self._walk(condition["body"])
        return found

    def _walk(self, node: Node) -> Iterator[str]:
        (operator, body), *_ = node.items()
        if operator in _COMPARED and self._compares(body["left"], body["right"]):
            return
        if operator in _ON_TIME or (operator in _COMPARED and _NOW in (body["left"], body["right"])):
            yield from self._time(body["left"], body["right"])
        elif operator == "contains" and _attribute(body["right"]) is not None:
            yield from self._member(_attribute(body["right"]) or "", body["left"])
        elif _attribute(node) is not None:
            yield f"resource.{_attribute(node)} is compared with texts or the principal's id, by ==, != or contains"
        elif operator == "Var":
            if body in _WHOLE:
                yield f"it uses {body} {_WHOLE[body]}"
        elif operator in _LOGIC or operator in _COMPARED:
            for below in _below(body):
                yield from self._walk(below)
        elif operator == "Set":
            for below in body:
                yield from self._walk(below)
        elif operator != "Value":
            yield f"{operator} is not offered"

    def _compares(self, left: Node, right: Node) -> bool:
        """Whether this compares an attribute of a memory in a way that classes can tell."""
        for one, other in ((left, right), (right, left)):
            name = _attribute(one)
            if name is None:
                continue
            if "Value" in other and isinstance(other["Value"], str):
                self.values.setdefault(name, set()).add(other["Value"])
                return True
            if other == {".": {"left": {"Var": "principal"}, "attr": "actor_id"}}:
                self.principal.add(name)
                return True
        return False

    def _member(self, name: str, group: Node) -> Iterator[str]:
        members = group.get("Set")
        if not isinstance(members, list) or not all(isinstance(one.get("Value"), str) for one in members):
            yield f"resource.{name} is looked for in a set that is written out in texts, and in nothing else"
            return
        self.values.setdefault(name, set()).update(one["Value"] for one in members)

    def _time(self, left: Node, right: Node) -> Iterator[str]:
        other = right if left == _NOW else left if right == _NOW else {}
        if not isinstance(other.get("Value"), int) or isinstance(other.get("Value"), bool):
            yield "context.now, and nothing else, is compared by size, with a number of seconds"
            return
        self.times.update((other["Value"], other["Value"] + 1))


def _attribute(node: Node) -> str | None:
    """The name when a node is an attribute of the memory."""
    member = node.get(".")
    return str(member["attr"]) if member is not None and member["left"] == {"Var": "resource"} else None


def _below(body: Any) -> list[Node]:
    if not isinstance(body, Mapping):
        return []
    return [part for part in body.values() if isinstance(part, Mapping)]
