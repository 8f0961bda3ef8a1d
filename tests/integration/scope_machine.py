"""The state machine: random operations on one scope of a real service, each answer held against the reference model."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.integration.reference import DIMENSIONS, FREE_EDGES, PROMOTED, TRUSTED, Refused, Version
from tests.integration.scope_history import PROVENANCE, ScopeHistory, Sent
from tests.integration.stateful_service import Document, Target

OBJECTS = st.sampled_from([f"obj:{number}" for number in range(5)])
NOTES = st.sampled_from(["obj:note-0", "obj:note-1"])
RELATIONSHIPS = st.sampled_from([f"rel:{number}" for number in range(3)])
EXPECTED = st.sampled_from(["current", "current", "current", "current", "first", "bogus"])
NUMBERS = st.integers(0, 3)
STATES = st.sampled_from(
    [(dimension, target) for dimension, targets in DIMENSIONS.items() for target in targets]
    + [("lifecycle", "redacted"), ("validation", "active")]
)
VALIDATIONS = st.sampled_from(["unverified", "corroborated"])
KINDS = st.sampled_from(["create", "update", "update", "update", "transition", "transition", "transition", "delete"])
WORKING = {
    "lifecycle": ("active",),
    "availability": ("available", "partially_redacted"),
    "retention": ("retained",),
    "validation": ("unverified", "corroborated", "disputed"),
}
ITEMS = st.lists(st.tuples(KINDS, OBJECTS, EXPECTED, NUMBERS, STATES), min_size=1, max_size=5)
UNSTORED = ("version_conflict", "invalid_request")
"""Refusals that are no outcome: they were not decided on the object's state, or say to decide again."""
_numbers = itertools.count(1)


STEPS: dict[str, st.SearchStrategy[Document]] = {}
"""The arguments of each step, by its name."""
F = TypeVar("F", bound=Callable[..., None])


