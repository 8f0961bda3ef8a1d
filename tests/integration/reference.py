"""A small model of the specification: what a scope holds after any sequence of operations, without any storage.

It is written from the requirements, not from the product, and shares no code with it. Version ids are the service's to
choose, so the model learns them from answers; everything else it predicts.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

Document = dict[str, Any]
ERASED = {"tombstone": True}
PROMOTED = "the relationship of a promotion"
"""Its id is the service's to choose."""
DIMENSIONS = {
    "lifecycle": ("scratch", "candidate", "active", "superseded", "deprecated", "archived"),
    "validation": ("unverified", "corroborated", "disputed", "rejected"),
    "availability": ("available", "partially_redacted", "redacted", "deleted"),
    "retention": ("retained", "expired", "pending_deletion", "legal_hold"),
}
FREE_EDGES = {
    ("scratch", "candidate"),
    ("scratch", "archived"),
    ("candidate", "active"),
    ("candidate", "deprecated"),
    ("candidate", "archived"),
    ("active", "superseded"),
    ("active", "deprecated"),
    ("active", "archived"),
    ("superseded", "archived"),
    ("superseded", "deprecated"),
    ("deprecated", "archived"),
    ("archived", "deprecated"),
    ("unverified", "corroborated"),
    ("unverified", "disputed"),
    ("unverified", "rejected"),
    ("corroborated", "disputed"),
    ("corroborated", "rejected"),
    ("disputed", "corroborated"),
    ("disputed", "rejected"),
    ("rejected", "disputed"),
    ("retained", "expired"),
    ("retained", "pending_deletion"),
    ("retained", "legal_hold"),
    ("expired", "retained"),
    ("expired", "pending_deletion"),
    ("expired", "legal_hold"),
    ("pending_deletion", "retained"),
    ("pending_deletion", "legal_hold"),
    ("legal_hold", "retained"),
    ("legal_hold", "expired"),
    ("legal_hold", "pending_deletion"),
}
"""Edges that need no override (P92 to P98); a scope without a policy opens no other."""
TRUSTED = {"lifecycle": "active", "availability": "available", "retention": "retained", "validation": "corroborated"}


