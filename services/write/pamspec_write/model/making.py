"""Making one change: what every command shares on its way from a draft to versions, events, a record and an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
import orjson

from pamspec_common.calls import Answer
from pamspec_common.delegation.verdicts import denied
from pamspec_common.errors import ObjectNotFound, VersionConflict
from pamspec_common.instants import wire
from pamspec_common.strict_json import dumps
from pamspec_write.documents.parts import Provenance
from pamspec_write.model.commands import Command
from pamspec_write.model.conformity import check_content
from pamspec_write.model.facts import ID_MEMBER, Document, Head, ScopeState
from pamspec_write.model.grants import chain_of, exercise_facts, spend
from pamspec_write.model.permission import memory_of, permit, sees
from pamspec_write.model.projection import carried_projection
from pamspec_write.model.records import ERASING, erasure_id, positions, remember, version_answer
from pamspec_write.model.rows import NO_BASIS, AdministrationRow, ErasureRow, Rows
from pamspec_write.model.rules import ScopeRules
from pamspec_write.model.storage import check_room, growth_of
from pamspec_write.model.versions import (
    Draft,
    Entropy,
    Made,
    add_event,
    add_version,
    compose,
    provenance_document,
    version_facts,
)

RUN_REF = "evaluation-run:"
"""Begins the evidence reference that names the evaluation run of a version (S4)."""
TIME_FIELDS = ("observed_at", "asserted_at", "valid_from", "valid_until")
_CARRIED = ("integrity", "quality_signals", "policy_basis", "granting_actor", "delegated_actor")
"""What a version keeps of the erasable half of the one before, but for content."""
_GRANTED = (
    "granting_actor",
    "delegated_actor",
    "granted_operations",
    "granted_object_types",
    "granted_object_ids",
    "target_scope_id",
    "policy_basis",
    "not_before",
    "not_after",
    "revocable",
    "usage_limit",
)
"""What every version of a grant repeats of its first."""
_NO_END = ("o", None)
_TAKING = frozenset({"delete", "redact"})
_HAVE_ROOM = frozenset({*ERASING, "revoke_delegation"})


@dataclass(slots=True)
class Making:
    """A command being carried out in its scope, at `now` (the commit time in the wire form)."""

    state: ScopeState
    rows: Rows
    command: Command
    now: str
    entropy: Entropy
    states: Mapping[int, ScopeState]
    """Every scope of the batch under its lock, by scope_key."""
    clock: datetime
    """PostgreSQL's clock: the time of an operation's record, whatever the time of the operation is."""

    def version(self, draft: Draft, action: str | None = None) -> Made:
        """Add the version that a draft describes; AccessDenied unless the actor may make it.

        `action` is that of the operation where it is left out. What takes content away is permitted as what the object
        was, everything else as what it becomes.
        """
        self.permit(draft, action or self.command.operation)
        self.check(draft)
        self.check_room([draft])
        made = compose(self.state, draft, self.now, self.entropy)
        add_version(self.state, self.rows, made)
        return made

    def permit(self, draft: Draft, action: str) -> None:
        """Raise AccessDenied unless the actor may make this version."""
        head = draft.previous
        if head is not None and action in _TAKING:
            permit(self.command.rights, action, head.memory())
            return
        if head is None:
            self._check_first(draft)
        creator = draft.actor.actor_id if head is None else head.created_by
        permit(self.command.rights, action, memory_of(draft.object_type, draft.states, creator))

    def _check_first(self, draft: Draft) -> None:
        """Raise AccessDenied where the grant that the command acts under names objects, and not this new one."""
        if draft.kind == "o" and not self.covers("o", draft.object_type):
            raise denied("object_type")

    def covers(self, kind: str, object_type: str) -> bool:
        """Whether the grant that the command acts under, if any, is for such objects."""
        grant = self.command.grant
        if grant is None or kind != "o":
            return True
        types = chain_of(self.states, grant)[-1].terms.object_types
        return types is None or object_type in types

    def check(self, draft: Draft) -> None:
        """Raise InvalidObject for content that breaks its schema; what a redaction cuts out is its own affair."""
        if self.command.operation not in ERASING:
            check_content(self.state, self.command, draft)

    def check_room(self, drafts: Sequence[Draft]) -> None:
        """Raise ServiceUnavailable (429) where storage is full.

        What takes content or authority away, and what the service does by itself, always has room.
        """
        command = self.command
        taking = any(draft.content is None and draft.previous and draft.previous.content for draft in drafts)
        if command.rights is None or command.operation in _HAVE_ROOM or taking:
            return
        check_room(self.state, growth_of(drafts))

    @property
    def policy_version(self) -> str:
        """The authorization epochs of tenant and scope that this command is decided under (P174)."""
        return f"{self.state.tenant_epoch}.{self.state.epoch_authz}"

    def change_rules(self, rules: ScopeRules, basis: str | None, detail: str) -> None:
        """Let the scope's rules be others from here on; `detail` says in the audit log what has changed."""
        state, command = self.state, self.command
        state.rules = rules
        self.rows.administration.append(
            AdministrationRow(
                tenant_id=state.ref.tenant_id,
                scope_key=state.ref.scope_key,
                operation=command.operation,
                operation_id=command.operation_id,
                actor_id=command.actor.actor_id,
                authenticated_as=command.authenticated_as,
                policy_basis=basis or NO_BASIS,
                detail=detail,
                policy_version=self.policy_version,
            )
        )
        if state.ref.scope_key not in self.rows.rules:
            state.epoch_authz += 1
        self.rows.rules[state.ref.scope_key] = rules.version

    def payload(self, facts: Document) -> Document:
        """An event's payload: its own facts and what every event of the command carries."""
        command = self.command
        facts["policy_version"] = self.policy_version
        if command.authenticated_as is not None:
            facts["authenticated_as"] = command.authenticated_as
        if command.request.evaluation_run_id is not None:
            facts["evaluation_run_id"] = command.request.evaluation_run_id
        return facts

    def account(self, draft: Draft, provenance: Provenance, policy_basis: str | None = None) -> None:
        """Complete a draft's provenance and private half."""
        command = self.command
        provenance_id = provenance.provenance_id or self.entropy.mint("prov")
        draft.provenance = provenance_document(provenance, command.actor, provenance_id, self.now)
        run = command.request.evaluation_run_id
        if run is not None:
            refs = draft.provenance.get("evidence_refs", [])
            draft.provenance["evidence_refs"] = list(dict.fromkeys([*refs, RUN_REF + run]))
        draft.private["provenance"] = draft.provenance
        if command.actor.display_name is not None or command.actor.attestation is not None:
            draft.private["actor"] = draft.provenance["actor"]
        if policy_basis is not None:
            draft.private["note"] = {"policy_basis": policy_basis}

    def finish(
        self,
        made: Made,
        event_type: str,
        *,
        facts: Document | None = None,
        companion: str | None = None,
        erased: Sequence[tuple[int, int]] | None = None,
        status: int = 200,
        beside: Document | None = None,
    ) -> Answer:
        """Add the version's event, its companion and the record, and answer, with what stands `beside` the version.

        `erased`, of what takes content away: the ranges of version sequences that lost their values.
        """
        state, head = self.state, made.head
        payload = self.payload({**version_facts(head, made.digest), **(facts or {})})
        event_id: str = self.entropy.mint("evt")
        if erased is not None:
            payload["erasure_id"] = erasure_id(event_id)
            payload["erased"] = [{"from_sequence": first, "to_sequence": last} for first, last in erased]
            self._open_receipt(head, payload["erasure_id"], erased)
        self._event(head, event_type, payload, event_id)
        if companion is not None:
            self._event(head, companion, payload, self.entropy.mint("evt"))
        self.exercise(head)
        body = self.answer_body(made, event_id, beside)
        answer = Answer(status, body, positions(state, state.last_seq))
        kept = None if beside is None else dumps(beside)
        self.remember(answer, ledger_seq=head.ledger_seq, event_id=event_id, beside=kept)
        return answer

    def _open_receipt(self, head: Head, name: str, erased: Sequence[tuple[int, int]]) -> None:
        """Open the erasure's receipt, in the transaction of the erasure."""
        ref, command = self.state.ref, self.command
        self.rows.receipts.append(
            ErasureRow(
                scope_key=ref.scope_key,
                erasure_id=name,
                tenant_id=ref.tenant_id,
                kind="d" if head.availability_state == "deleted" else "r",
                subject_kind=head.kind,
                subject_id=head.object_id,
                part_of=command.part_of,
                operation_id=command.operation_id,
                actor_id=command.actor.actor_id,
                position=head.ledger_seq,
                erased=list(erased),
                kept=(head.content or b"") + (head.private or b""),
            )
        )

    def exercise(self, head: Head) -> None:
        """Count and tell the use of the grant that the command acts under, once all that it made is told.

        Passing a grant on is no use of it.
        """
        command = self.command
        if command.grant is None or head.kind == "d":
            return
        chain = spend(self.states, self.rows.uses, command.grant)
        self.rows.touched |= {scope_key for scope_key, _ in command.grant.chain}
        add_event(
            self.state,
            self.rows,
            "delegation_exercised",
            actor=command.actor,
            operation_id=command.operation_id,
            payload=self.payload(exercise_facts(chain, command.operation)),
            now=self.now,
            event_id=self.entropy.mint("evt"),
            object_id=head.object_id if head.kind == "o" else None,
            subject_id=None if head.kind == "o" else command.grant.delegation_id,
        )

    def answer_body(self, made: Made, event_id: str, beside: Document | None = None) -> bytes:
        """What a write answers that made this version, once its last event was added; `event_id` is the first's."""
        head = made.head
        return version_answer(
            named={ID_MEMBER[head.kind]: head.object_id},
            version_id=head.version_id,
            scope_id=self.state.ref.scope_id,
            sequence=head.version_seq,
            ledger_sequence=self.state.last_seq,
            event_id=event_id,
            operation_id=self.command.operation_id,
            envelope=made.envelope,
            erasing=self.command.operation in ERASING,
            beside=beside,
        )

    def tell(self, head: Head, event_type: str, facts: Document) -> str:
        """Add an event about a version; its id."""
        event_id: str = self.entropy.mint("evt")
        self._event(head, event_type, self.payload(facts), event_id)
        return event_id

    def _event(self, head: Head, event_type: str, payload: Document, event_id: str) -> None:
        add_event(
            self.state,
            self.rows,
            event_type,
            actor=self.command.actor,
            operation_id=self.command.operation_id,
            payload=payload,
            now=self.now,
            event_id=event_id,
            object_id=None if head.kind == "d" else head.object_id,
            version_id=head.version_id,
            subject_id=head.object_id,
            kind=head.kind,
        )

    def remember(
        self,
        answer: Answer,
        *,
        ledger_seq: int | None = None,
        event_id: str | None = None,
        beside: bytes | None = None,
    ) -> None:
        """Add the command's record; `beside` is what the answer holds besides the version at `ledger_seq`."""
        remember(
            self.state,
            self.rows,
            self.command,
            answer,
            salt=self.entropy.salt(),
            now=self.now if not self.state.ref.evaluation else wire(self.clock),
            repeatable=self.command.repeatable,
            ledger_seq=ledger_seq,
            event_id=event_id,
            beside=beside,
        )


