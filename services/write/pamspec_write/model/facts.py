"""What decisions are made from: the state of scopes, heads and records, as one batch sees and changes it.

What a batch makes by the hundred is a msgspec struct: a frozen dataclass takes four times as long to make.
The overlay starts as the rows that were read under the scopes' locks; each decision changes it, so the next command of
the batch sees what the one before it will have committed.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import orjson
from msgspec import structs

from pamspec_common.calls import Answer
from pamspec_common.delegation.grants import Grant
from pamspec_common.quotas import NO_QUOTAS, Quotas
from pamspec_common.scope_policy import ScopePolicy
from pamspec_write.model.content import ContentSchema
from pamspec_write.model.rules import NO_RULES, ScopeRules


class ScopeRef(msgspec.Struct, frozen=True):
    """What never changes of a scope."""

    scope_key: int
    tenant_id: str
    scope_id: str
    tenant_token: str
    scope_token: str
    partition: int
    evaluation: bool = False
    """Whether it is an evaluation scope."""


EdgeKey = tuple[str, str, str, str]
"""Source, target, relationship_type, and the target's scope, empty where it is the relationship's own."""


def edge_key(source: str, target: str, label: str, target_scope_id: str | None) -> EdgeKey:
    """What two active relationships of a scope must not have in common."""
    return source, target, label, target_scope_id or ""


class Ends(msgspec.Struct, frozen=True):
    """What a relationship joins."""

    source: str
    target: str
    target_scope_id: str | None
    directionality: str


class Head(msgspec.Struct, frozen=True):
    """The current version of an object."""

    object_id: str
    kind: str
    version_id: str
    version_seq: int
    ledger_seq: int
    object_type: str
    schema_id: str | None
    lifecycle_state: str
    availability_state: str
    retention_state: str
    validation_state: str
    created_by: str
    metadata: bytes
    content: bytes | None
    private: bytes | None
    ends: Ends | None = None
    """Of a relationship; its object_type is its relationship_type."""

    def memory(self) -> dict[str, str]:
        """What rules may use of it."""
        return {"object_type": self.object_type, "creator": self.created_by, **self.states()}

    def states(self) -> dict[str, str]:
        """The four states by field name."""
        return {
            "lifecycle_state": self.lifecycle_state,
            "availability_state": self.availability_state,
            "retention_state": self.retention_state,
            "validation_state": self.validation_state,
        }


class Record(msgspec.Struct, frozen=True):
    """What is remembered of an operation: of this batch (`answer` given) or of the store."""

    operation_hash: bytes
    operation: str
    operation_id: str
    state: str
    salt: bytes | None
    fingerprint: bytes | None
    status: int
    ledger_seq: int | None
    last_seq: int | None
    stored: bytes | None
    answer: Answer | None = None
    metadata: bytes | None = None
    content: bytes | None = None
    private: bytes | None = None
    head_availability: str | None = None
    event_id: str | None = None


class SourceRecord(msgspec.Struct, frozen=True):
    """What is remembered of a source event."""

    operation_hash: bytes
    salt: bytes | None
    fingerprint: bytes | None


class Run(msgspec.Struct, frozen=True):
    """An evaluation run: the clock and the seed that a sealed snapshot gave it."""

    evaluation_run_id: str
    start_at: datetime | None
    tick: timedelta
    seed: int | None


@dataclass(slots=True)
class Evaluations:
    """What a batch knows of a tenant's snapshots."""

    runs: dict[str, Run] = field(default_factory=dict)
    """By evaluation_run_id: the runs that have a clock or a seed."""
    snapshots: dict[str, int] = field(default_factory=dict)
    """The scope_key of those that exist, by snapshot_id."""
    members: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    """What rules may use of the objects and relationships that exist, by (scope_key, id)."""


class PastVersion(msgspec.Struct, frozen=True):
    """Where a version of an object stands; none of this ever changes."""

    version_id: str
    object_id: str
    version_seq: int
    ledger_seq: int


class OldContent(msgspec.Struct, frozen=True):
    """What a past version of an object held; `content` is None once it was erased."""

    object_id: str
    ledger_seq: int
    schema_id: str | None
    availability_state: str
    content: bytes | None


class Tally(msgspec.Struct, frozen=True):
    """When an event last told of uses of a grant without a limit, and how many there were since then."""

    told_at: datetime
    untold: int


class Stored(msgspec.Struct):
    """What is stored: objects and relationships that are not deleted, versions, bytes of content that is not erased."""

    objects: int = 0
    versions: int = 0
    content_bytes: int = 0