class Refused(Exception):
    """The operation is refused with this code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Version:
    """One version. `erased` once a later operation took its content away."""

    subject: str
    sequence: int
    ledger_sequence: int
    states: dict[str, str]
    content: Any
    event: str
    version_id: str = ""
    erased: bool = False

    @property
    def hidden(self) -> bool:
        """Whether a read of it is refused."""
        return self.erased or self.states["availability"] in ("redacted", "deleted")


@dataclass
class Reference:
    """One scope."""

    subjects: dict[str, list[Version]] = field(default_factory=dict)
    ledger: list[tuple[str, str]] = field(default_factory=list)
    """Event type and subject, in order."""
    ends: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Source, target and type of each relationship."""
    notes: set[str] = field(default_factory=set)
    """The objects that are working memory."""

    def apply(self, operation: str, document: Mapping[str, Any]) -> Version:
        """Carries the operation out; Refused, and nothing changed, where the specification refuses it."""
        decide = getattr(self, f"_{operation}")
        version: Version = decide(document)
        return version

    def copy(self) -> Reference:
        """Another scope with the same history."""
        return copy.deepcopy(self)

    def head(self, subject: str) -> Version | None:
        """The current version."""
        versions = self.subjects.get(subject)
        return versions[-1] if versions else None

    def at(self, subject: str, position: int) -> Version | None:
        """The version that was current at a ledger position."""
        found = [version for version in self.subjects.get(subject, ()) if version.ledger_sequence <= position]
        return found[-1] if found else None

    def refusal(self, version: Version | None) -> str | None:
        """The code with which a read of this version is refused; None where it is shown."""
        if version is None:
            return "object_not_found"
        if not version.hidden:
            return None
        head = self.subjects[version.subject][-1]
        return "object_deleted" if head.states["availability"] == "deleted" else "object_redacted"

    def found(
        self, states: Mapping[str, Container[str]], position: int | None = None, n: int | None = None
    ) -> list[str]:
        """The objects of a query, newest first: in these states, as of a position, with content /n."""
        at = len(self.ledger) if position is None else position
        heads = [self.at(subject, at) for subject in self.subjects if subject.startswith("obj:")]
        kept = [
            head
            for head in heads
            if head is not None
            and not (position is not None and head.erased)
            and all(head.states[name] in passing for name, passing in states.items())
            and (n is None or (not head.hidden and isinstance(head.content, dict) and head.content.get("n") == n))
        ]
        return [head.subject for head in sorted(kept, key=lambda head: -head.ledger_sequence)]

    def _made(self, subject: str, event: str, states: dict[str, str], content: Any) -> Version:
        versions = self.subjects.setdefault(subject, [])
        self.ledger.append((event, subject))
        version = Version(subject, len(versions) + 1, len(self.ledger), dict(states), content, event)
        versions.append(version)
        return version

    def _expected(self, document: Mapping[str, Any]) -> Version:
        """P69, S12: absent, deleted, stale; in this order."""
        head = self.head(document.get("object_id") or document["relationship_id"])
        if head is None:
            raise Refused("object_not_found")
        if head.states["availability"] == "deleted":
            raise Refused("object_deleted")
        if head.version_id != document["expected_version_id"]:
            raise Refused("version_conflict")
        return head

    def _create(self, document: Mapping[str, Any]) -> Version:
        if document["object_id"] in self.subjects:
            raise Refused("version_conflict")
        states = {**TRUSTED, "validation": document["validation_state"]}
        if document["object_type"] == "working_memory":
            states["lifecycle"] = "scratch"
            self.notes.add(document["object_id"])
        return self._made(document["object_id"], "object_created", states, document["canonical_content"])

    def _update(self, document: Mapping[str, Any]) -> Version:
        head = self._changeable(document)
        if "restore_version_id" in document:
            return self._made(head.subject, "object_updated", head.states, self._restored(head, document))
        if "canonical_content" not in document:
            return self._made(head.subject, "provenance_updated", head.states, head.content)
        return self._made(head.subject, "object_updated", head.states, document["canonical_content"])

    def _restored(self, head: Version, document: Mapping[str, Any]) -> Any:
        """The content of a past version; Refused where that was erased or never was."""
        wanted = document["restore_version_id"]
        found = [version for version in self.subjects[head.subject] if version.version_id == wanted]
        if not found:
            raise Refused("object_not_found")
        if found[0].erased:
            raise Refused("object_redacted")
        return found[0].content

    def _promote(self, document: Mapping[str, Any]) -> Version:
        """S1 to S3: the new object; the source's version and two more entries follow it in the ledger."""
        source = self._changeable({**document, "object_id": document["source_object_id"]})
        if source.subject not in self.notes:
            raise Refused("invalid_request")
        if source.states["lifecycle"] not in ("scratch", "candidate"):
            raise Refused("invalid_state_transition")
        target = document["target_object_id"]
        if target in self.subjects:
            raise Refused("version_conflict")
        states = {**TRUSTED, "validation": "unverified"}
        made = self._made(target, "object_created", states, document["target_canonical_content"])
        superseded = {**source.states, "lifecycle": "superseded"}
        self._made(source.subject, "lifecycle_transitioned", superseded, source.content)
        self.ledger += [("relationship_created", PROMOTED), ("working_memory_promoted", source.subject)]
        return made

    def _changeable(self, document: Mapping[str, Any]) -> Version:
        head = self._expected(document)
        if head.states["availability"] == "redacted":
            raise Refused("object_redacted")
        if head.states["retention"] == "pending_deletion":
            raise Refused("retention_restriction")
        return head

    def _transition(self, document: Mapping[str, Any]) -> Version:
        dimension, target = document["dimension"], document["target_state"]
        if (dimension, target) == ("availability", "partially_redacted"):
            raise Refused("invalid_request")
        if (dimension, target) == ("availability", "deleted"):
            return self._delete(document)
        if (dimension, target) == ("availability", "redacted"):
            return self._redact({**document, "redaction_target": {"whole": True}})
        head = self._expected(document)
        current = head.states[dimension]
        if (dimension, current, target) == ("availability", "partially_redacted", "available"):
            raise Refused("invalid_request")  # the content that goes back is missing
        if target not in DIMENSIONS[dimension] or (current, target) not in FREE_EDGES:
            raise Refused("invalid_state_transition")
        states = {**head.states, dimension: target}
        return self._made(head.subject, f"{dimension}_transitioned", states, head.content)

    def _removable(self, document: Mapping[str, Any]) -> Version:
        head = self._expected(document)
        if head.states["retention"] == "legal_hold":
            raise Refused("legal_hold")
        return head

    def _erase(self, subject: str) -> None:
        for version in self.subjects[subject]:
            version.content, version.erased = ERASED, True

    def _delete(self, document: Mapping[str, Any]) -> Version:
        head = self._removable(document)
        self._erase(head.subject)
        return self._made(head.subject, "object_deleted", {**head.states, "availability": "deleted"}, ERASED)

    def _redact(self, document: Mapping[str, Any]) -> Version:
        head = self._removable(document)
        if head.states["availability"] == "redacted":
            raise Refused("object_redacted")
        if "paths" not in document["redaction_target"]:
            self._erase(head.subject)
            return self._made(head.subject, "object_redacted", {**head.states, "availability": "redacted"}, ERASED)
        kept = {
            name: value
            for name, value in head.content.items()
            if f"/{name}" not in document["redaction_target"]["paths"]
        }
        self._erase(head.subject)
        return self._made(head.subject, "object_redacted", {**head.states, "availability": "partially_redacted"}, kept)

    def _relate(self, document: Mapping[str, Any]) -> Version:
        if "expected_version_id" in document:
            head = self._changeable(document)
            content = document.get("canonical_content", head.content)
            return self._made(head.subject, "relationship_updated", head.states, content)
        for end in (document["source_object_id"], document["target_object_id"]):
            head_of_end = self.head(end)
            if head_of_end is None:
                raise Refused("object_not_found")
            if head_of_end.states["availability"] == "deleted":
                raise Refused("object_deleted")
        subject = document["relationship_id"]
        if subject in self.subjects:
            raise Refused("version_conflict")
        ends = (document["source_object_id"], document["target_object_id"], document["relationship_type"])
        if any(self._is_active(other) for other, theirs in self.ends.items() if theirs == ends):
            raise Refused("relationship_conflict")
        self.ends[subject] = ends
        states = {**TRUSTED, "validation": "unverified"}
        return self._made(subject, "relationship_created", states, document.get("canonical_content"))

    def _is_active(self, subject: str) -> bool:
        head = self.subjects[subject][-1]
        return head.states["lifecycle"] == "active" and head.states["availability"] != "deleted"
