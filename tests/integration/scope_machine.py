"""The state machine: random operations on one scope of a real service, each answer held against the reference model."""

from __future__ import annotations

import itertools
import secrets
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.integration.reference import DIMENSIONS, ERASED, FREE_EDGES, TRUSTED, Reference, Refused, Version
from tests.integration.stateful_service import Answer, Document, Service, Target

OBJECTS = st.sampled_from([f"obj:{number}" for number in range(5)])
RELATIONSHIPS = st.sampled_from([f"rel:{number}" for number in range(3)])
EXPECTED = st.sampled_from(["current", "current", "current", "current", "first", "bogus"])
NUMBERS = st.integers(0, 3)
STATES = st.sampled_from(
    [(dimension, target) for dimension, targets in DIMENSIONS.items() for target in targets]
    + [("lifecycle", "redacted"), ("validation", "active")]
)
VALIDATIONS = st.sampled_from(["unverified", "corroborated"])
KINDS = st.sampled_from(["create", "update", "update", "update", "transition", "transition", "transition", "delete"])
PROVENANCE = {"activity": "test"}
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


@dataclass
class Sent:
    """A request and what became of it."""

    operation: str
    document: Document
    key: str
    answer: Answer
    made: tuple[str, int] | None
    """Subject and sequence of the version that it made."""