@dataclass(slots=True)
class ScopeState:
    """One scope under its lock."""

    ref: ScopeRef
    revision: int
    last_seq: int
    last_hash: bytes
    last_at: datetime
    ledger_epoch: int
    epoch_authz: int
    tenant_epoch: int
    rules_version: int = 0
    stored: Stored = field(default_factory=Stored)
    stored_before: Stored = field(default_factory=Stored)
    """What was stored when the batch began."""
    quotas_version: int = 0
    quotas_text: str | None = None
    quotas: Quotas = NO_QUOTAS
    tenant_stored: Stored | None = None
    """What the tenant has stored, where that is bounded; shared by the scopes of a tenant."""
    rules: ScopeRules = NO_RULES
    schemas: dict[str, ContentSchema] = field(default_factory=dict)
    """Registered schemas by schema_id: those that the batch may need."""
    heads: dict[str, Head] = field(default_factory=dict)
    records: dict[bytes, Record] = field(default_factory=dict)
    keys: dict[bytes, bytes] = field(default_factory=dict)
    sources: dict[bytes, SourceRecord] = field(default_factory=dict)
    past: dict[str, PastVersion] = field(default_factory=dict)
    """The stored versions that commands name, by version_id."""
    old: dict[str, OldContent] = field(default_factory=dict)
    """What versions held whose content comes back, by version_id."""
    made: dict[int, str] = field(default_factory=dict)
    """ledger_seq -> object_id of the versions of this batch."""
    evaluations: Evaluations | None = None
    """Read only for operations of evaluations; shared by the scopes of a tenant."""
    others: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    """object_id -> kind, and what rules may use, of what must be there; what is in `heads` goes before."""
    edges: dict[EdgeKey, str] = field(default_factory=dict)
    """The active relationship that joins two objects, of those that were looked up."""

    grants: dict[str, Grant] = field(default_factory=dict)
    """The grants that were made here, of those that the batch needs, by delegation_id."""
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    """(delegation_id, operation) -> the uses of grants without a limit that events have yet to tell of."""

    def put(self, head: Head) -> None:
        """A version of this batch is the head of its object."""
        self.heads[head.object_id] = head
        self.made[head.ledger_seq] = head.object_id
        ends = head.ends
        if ends is None:
            return
        edge = edge_key(ends.source, ends.target, head.object_type, ends.target_scope_id)
        if head.lifecycle_state == "active" and head.availability_state != "deleted":
            self.edges[edge] = head.object_id
        elif self.edges.get(edge) == head.object_id:
            del self.edges[edge]

    def count(self, head: Head, previous: Head | None) -> None:
        """A version was added."""
        deleted = head.availability_state == "deleted"
        objects = 1 if previous is None else -int(deleted and previous.availability_state != "deleted")
        for stored in (self.stored, self.tenant_stored):
            if stored is not None:
                stored.objects += objects
                stored.versions += 1
                stored.content_bytes += len(head.content or b"")

    @property
    def policy(self) -> ScopePolicy:
        """The policy that decisions here go by."""
        return self.rules.policy

    def forget(self, object_id: str, availability: str, chosen: Set[int] | None = None) -> None:
        """Versions of the object were erased, all or those made at the `chosen` ledger sequences: what the overlay
        remembers of them is erased, as it is in the store. `availability` is the object's own now.
        """
        for hash_, record in self.records.items():
            if record.ledger_seq is None or (chosen is not None and record.ledger_seq not in chosen):
                continue
            owner = self.made.get(record.ledger_seq) or (id_of(record.metadata) if record.metadata else None)
            if owner == object_id:
                self.records[hash_] = structs.replace(
                    record,
                    salt=None,
                    fingerprint=None,
                    answer=None,
                    content=None,
                    private=None,
                    head_availability=availability,
                )
                for source, known in self.sources.items():
                    if known.operation_hash == hash_:
                        self.sources[source] = structs.replace(known, salt=None, fingerprint=None)

        for version_id, old in self.old.items():
            if old.object_id == object_id and (chosen is None or old.ledger_seq in chosen):
                self.old[version_id] = structs.replace(old, content=None)

    def copy(self) -> ScopeState:
        """A state that can be changed and thrown away."""
        return replace(
            self,
            stored=structs.replace(self.stored),
            heads=dict(self.heads),
            records=dict(self.records),
            keys=dict(self.keys),
            sources=dict(self.sources),
            old=dict(self.old),
            made=dict(self.made),
            grants=dict(self.grants),
            tallies=dict(self.tallies),
            edges=dict(self.edges),
        )


class Located(msgspec.Struct, frozen=True):
    """An event's place in its ledger."""

    event_id: str
    sequence: int


Document = dict[str, Any]

ID_MEMBER = {"o": "object_id", "r": "relationship_id", "d": "delegation_id"}
"""The member of envelopes, events and answers that names what a version is of, by its kind."""


def id_of(metadata: bytes) -> str:
    """The id of what a stored version is of."""
    stored: Document = orjson.loads(metadata)
    found: str = next(stored[member] for member in ID_MEMBER.values() if member in stored)
    return found
