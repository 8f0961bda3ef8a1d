"""A new version: its stored halves, its ledger events, its envelope and its rows.

Every byte form is made once here: the event bytes are hashed, stored and published as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from pamspec_common.documents import Actor
from pamspec_common.envelope import SPEC_VERSION, TOMBSTONE
from pamspec_common.errors import InvalidRequest
from pamspec_common.instants import wire
from pamspec_common.ledger import entry_hash, keyed_digest, version_digest
from pamspec_common.strict_json import Fragment, dumps
from pamspec_write.documents.decoding import plain
from pamspec_write.documents.parts import Provenance
from pamspec_write.model.facts import ID_MEMBER, Document, Ends, Head, Located, ScopeState
from pamspec_write.model.rows import HEAD_SEQ, NULL, Row, Rows, or_null, text_or_null

MAX_ENVELOPE = 1280 * 1024
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
    times: dict[str, str]
    content: bytes | None
    projection: str | None
    """The text of a jsonb projection where the content itself cannot be one; None: the content serves."""
    provenance: Document
    private: Document
    extra: Document
    previous: Head | None
    actor: Actor
    operation_hash: bytes
    ends: Ends | None = None
    """Of a relationship; its object_type is its relationship_type."""


class Made(msgspec.Struct, frozen=True):
    """A version that was composed."""

    head: Head
    envelope: bytes
    digest: str
    row: Row
    previous: Head | None


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


def compose(state: ScopeState, draft: Draft, now: str, entropy: Entropy, ahead: int = 1) -> Made:
    """The version that a draft describes, for the ledger sequence that lies `ahead`; nothing is added yet.

    `now` is the commit time in the wire form. InvalidRequest beyond the limit of S20.
    """
    sequence = state.last_seq + ahead
    previous = draft.previous
    version_id: str = entropy.mint("ver")
    salt: bytes = entropy.salt()
    version_seq = 1 if previous is None else previous.version_seq + 1
    public = _public(state, draft, version_id, version_seq, now)
    private = dumps(draft.private)
    remaining = _remaining(draft.provenance, public["actor"])
    metadata = dumps({**public, "provenance": remaining, **_digests(salt, draft.content, private)})
    shown = {**public, **draft.private}
    if draft.kind != "d":
        shown["canonical_content"] = Fragment(draft.content or TOMBSTONE)
    shown.pop("note", None)
    envelope = dumps(shown)
    if len(envelope) > MAX_ENVELOPE:
        raise InvalidRequest(
            f"The envelope would be larger than {MAX_ENVELOPE} bytes; shorten provenance, references or content.",
            details={"limit": MAX_ENVELOPE, "size": len(envelope)},
            status=413,
        )
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
        ends=draft.ends,
        **draft.states,
    )
    return Made(head, envelope, version_digest(metadata), _row(state, draft, head, salt, now), previous)


def add_version(state: ScopeState, rows: Rows, made: Made) -> None:
    """Add a composed version's row; its event is added by `add_event` right after, at the same sequence."""
    head, place = made.head, (state.ref.scope_key, made.head.ledger_seq)
    rows.versions[place] = made.row
    ends = head.ends
    if ends is not None:
        rows.ends[place] = [ends.source, ends.target, or_null(ends.target_scope_id), ends.directionality]
    if made.previous is not None:
        rows.end_span(state.ref.scope_key, made.previous.ledger_seq, head.ledger_seq)
    state.put(head)
    state.count(head, made.previous)


def _public(state: ScopeState, draft: Draft, version_id: str, version_seq: int, now: str) -> Document:
    """What is never erased of a version, but for its provenance."""
    public: Document = {
        "spec_version": SPEC_VERSION,
        ID_MEMBER[draft.kind]: draft.object_id,
        "version_id": version_id,
        "scope_id": state.ref.scope_id,
        **draft.states,
        **draft.times,
        **draft.extra,
        "committed_at": now,
        "recorded_at": now,
        "sequence": version_seq,
        "actor": actor_ids(draft.actor),
    }
    if draft.kind == "o":
        public["object_type"] = draft.object_type
    if draft.ends is not None:
        public.update(_joined(draft.ends, draft.object_type))
        public["directionality"] = draft.ends.directionality
        if draft.ends.target_scope_id is not None:
            # The schema requires one; what was said stands in the erasable half until it is erased (decisions 17).
            public["policy_basis"] = "erased"
    if draft.schema_id is not None:
        public["schema_id"] = draft.schema_id
    return public