class ScopeMachine(RuleBasedStateMachine):
    """One scope from its making on."""

    service: ClassVar[Service]

    def __init__(self) -> None:
        super().__init__()
        self.scope = self.service.new_scope()
        self.model = Reference()
        self.sent: list[Sent] = []
        self.crashes_left = 0
        self.version_ids: set[str] = set()

    # The documents of operations.

    def creating(self, object_id: str, n: int, validation: str) -> Document:
        content = {"n": n, "name": f"name {n}"}
        members = {"canonical_content": content, "provenance": PROVENANCE, "validation_state": validation}
        return {"object_type": "claim", "object_id": object_id, **members}

    def about(self, subject: str, which: str) -> Document:
        """The members that name a version of a subject: its current one, its first, or none that there is."""
        versions = self.model.subjects.get(subject)
        found = {"current": -1, "first": 0}.get(which)
        version_id = versions[found].version_id if versions and found is not None else "ver:bogus"
        named = "relationship_id" if subject.startswith("rel:") else "object_id"
        return {named: subject, "expected_version_id": version_id}

    def document(self, kind: str, subject: str, which: str, n: int, states: tuple[str, str]) -> Document:
        """Any operation on a subject."""
        if kind == "create":
            return self.creating(subject, n, "corroborated")
        about = self.about(subject, which)
        if kind == "update":
            content = {"canonical_content": {"n": n, "name": f"name {n}"}} if n else {}
            return {**about, **content, "provenance": PROVENANCE}
        if kind == "transition":
            return {**about, "dimension": states[0], "target_state": states[1], "policy_basis": "test"}
        return {**about, "policy_basis": "test"}

    # What is sent, and what must come back.

    def named(self, document: Document) -> tuple[Document, str]:
        """The request with its scope and an operation id of its own, and a key."""
        number = f"{secrets.token_hex(4)}-{next(_numbers)}"
        return {**document, "scope_id": self.scope, "operation_id": f"op:{number}"}, f"key:{number}"

    def perform(self, operation: str, document: Document) -> None:
        request, key = self.named(document)
        due = self.predicted(self.model, operation, document)
        answer = self.service.call(operation, request, key)
        self.agree(due, answer.document)
        self.sent.append(Sent(operation, request, key, answer, self.place(due)))

    @staticmethod
    def place(due: Version | Refused) -> tuple[str, int] | None:
        return (due.subject, due.sequence) if isinstance(due, Version) else None

    def made(self, sent: Sent) -> Version | None:
        """The version that a request made, as the model has it now."""
        return None if sent.made is None else self.model.subjects[sent.made[0]][sent.made[1] - 1]

    @staticmethod
    def predicted(model: Reference, operation: str, document: Document) -> Version | Refused:
        try:
            return model.apply(operation, document)
        except Refused as refused:
            return refused

    def agree(self, due: Version | Refused, answer: Document) -> None:
        """The answer is the one that the model predicts; its version's id is learned."""
        if isinstance(due, Refused):
            assert answer.get("error", {}).get("code") == due.code, (due.code, answer)
            return
        assert "error" not in answer, (due, answer)
        assert (answer["sequence"], answer["ledger_sequence"]) == (due.sequence, due.ledger_sequence)
        self.shows(due, answer["envelope"])
        assert answer["version_id"] not in self.version_ids
        self.version_ids.add(answer["version_id"])
        due.version_id = answer["version_id"]

    def shows(self, due: Version, envelope: Document) -> None:
        """The envelope is that of this version."""
        assert {name: envelope[f"{name}_state"] for name in DIMENSIONS} == due.states
        hidden = due.erased or due.states["availability"] in ("redacted", "deleted")
        assert envelope["canonical_content"] == (ERASED if hidden else due.content)
        assert envelope["sequence"] == due.sequence

    @initialize(validations=st.lists(VALIDATIONS, min_size=4, max_size=4), crashes=st.sampled_from([0, 0, 0, 1]))
    def begin(self, validations: list[str], crashes: int) -> None:
        """A scope with something in it: four of the five objects, and a relationship; one in four sees a crash."""
        self.crashes_left = crashes
        for number, validation in enumerate(validations):
            self.perform("create", self.creating(f"obj:{number}", number, validation))
        self.relate("rel:0", "obj:0", "obj:1", 1)
        held = {"dimension": "retention", "target_state": "legal_hold", "policy_basis": "test"}
        self.perform("transition", {**self.about("obj:3", "current"), **held})
        self.perform("delete", {**self.about("obj:3", "current"), "policy_basis": "test"})

    @rule(object_id=OBJECTS, index=st.integers(0, 20))
    def move(self, object_id: str, index: int) -> None:
        """A transition along an edge that is free."""
        head = self.model.head(object_id)
        if head is not None:
            free = [(name, to) for name, at in head.states.items() for was, to in sorted(FREE_EDGES) if was == at]
            dimension, target = free[index % len(free)]
            moved = {"dimension": dimension, "target_state": target, "policy_basis": "test"}
            self.perform("transition", {**self.about(object_id, "current"), **moved})

    @rule(object_id=OBJECTS, n=NUMBERS, validation=VALIDATIONS)
    def create(self, object_id: str, n: int, validation: str) -> None:
        self.perform("create", self.creating(object_id, n, validation))

    @rule(kind=KINDS, object_id=OBJECTS, which=EXPECTED, n=NUMBERS, states=STATES)
    def change(self, kind: str, object_id: str, which: str, n: int, states: tuple[str, str]) -> None:
        self.perform(kind, self.document(kind, object_id, which, n, states))

    @rule(object_id=OBJECTS, which=EXPECTED, paths=st.sampled_from([None, ["/name"], ["/n", "/name"]]))
    def redact(self, object_id: str, which: str, paths: list[str] | None) -> None:
        head = self.model.head(object_id)
        if paths and head is not None and isinstance(head.content, dict):
            paths = [path for path in paths if path[1:] in head.content]
        target: Document = {"paths": paths} if paths else {"whole": True}
        self.perform("redact", {**self.about(object_id, which), "policy_basis": "test", "redaction_target": target})

    @rule(relationship_id=RELATIONSHIPS, source=OBJECTS, other=OBJECTS, n=NUMBERS)
    def relate(self, relationship_id: str, source: str, other: str, n: int) -> None:
        members = {"relationship_type": "supports", "directionality": "directed", "provenance": PROVENANCE}
        ends = {"source_object_id": source, "target_object_id": other}
        self.perform("relate", {**ends, **members, "relationship_id": relationship_id, "canonical_content": {"n": n}})

    @rule(relationship_id=RELATIONSHIPS, which=EXPECTED, n=NUMBERS)
    def relate_again(self, relationship_id: str, which: str, n: int) -> None:
        about = self.about(relationship_id, which)
        self.perform("relate", {**about, "provenance": PROVENANCE, "canonical_content": {"n": n}})

    @rule(relationship_id=RELATIONSHIPS, which=EXPECTED, state=st.sampled_from([*DIMENSIONS["lifecycle"], "deleted"]))
    def change_relationship(self, relationship_id: str, which: str, state: str) -> None:
        about = self.about(relationship_id, which)
        if state == "deleted":
            self.perform("delete", {**about, "policy_basis": "test"})
        else:
            moved = {"dimension": "lifecycle", "target_state": state, "policy_basis": "test"}
            self.perform("transition", {**about, **moved})

    @rule(
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

    @precondition(lambda self: self.sent)
    @rule(index=st.integers(0), by_key=st.booleans())
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

    @precondition(lambda self: any(sent.answer.code is None for sent in self.sent))
    @rule(index=st.integers(0))
    def send_other_content(self, index: int) -> None:
        done = [sent for sent in self.sent if (made := self.made(sent)) is not None and not made.erased]
        if done:
            sent = done[index % len(done)]
            other = {**sent.document, "provenance": {"activity": "something else"}}
            assert self.service.call(sent.operation, other, sent.key).code == "duplicate_operation"

    @precondition(lambda self: any(sent.answer.code not in UNSTORED for sent in self.sent))
    @rule(index=st.integers(0))
    def look_up(self, index: int) -> None:
        decided = [sent for sent in self.sent if sent.answer.code not in UNSTORED]
        sent = decided[index % len(decided)]
        about = {"scope_id": self.scope, "operation_id": sent.document["operation_id"]}
        found = self.service.call("get_operation", about).document
        if sent.answer.code is None:
            assert found["state"] == "committed", found
        else:
            assert (found["state"], found["outcome"]) == ("failed", sent.answer.document)

    @precondition(lambda self: self.crashes_left > 0 and len(self.sent) > 4)
    @rule(
        victim=st.sampled_from(["write", "write", "postgres", "query"]),
        delay_ms=st.floats(0, 12),
        kind=KINDS,
        object_id=OBJECTS,
        n=NUMBERS,
        states=STATES,
    )
    def crash(
        self, victim: Target, delay_ms: float, kind: str, object_id: str, n: int, states: tuple[str, str]
    ) -> None:
        """A process dies in the middle of an operation; the look-up tells what became of it, and that is final."""
        self.crashes_left -= 1
        document = self.document(kind, object_id, "current", n, states)
        request, key = self.named(document)
        trial = self.model.copy()
        due = self.predicted(trial, kind, document)
        answer = self.service.crash_during(victim, delay_ms / 1000, kind, request, key)
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

    def ask(self, operation: str, **members: Any) -> Answer:
        return self.service.call(operation, {"scope_id": self.scope, **members})

    def check_read(self, version: Version | None, **members: Any) -> None:
        answer = self.ask("read", **members)
        refusal = self.model.refusal(version)
        assert answer.code == refusal, (version, answer)
        if version is None or refusal is not None:
            return
        due = version
        assert answer.document["envelope"]["version_id"] == due.version_id
        self.shows(due, answer.document["envelope"])

    @rule(object_id=OBJECTS)
    def read(self, object_id: str) -> None:
        self.check_read(self.model.head(object_id), object_id=object_id)

    @rule(object_id=OBJECTS, index=st.integers(0))
    def read_version(self, object_id: str, index: int) -> None:
        versions = self.model.subjects.get(object_id)
        if versions:
            version = versions[index % len(versions)]
            self.check_read(version, object_id=object_id, version_id=version.version_id)

    @rule(object_id=OBJECTS, index=st.integers(0))
    def read_as_of(self, object_id: str, index: int) -> None:
        position = index % (len(self.model.ledger) + 1)
        at = {"ledger_sequence": position}
        self.check_read(self.model.at(object_id, position), object_id=object_id, as_of=at)

    @rule(object_id=OBJECTS)
    def history(self, object_id: str) -> None:
        answer = self.ask("inspect_history", object_id=object_id, pagination={"limit": 1000})
        versions = self.model.subjects.get(object_id)
        if versions is None:
            assert answer.code == "object_not_found"
            return
        assert [event["event_type"] for event in answer.document["events"]] == [one.event for one in versions]
        for version, envelope in zip(versions, answer.document["versions"], strict=True):
            self.shows(version, envelope)

    @rule(trust=st.sampled_from(["trusted", "working"]), n=st.none() | NUMBERS, index=st.none() | st.integers(0))
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

    def check_ledger(self) -> None:
        """The whole ledger is the model's, and its chain holds."""
        answer = self.ask("inspect_history", after_sequence=0, pagination={"limit": 1000})
        events = answer.document["events"]
        subjects = [event.get("object_id") or event.get("relationship_id") for event in events]
        kinds = [event["event_type"] for event in events]
        assert list(zip(kinds, subjects, strict=True)) == self.model.ledger
        assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
        assert self.ask("verify_ledger").document["ok"]

    def teardown(self) -> None:
        self.check_ledger()
