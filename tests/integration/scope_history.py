"""One scope of a real service, what was sent to it, and the reference model that its answers are held against."""

from __future__ import annotations

import itertools
import secrets
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from tests.integration.reference import DIMENSIONS, ERASED, Reference, Refused, Version
from tests.integration.stateful_service import Answer, Document, Service

PROVENANCE = {"activity": "test"}
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


class ScopeHistory(RuleBasedStateMachine):
    """One scope from its making on."""

    service: ClassVar[Service]

    def __init__(self) -> None:
        super().__init__()
        self.scope = self.service.new_scope()
        self.model = Reference()
        self.sent: list[Sent] = []
        self.crashes_left, self.may_crash = 0, False
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

    def agree(self, due: Version | Refused, answer: Document, *, further_events: int = 0) -> None:
        """The answer is the one that the model predicts; its version's id is learned.

        A position is that of the operation's last event: of the version's own, or so many further on.
        """
        if isinstance(due, Refused):
            assert answer.get("error", {}).get("code") == due.code, (due.code, answer)
            return
        assert "error" not in answer, (due, answer)
        assert (answer["sequence"], answer["ledger_sequence"] - further_events) == (due.sequence, due.ledger_sequence)
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

    def check_ledger(self) -> None:
        """The whole ledger is the model's, and its chain holds."""
        answer = self.ask("inspect_history", after_sequence=0, pagination={"limit": 1000})
        events = answer.document["events"]
        subjects = [event.get("object_id") or event.get("relationship_id") for event in events]
        kinds = [event["event_type"] for event in events]
        assert list(zip(kinds, subjects, strict=True)) == self.model.ledger
        assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
        assert self.ask("verify_ledger").document["ok"]