def _joined(ends: Ends, label: str) -> Document:
    """What a relationship joins, as its envelope and its events say it."""
    found: Document = {
        "relationship_type": label,
        "source_object_id": ends.source,
        "target_object_id": ends.target,
    }
    if ends.target_scope_id is not None:
        found["target_scope_id"] = ends.target_scope_id
    return found


def _remaining(provenance: Document, actor: dict[str, str]) -> Document:
    """What an erasure leaves of a provenance (S21, decisions 17)."""
    return {
        "provenance_id": provenance["provenance_id"],
        "actor": actor,
        "activity": "erased",
        "recorded_at": provenance["recorded_at"],
    }


def _digests(salt: bytes, content: bytes | None, private: bytes) -> Document:
    found = {"private_digest": keyed_digest(salt, "private", private)}
    if content is not None:
        found["content_digest"] = keyed_digest(salt, "content", content)
    return found


def _row(state: ScopeState, draft: Draft, head: Head, salt: bytes, now: str) -> list[str]:
    times = draft.times
    return [
        str(state.ref.scope_key),
        str(head.ledger_seq),
        HEAD_SEQ,
        head.object_id,
        head.kind,
        str(head.version_seq),
        head.version_id,
        head.metadata.decode(),
        draft.operation_hash.hex(),
        salt.hex(),
        text_or_null(head.content),
        text_or_null(head.private),
        head.object_type,
        or_null(head.schema_id),
        head.lifecycle_state,
        head.availability_state,
        head.retention_state,
        head.validation_state,
        draft.actor.actor_id,
        draft.provenance["provenance_id"],
        times.get("observed_at", NULL),
        times.get("asserted_at", NULL),
        times.get("valid_from", NULL),
        times.get("valid_until", NULL),
        now,
        head.created_by,
        or_null(draft.projection),
    ]


def version_facts(head: Head, digest: str) -> Document:
    """The payload that every version's event carries (contracts/events.yaml)."""
    facts: Document = {
        **head.states(),
        "version_digest": digest,
        "version_sequence": head.version_seq,
    }
    if head.kind == "o":
        facts["object_type"] = head.object_type
    if head.ends is not None:
        facts.update(_joined(head.ends, head.object_type))
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
    now: str,
    event_id: str,
    object_id: str | None = None,
    version_id: str | None = None,
    subject_id: str | None = None,
    kind: str = "o",
) -> Located:
    """Append an entry to the ledger; the chain and the scope's head advance with it.

    `kind` says what `object_id` is the id of.

    The outbox row is made of the ledger row by the statement that writes both.
    """
    ref = state.ref
    sequence = state.last_seq + 1
    document: Document = {
        "event_id": event_id,
        "operation_id": operation_id,
        "scope_id": ref.scope_id,
        "event_type": event_type,
        "recorded_at": now,
        "sequence": sequence,
        "actor": actor_ids(actor),
        "payload": payload,
    }
    if object_id is not None:
        document[ID_MEMBER[kind]] = object_id
    if version_id is not None:
        document["version_id"] = version_id
    event = dumps(document)
    state.last_hash = entry_hash(state.last_hash, event)
    state.last_seq = sequence
    rows.ledger.append(
        [
            str(ref.scope_key),
            str(sequence),
            event_id,
            event_type,
            or_null(subject_id or object_id),
            now,
            event.decode(),
            state.last_hash.hex(),
        ]
    )
    rows.touched.add(ref.scope_key)
    rows.partitions.add(ref.partition)
    return Located(event_id, sequence)
