"""A new version: its stored halves, its ledger events, its envelope and its rows.

Every byte form is made once here: the event bytes are hashed, stored and published as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pamspec_common.bus import ledger_subject
from pamspec_common.envelope import SPEC_VERSION, envelope_bytes
from pamspec_common.instants import wire
from pamspec_common.ledger import entry_hash, keyed_digest, version_digest
from pamspec_common.strict_json import dumps
from pamspec_write.documents import Actor, Provenance, plain
from pamspec_write.model.facts import Document, Head, Located, ScopeState
from pamspec_write.model.rows import HEAD_SEQ, Rows

_ID_FIELDS = ("actor_id", "actor_kind", "on_behalf_of_actor_id", "delegation_id")
_PROVENANCE_TEXTS = ("source_ref", "evidence_refs", "transformation_parent", "source_confidence", "integrity_ref")


@dataclass(frozen=True, slots=True)
class Entropy:
    """Where ids and salts come from; tests hand in their own."""

    mint: Any
    salt: Any


@dataclass(slots=True)
class Draft:
    """A version about to be made; `previous` is the head that it follows."""

    object_id: str
    kind: str
    object_type: str
    schema_id: str | None
    states: dict[str, str]
    times: dict[str, datetime]
    content: bytes | None
    projection: str | None
    """The text of a jsonb projection where the content itself cannot be one; None: the content serves."""
    provenance: Document
    private: Document
    extra: Document
    previous: Head | None
    actor: Actor
    operation_hash: bytes


@dataclass(frozen=True, slots=True)
class Made:
    """A version that was made."""

    head: Head
    envelope: bytes
    digest: str


def actor_ids(actor: Actor) -> dict[str, str]:
    """The fields of an actor that may stand in events and survive an erasure."""
    found: dict[str, str] = {"actor_id": actor.actor_id, "actor_kind": actor.actor_kind}
    if actor.on_behalf_of_actor_id is not None:
        found["on_behalf_of_actor_id"] = actor.on_behalf_of_actor_id
    if actor.delegation_id is not None:
        found["delegation_id"] = actor.delegation_id
    return found


def actor_document(actor: Actor) -> Document:
    """The whole actor as it stands in an envelope."""
    if actor.display_name is None and actor.attestation is None:
        return dict(actor_ids(actor))
    return plain(actor)


def provenance_document(provenance: Provenance, actor: Actor, provenance_id: str, recorded_at: str) -> Document:
    """The provenance as stored: the service's actor and time, the client's account of the rest (decisions 14)."""
    document: Document = {
        "provenance_id": provenance_id,
        "actor": actor_document(actor),
        "activity": provenance.activity,
        "recorded_at": recorded_at,
    }
    for name in _PROVENANCE_TEXTS:
        value = getattr(provenance, name)
        if value is not None:
            document[name] = value
    if provenance.observed_at is not None:
        document["observed_at"] = wire(provenance.observed_at)
    return document


def make_version(state: ScopeState, rows: Rows, draft: Draft, now: datetime, entropy: Entropy) -> Made:
    """Add a version's rows; its event is added by `add_event` right after, at the next sequence."""
    sequence = state.last_seq + 1
    at = wire(now)
    previous = draft.previous
    version_id: str = entropy.mint("ver")
    salt: bytes = entropy.salt()
    version_seq = 1 if previous is None else previous.version_seq + 1
    ids = actor_ids(draft.actor)
    private = dumps(draft.private)
    metadata_document: Document = {
        "spec_version": SPEC_VERSION,
        "object_id": draft.object_id,
        "version_id": version_id,
        "scope_id": state.ref.scope_id,
        "object_type": draft.object_type,
        **draft.states,
        **{name: wire(value) for name, value in draft.times.items()},
        "committed_at": at,
        "recorded_at": at,
        "sequence": version_seq,
        "actor": ids,
        "provenance": {
            "provenance_id": draft.provenance["provenance_id"],
            "actor": ids,
            "activity": "erased",
            "recorded_at": draft.provenance["recorded_at"],
        },
        "private_digest": keyed_digest(salt, "private", private),
        **draft.extra,
    }
    if draft.schema_id is not None:
        metadata_document["schema_id"] = draft.schema_id
    if draft.content is not None:
        metadata_document["content_digest"] = keyed_digest(salt, "content", draft.content)
    metadata = dumps(metadata_document)
    head = Head(
        object_id=draft.object_id,
        kind=draft.kind,
        version_id=version_id,
        version_seq=version_seq,
        ledger_seq=sequence,
        object_type=draft.object_type,
        schema_id=draft.schema_id,
        created_by=draft.actor.actor_id if previous is None else previous.created_by,
        metadata=metadata,
        content=draft.content,
        private=private,
        **draft.states,
    )
    _add_rows(state, rows, draft, head, salt, now)
    state.heads[draft.object_id] = head
    state.made[sequence] = draft.object_id
    return Made(head, envelope_bytes(metadata, draft.content, private), version_digest(metadata))