def step(**arguments: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """A method that a history may do at any time; one rule draws all of them evenly."""

    def declare(method: F) -> F:
        STEPS[method.__name__] = st.fixed_dictionaries(arguments)
        return method

    return declare


class ScopeMachine(ScopeHistory):
    """Everything that a history may do."""

    @initialize(validations=st.lists(VALIDATIONS, min_size=4, max_size=4), crashes=st.sampled_from([0, 0, 0, 1]))
    def begin(self, validations: list[str], crashes: int) -> None:
        """A scope with something in it: four of the five objects, and a relationship; one in four sees a crash."""
        self.crashes_left, self.may_crash = crashes, crashes > 0
        for number, validation in enumerate(validations):
            self.perform("create", self.creating(f"obj:{number}", number, validation))
        self.relate("rel:0", "obj:0", "obj:1", 1)
        held = {"dimension": "retention", "target_state": "legal_hold", "policy_basis": "test"}
        self.perform("transition", {**self.about("obj:3", "current"), **held})
        self.perform("delete", {**self.about("obj:3", "current"), "policy_basis": "test"})

    @step(object_id=OBJECTS, index=st.integers(0, 20), free=st.sampled_from([True, True, False]))
    def move(self, object_id: str, index: int, free: bool) -> None:
        """A transition along an edge that is free, or along one that no table has or that needs a policy."""
        head = self.model.head(object_id)
        if head is not None:
            edges = [
                (dimension, to)
                for dimension, targets in DIMENSIONS.items()
                for to in targets
                if dimension != "availability" and ((head.states[dimension], to) in FREE_EDGES) == free
            ]
            dimension, target = edges[index % len(edges)]
            moved = {"dimension": dimension, "target_state": target, "policy_basis": "test"}
            self.perform("transition", {**self.about(object_id, "current"), **moved})

    @step(object_id=OBJECTS, n=NUMBERS, validation=VALIDATIONS)
    def create(self, object_id: str, n: int, validation: str) -> None:
        self.perform("create", self.creating(object_id, n, validation))

    @step(kind=KINDS, object_id=OBJECTS, which=EXPECTED, n=NUMBERS, states=STATES)
    def change(self, kind: str, object_id: str, which: str, n: int, states: tuple[str, str]) -> None:
        self.perform(kind, self.document(kind, object_id, which, n, states))

    @step(object_id=OBJECTS, n=NUMBERS, restored=st.none() | st.integers(0, 9))
    def write_again(self, object_id: str, n: int, restored: int | None) -> None:
        """An update of the current version, with new content or that of an old version."""
        about, versions = self.about(object_id, "current"), self.model.subjects.get(object_id)
        if restored is None or not versions:
            content: Document = {"canonical_content": {"n": n, "name": f"name {n}"}}
        else:
            content = {"restore_version_id": versions[restored % len(versions)].version_id}
        self.perform("update", {**about, **content, "provenance": PROVENANCE})

    @step(note=NOTES, n=NUMBERS)
    def take_a_note(self, note: str, n: int) -> None:
        content = {"task_ref": "task:1", "content": f"note {n}"}
        self.perform(
            "create",
            {**self.creating(note, n, "unverified"), "object_type": "working_memory", "canonical_content": content},
        )

    @step(source=NOTES | OBJECTS, other=NOTES | OBJECTS, which=EXPECTED, n=NUMBERS)
    def promote(self, source: str, other: str, which: str, n: int) -> None:
        """Working memory becomes an object of its own; anything else, and any taken id, is refused."""
        about = self.about(source, which)
        target = other if n == 0 else f"obj:promoted-{next(_numbers)}"
        document = {
            "source_object_id": source,
            "expected_version_id": about["expected_version_id"],
            "target_object_type": "claim",
            "target_object_id": target,
            "target_canonical_content": {"n": n},
            "provenance": PROVENANCE,
        }
        request, key = self.named(document)
        due = self.predicted(self.model, "promote", document)
        answer = self.service.call("promote", request, key).document
        self.agree(due, answer if isinstance(due, Refused) else answer["object"], further_events=3)
        if isinstance(due, Version):
            superseded = self.model.subjects[source][-1]
            assert answer["source"]["sequence"] == superseded.sequence
            superseded.version_id = answer["source"]["version_id"]
            place = self.model.ledger.index(("relationship_created", PROMOTED))
            self.model.ledger[place] = ("relationship_created", answer["relationship_id"])

    @step(object_id=OBJECTS, which=EXPECTED, paths=st.sampled_from([None, ["/name"], ["/n", "/name"]]))
    def redact(self, object_id: str, which: str, paths: list[str] | None) -> None:
        head = self.model.head(object_id)
        if paths and head is not None and isinstance(head.content, dict):
            paths = [path for path in paths if path[1:] in head.content]
        target: Document = {"paths": paths} if paths else {"whole": True}
        self.perform("redact", {**self.about(object_id, which), "policy_basis": "test", "redaction_target": target})

    @step(relationship_id=RELATIONSHIPS, source=OBJECTS, other=OBJECTS, n=NUMBERS)
    def relate(self, relationship_id: str, source: str, other: str, n: int) -> None:
        members = {"relationship_type": "supports", "directionality": "directed", "provenance": PROVENANCE}
        ends = {"source_object_id": source, "target_object_id": other}
        self.perform("relate", {**ends, **members, "relationship_id": relationship_id, "canonical_content": {"n": n}})

    @step(relationship_id=RELATIONSHIPS, which=EXPECTED, n=NUMBERS)
    def relate_again(self, relationship_id: str, which: str, n: int) -> None:
        about = self.about(relationship_id, which)
        self.perform("relate", {**about, "provenance": PROVENANCE, "canonical_content": {"n": n}})

    @step(relationship_id=RELATIONSHIPS, which=EXPECTED, state=st.sampled_from([*DIMENSIONS["lifecycle"], "deleted"]))
    def change_relationship(self, relationship_id: str, which: str, state: str) -> None:
        about = self.about(relationship_id, which)
        if state == "deleted":
            self.perform("delete", {**about, "policy_basis": "test"})
        else:
            moved = {"dimension": "lifecycle", "target_state": state, "policy_basis": "test"}
            self.perform("transition", {**about, **moved})

    @step(
        items=st.lists(st.tuples(KINDS, OBJECTS, EXPECTED, NUMBERS, STATES), min_size=1, max_size=5),
        atomic=st.booleans(),
    )
    def batch(self, items: list[tuple[str, str, str, int, tuple[str, str]]], atomic: bool) -> None:
        changes = [
            (item[0], self.document(*item)) for item in items if item[4] != ("availability", "partially_redacted")
        ]
        if not changes:
            return
        documents = [{**document, "operation": kind} for kind, document in changes]
        request, key = self.named({"items": documents, "atomic": atomic})
        trial = self.model.copy() if atomic else self.model
        due: list[Version | Refused] = []
        for kind, document in changes:
            due.append(self.predicted(trial, kind, document))
            if atomic and isinstance(due[-1], Refused):
                break
        answer = self.service.call("batch", request, key)
        if atomic and isinstance(due[-1], Refused):
            self.agree(due[-1], answer.document)
            return
        self.model = trial
        assert answer.code is None, answer
        for one, result in zip(due, answer.document["results"], strict=True):
            # A version that a later item erased is answered as it was made.
            if isinstance(one, Version) and one.erased:
                one.version_id = result["version_id"]
            else:
                self.agree(one, result)

    # What was sent comes again.

    @step(index=st.integers(0), by_key=st.booleans())
    def retry(self, index: int, by_key: bool) -> None:
        sent = self.sent[index % len(self.sent)]
        request = {name: value for name, value in sent.document.items() if not (by_key and name == "operation_id")}
        if sent.answer.code == "version_conflict":
            due = self.predicted(self.model, sent.operation, sent.document)
            answer = self.service.call(sent.operation, request, sent.key)
            self.agree(due, answer.document)
            if isinstance(due, Version):
                sent.answer, sent.made = answer, self.place(due)
            return
        answer = self.service.call(sent.operation, request, sent.key)
        made = self.made(sent)
        if made is not None and made.erased:
            head = self.model.subjects[made.subject][-1]
            deleted = head.states["availability"] == "deleted"
            assert answer.code == ("object_deleted" if deleted else "object_redacted"), answer
        elif not by_key or sent.answer.code not in UNSTORED:
            assert answer.body == sent.answer.body

    @step(index=st.integers(0))
    def send_other_content(self, index: int) -> None:
        done = [sent for sent in self.sent if (made := self.made(sent)) is not None and not made.erased]
        if done:
            sent = done[index % len(done)]
            other = {**sent.document, "provenance": {"activity": "something else"}}
            assert self.service.call(sent.operation, other, sent.key).code == "duplicate_operation"

    @step(index=st.integers(0))
    def look_up(self, index: int) -> None:
        decided = [sent for sent in self.sent if sent.answer.code not in UNSTORED]
        if not decided:
            return
        sent = decided[index % len(decided)]
        about = {"scope_id": self.scope, "operation_id": sent.document["operation_id"]}
        found = self.service.call("get_operation", about).document
        if sent.answer.code is None:
            assert found["state"] == "committed", found
        else:
            assert (found["state"], found["outcome"]) == ("failed", sent.answer.document)

    @step(
        victim=st.sampled_from(["write", "write", "postgres", "query"]),
        delay_ms=st.floats(0, 4),
        kind=KINDS,
        object_id=OBJECTS,
        n=NUMBERS,
        states=STATES,
    )
    def crash(
        self, victim: Target, delay_ms: float, kind: str, object_id: str, n: int, states: tuple[str, str]
    ) -> None:
        """A process dies in the middle of an operation; the look-up tells what became of it, and that is final."""
        if self.crashes_left == 0:
            return
        self.crash_now(victim, delay_ms / 1000, kind, self.document(kind, object_id, "current", n, states))

    def crash_now(self, victim: Target, delay_s: float, kind: str, document: Document) -> None:
        self.crashes_left -= 1
        request, key = self.named(document)
        trial = self.model.copy()
        due = self.predicted(trial, kind, document)
        answer = self.service.crash_during(victim, delay_s, kind, request, key)
        about = {"scope_id": self.scope, "operation_id": request["operation_id"]}
        found = self.service.call("get_operation", about).document
        if found["state"] == "committed":
            assert answer is None or answer.document == found["outcome"]
            self.model = trial
            self.agree(due, found["outcome"])
            again = self.service.call(kind, request, key)
            self.sent.append(Sent(kind, request, key, again, self.place(due)))
        elif found["state"] == "failed":
            self.agree(due, found["outcome"])
        else:
            assert found["state"] == "unknown", found
            assert answer is None or answer.code in UNSTORED, answer
            if not (isinstance(due, Refused) and due.code == "invalid_request"):
                assert self.service.call(kind, request, key).code == "duplicate_operation", "unknown is final"
        self.check_ledger()

    # What can be seen.

    @step(object_id=OBJECTS)
    def read(self, object_id: str) -> None:
        self.check_read(self.model.head(object_id), object_id=object_id)

    @step(object_id=OBJECTS, index=st.integers(0))
    def read_version(self, object_id: str, index: int) -> None:
        versions = self.model.subjects.get(object_id)
        if versions:
            version = versions[index % len(versions)]
            self.check_read(version, object_id=object_id, version_id=version.version_id)

    @step(object_id=OBJECTS, index=st.integers(0))
    def read_as_of(self, object_id: str, index: int) -> None:
        position = index % (len(self.model.ledger) + 1)
        at = {"ledger_sequence": position}
        self.check_read(self.model.at(object_id, position), object_id=object_id, as_of=at)

    @step(object_id=OBJECTS)
    def history(self, object_id: str) -> None:
        answer = self.ask("inspect_history", object_id=object_id, pagination={"limit": 1000})
        versions = self.model.subjects.get(object_id)
        if versions is None:
            assert answer.code == "object_not_found"
            return
        assert [event["event_type"] for event in answer.document["events"]] == [one.event for one in versions]
        for version, envelope in zip(versions, answer.document["versions"], strict=True):
            self.shows(version, envelope)

    @step(trust=st.sampled_from(["trusted", "working"]), n=st.none() | NUMBERS, index=st.none() | st.integers(0))
    def query(self, trust: str, n: int | None, index: int | None) -> None:
        expression: Document = {"kind": "structured", "trust": trust}
        position = None if index is None else index % (len(self.model.ledger) + 1)
        if n is not None:
            expression["where"] = {"field": "content:/n", "op": "eq", "value": n}
        if position is not None:
            expression["as_of"] = {"ledger_sequence": position}
        states = WORKING if trust == "working" else {name: (state,) for name, state in TRUSTED.items()}
        answer = self.ask("query", query=expression, pagination={"limit": 1000})
        assert answer.code is None, answer
        found = [item["envelope"]["object_id"] for item in answer.document["items"]]
        assert found == self.model.found(states, position, n)

    def teardown(self) -> None:
        """A history that may see crashes ends with one: an answer that is due is likely lost."""
        if self.may_crash:
            self.crash_now("write", 0.001, "create", self.creating("obj:last", 1, "unverified"))
        self.check_ledger()

    @rule(chosen=st.one_of([st.tuples(st.just(name), arguments) for name, arguments in STEPS.items()]))
    def do(self, chosen: tuple[str, Document]) -> None:
        """Any step."""
        name, arguments = chosen
        getattr(self, name)(**arguments)