def expected_head(making: Making, expected_version_id: str, check: Callable[[str, str], None]) -> Head:
    """The head that a change follows; ObjectNotFound, the state's refusal, or VersionConflict (P69)."""
    command = making.command
    head = making.state.heads.get(command.object_id or "")
    if head is None or head.kind != command.kind or not visible(making, head):
        raise ObjectNotFound
    if head.availability_state == "deleted":
        check(head.availability_state, head.retention_state)
    if head.version_id != expected_version_id:
        raise VersionConflict(
            details={"current_version_id": head.version_id, "expected_version_id": expected_version_id}
        )
    check(head.availability_state, head.retention_state)
    return head


def visible(making: Making, head: Head) -> bool:
    """Whether the actor may know of an object; of a relationship only with its ends, of those in its own scope."""
    rights, state, ends = making.command.rights, making.state, head.ends
    if not (sees(rights, head.memory()) and making.covers(head.kind, head.object_type)):
        return False
    if ends is None or rights is None:
        return True
    names = (ends.source,) if ends.target_scope_id is not None else (ends.source, ends.target)
    memories = (
        state.heads[name].memory() if name in state.heads else state.others.get(name, _NO_END)[1] for name in names
    )
    return all(memory is None or sees(rights, memory) for memory in memories)


def following(head: Head, command: Command) -> Draft:
    """A draft that carries over all that the head has."""
    stored = orjson.loads(head.metadata)
    private = orjson.loads(head.private) if head.private is not None else {}
    carried = {name: private[name] for name in _CARRIED if name in private}
    return Draft(
        object_id=head.object_id,
        kind=head.kind,
        object_type=head.object_type,
        schema_id=head.schema_id,
        states=head.states(),
        times={name: stored[name] for name in TIME_FIELDS if name in stored},
        content=head.content,
        projection=carried_projection(head.content),
        provenance={},
        private={**carried, **statements_of(command)},
        extra=extra_of(command, stored),
        previous=head,
        actor=command.actor,
        operation_hash=command.operation_hash,
        ends=head.ends,
    )