def _add_rows(state: ScopeState, rows: Rows, draft: Draft, head: Head, salt: bytes, now: datetime) -> None:
    key, sequence, times = state.ref.scope_key, head.ledger_seq, draft.times
    rows.versions.append(
        [key, sequence, head.object_id, head.kind.encode(), head.version_seq, head.version_id, head.metadata]
    )
    rows.privates[key, sequence] = [key, sequence, draft.operation_hash, salt, head.content, head.private]
    projection = draft.projection
    if projection is None and head.content is not None:
        projection = head.content.decode()
    rows.spans[key, sequence] = [
        key,
        sequence,
        HEAD_SEQ,
        head.object_id,
        head.kind.encode(),
        head.version_seq,
        head.version_id,
        head.object_type,
        head.schema_id,
        head.lifecycle_state,
        head.availability_state,
        head.retention_state,
        head.validation_state,
        draft.actor.actor_id,
        draft.provenance["provenance_id"],
        times.get("observed_at"),
        times.get("asserted_at"),
        times.get("valid_from"),
        times.get("valid_until"),
        now,
        head.created_by,
        projection,
    ]
    if draft.previous is not None:
        rows.end_span(key, draft.previous.ledger_seq, sequence)


def version_facts(head: Head, digest: str) -> Document:
    """The payload that every version's event carries (contracts/events.yaml)."""
    facts: Document = {
        **head.states(),
        "object_type": head.object_type,
        "version_digest": digest,
        "version_sequence": head.version_seq,
    }
    if head.version_seq == 1:
        facts["created"] = True
    return facts


def add_event(
    state: ScopeState,
    rows: Rows,
    event_type: str,
    *,
    actor: Actor,
    operation_id: str,
    payload: Document,
    now: datetime,
    event_id: str,
    object_id: str | None = None,
    version_id: str | None = None,
    subject_id: str | None = None,
) -> Located:
    """Append an entry to the ledger and the outbox; the chain and the scope's head advance with it."""
    ref = state.ref
    sequence = state.last_seq + 1
    document: Document = {
        "event_id": event_id,
        "operation_id": operation_id,
        "scope_id": ref.scope_id,
        "event_type": event_type,
        "recorded_at": wire(now),
        "sequence": sequence,
        "actor": actor_ids(actor),
        "payload": payload,
    }
    if object_id is not None:
        document["object_id"] = object_id
    if version_id is not None:
        document["version_id"] = version_id
    event = dumps(document)
    state.last_hash = entry_hash(state.last_hash, event)
    state.last_seq = sequence
    rows.ledger.append(
        [ref.scope_key, sequence, event_id, event_type, subject_id or object_id, now, event, state.last_hash]
    )
    subject = ledger_subject(ref.partition, ref.tenant_token, ref.scope_token, event_type)
    rows.outbox.append([ref.partition, ref.scope_key, sequence, event_id, state.ledger_epoch, subject, event])
    return Located(event_id, sequence)