def statements_of(command: Command) -> Document:
    """What the client states about its object: kept as sent, and erasable."""
    found: Document = {}
    if command.integrity is not None:
        found["integrity"] = command.integrity
    if command.quality_signals is not None:
        found["quality_signals"] = command.quality_signals
    return found


def extra_of(command: Command, stored: Document) -> Document:
    """Metadata that only some objects have."""
    if "granted_operations" in stored:
        return {name: stored[name] for name in _GRANTED if name in stored}
    refs = getattr(command.request, "relationship_refs", None)
    refs = stored.get("relationship_refs") if refs is None else refs
    return {} if refs is None else {"relationship_refs": refs}


def carried_provenance(head: Head, activity: str) -> Provenance:
    """The provenance of a change that brings none of its own (decisions 14); a version's evaluation run is its own."""
    private = orjson.loads(head.private) if head.private is not None else {}
    known = private.get("provenance", {})
    refs = [ref for ref in known.pop("evidence_refs", ()) if not ref.startswith(RUN_REF)]
    if refs:
        known["evidence_refs"] = refs
    return msgspec.convert(
        {
            "activity": activity,
            "transformation_parent": head.version_id,
            **{
                name: known[name]
                for name in ("source_ref", "evidence_refs", "observed_at", "source_confidence", "integrity_ref")
                if name in known
            },
        },
        Provenance,
    )
