"""The decision of each command over the batch's overlay: pure, in ledger order, each with its own outcome.

Invariant: a refusal leaves the overlay and the rows as they were, but for the record of the refusal itself.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec
import orjson

from pamspec_common.calls import Answer, refusal
from pamspec_common.errors import InvalidRequest, ObjectNotFound, PamspecError, VersionConflict
from pamspec_common.instants import MICROSECOND, wire
from pamspec_common.strict_json import dumps
from pamspec_write.documents import Create, Delete, Provenance, RecordEvent, Transition, Update
from pamspec_write.model import batches
from pamspec_write.model import states as rules
from pamspec_write.model.commands import BatchCommand, Command, Work
from pamspec_write.model.facts import Document, Head, ScopeState
from pamspec_write.model.projection import carried_projection
from pamspec_write.model.records import (
    UNSTORED_CODES,
    again,
    check_source,
    erasure_id,
    found_record,
    is_stored,
    positions,
    remember,
    replay,
    version_answer,
)
from pamspec_write.model.rows import Rows
from pamspec_write.model.versions import (
    Draft,
    Entropy,
    Made,
    add_event,
    make_version,
    provenance_document,
    version_facts,
)

TIME_FIELDS = ("observed_at", "asserted_at", "valid_from", "valid_until")
_STATUS = {"create": 201}
_COMPANION_EVENT = {"tool_invocation": "tool_invoked", "tool_result": "tool_completed"}


class Decider:
    """Decides a batch: `states` by scope_key, changed as it goes; `at` is PostgreSQL's clock under the locks."""

    def __init__(self, states: dict[int, ScopeState], rows: Rows, at: datetime, entropy: Entropy) -> None:
        self._states, self._rows, self._at, self._entropy = states, rows, at, entropy

    def decide(self, work: Work) -> Answer:
        """The outcome of one command or batch."""
        if isinstance(work, BatchCommand):
            return self._batch(work)
        return self._command(work)

    def _command(self, command: Command) -> Answer:
        state = self._states[command.scope.scope_key]
        try:
            known = found_record(state, command)
            if known is not None:
                return replay(state, command, known)
            source = check_source(state, command)
            if source is not None:
                return again(state, source, own_retry=command.attempts > 0)
        except PamspecError as error:
            return refusal(error, command.operation_id)
        at = max(self._at, state.last_at + MICROSECOND)
        now = wire(at)
        try:
            answer = _DECISIONS[command.operation](self, state, command, now)
        except PamspecError as error:
            answer = refusal(error, command.operation_id)
            if is_stored(error):
                self._remember(state, command, answer, now)
            return answer
        state.last_at = at
        return answer

    def _batch(self, batch: BatchCommand) -> Answer:
        known = found_record(self._states[batch.scope.scope_key], batch)
        if known is not None:
            try:
                return batches.replay_batch(self._states, batch, known)
            except PamspecError as error:
                return refusal(error, batch.operation_id)
        results = self._all_or_none(batch) if batch.atomic else self._each(batch)
        if isinstance(results, Answer):
            return results
        home = self._states[batch.scope.scope_key]
        headers = positions(home, home.last_seq)
        kept = batches.entries(self._states, batch, results)
        self._remember_batch(batch, Answer(200, dumps({"items": kept}), headers), kept)
        return Answer(200, batches.joined(batch.operation_id, [result.body for result in results]), headers)

    def _each(self, batch: BatchCommand) -> list[Answer]:
        return [
            Answer(400, batch.refused[index].body) if item is None else self._command(item)
            for index, item in batches.places(batch)
        ]

    def _all_or_none(self, batch: BatchCommand) -> list[Answer] | Answer:
        """The results, or the error of the first item that failed, with nothing written but that record."""
        trial = Decider({key: state.copy() for key, state in self._states.items()}, Rows(), self._at, self._entropy)
        results: list[Answer] = []
        for index, item in enumerate(batch.items):
            result = trial._command(item)
            if result.status >= 400:
                answer = batches.failed_item(batch, index, result)
                if orjson.loads(result.body)["error"]["code"] not in UNSTORED_CODES:
                    self._remember_batch(batch, answer, None)
                return answer
            results.append(result)
        self._states.update(trial._states)
        self._rows.absorb(trial._rows)
        return results

    def _remember_batch(self, batch: BatchCommand, answer: Answer, kept: list[Document] | None) -> None:
        home = self._states[batch.scope.scope_key]
        now = wire(max(self._at, home.last_at))
        salt = self._entropy.salt()
        remember(home, self._rows, batch, answer, salt=salt, now=now, repeatable=batches.repeatable(batch, kept))

    def create(self, state: ScopeState, command: Command, now: str) -> Answer:
        """P104-P108: a first version, and object_created."""
        request = command.request
        assert isinstance(request, Create)
        object_id = command.object_id or self._entropy.mint("obj")
        if object_id in state.heads:
            raise VersionConflict(
                "An object of that id exists already; update it, or create under another id.",
                details={"reason": "object_exists", "object_id": object_id},
            )
        scratch = "scratch" if request.object_type == "working_memory" else "active"
        draft = Draft(
            object_id=object_id,
            kind="o",
            object_type=request.object_type,
            schema_id=request.schema_id,
            states={
                "lifecycle_state": request.lifecycle_state or scratch,
                "availability_state": request.availability_state,
                "retention_state": request.retention_state,
                "validation_state": request.validation_state,
            },
            times={name: wire(value) for name in TIME_FIELDS if (value := getattr(request, name)) is not None},
            content=command.content,
            projection=command.projection,
            provenance={},
            private={},
            extra=_extra(command, {}),
            previous=None,
            actor=command.actor,
            operation_hash=command.operation_hash,
        )
        assert command.provenance is not None
        self._account(draft, command, command.provenance, now)
        made = make_version(state, self._rows, draft, now, self._entropy)
        companion = _COMPANION_EVENT.get(request.object_type)
        return self._finish(state, command, made, "object_created", now, companion=companion)

    def update(self, state: ScopeState, command: Command, now: str) -> Answer:
        """P112-P114: a new version after the expected one."""
        request = command.request
        assert isinstance(request, Update)
        head = _expected(state, command, request.expected_version_id, rules.check_changeable)
        draft = _following(head, command)
        provenance_only = not any(
            getattr(request, name) not in (None, msgspec.UNSET)
            for name in (
                *TIME_FIELDS,
                "canonical_content",
                "schema_id",
                "integrity",
                "quality_signals",
                "relationship_refs",
            )
        )
        if request.canonical_content is not msgspec.UNSET:
            draft.content, draft.projection = command.content, command.projection
        if request.schema_id is not None:
            draft.schema_id = request.schema_id
        for name in TIME_FIELDS:
            value = getattr(request, name)
            if value is not None:
                draft.times[name] = wire(value)
        assert command.provenance is not None
        self._account(draft, command, command.provenance, now)
        made = make_version(state, self._rows, draft, now, self._entropy)
        event = "provenance_updated" if provenance_only else "object_updated"
        return self._finish(state, command, made, event, now)

    def transition(self, state: ScopeState, command: Command, now: str) -> Answer:
        """P115-P117: one dimension moves along its table; deletion runs as Delete (S21)."""
        request = command.request
        assert isinstance(request, Transition)
        dimension, target = request.dimension, request.target_state
        if dimension == "availability":
            rules.check_availability_target(target)
            if target == "deleted":
                return self.delete(state, command, now)
        head = _expected(state, command, request.expected_version_id, rules.check_present)
        current = head.states()[f"{dimension}_state"]
        rules.check_edge(dimension, current, target)
        draft = _following(head, command)
        if dimension == "availability":
            if request.canonical_content is msgspec.UNSET:
                raise InvalidRequest("Going back to available needs the content; send canonical_content.")
            draft.content, draft.projection = command.content, command.projection
        draft.states[f"{dimension}_state"] = target
        self._account(draft, command, command.provenance or _carried(head), now, request.policy_basis)
        made = make_version(state, self._rows, draft, now, self._entropy)
        moved = {"dimension": dimension, "from": current, "to": target}
        return self._finish(state, command, made, f"{dimension}_transitioned", now, facts=moved)

    def delete(self, state: ScopeState, command: Command, now: str) -> Answer:
        """P142: a final tombstone; content, provenance and salts of every earlier version go at once."""
        request = command.request
        assert isinstance(request, Delete | Transition)
        head = _expected(state, command, request.expected_version_id, rules.check_removable)
        draft = _following(head, command)
        draft.states["availability_state"] = "deleted"
        draft.content, draft.projection, draft.private, draft.extra = None, None, {}, {}
        provenance = command.provenance or Provenance(activity="delete", transformation_parent=head.version_id)
        self._account(draft, command, provenance, now, request.policy_basis)
        first = state.last_seq + 1
        made = make_version(state, self._rows, draft, now, self._entropy)
        self._rows.erase_before(state.ref.scope_key, head.object_id, first)
        state.forget(head.object_id)
        erased = [{"from_sequence": 1, "to_sequence": head.version_seq}]
        return self._finish(state, command, made, "object_deleted", now, facts={"erased": erased}, erasing=True)

    def record_event(self, state: ScopeState, command: Command, now: str) -> Answer:
        """P70: an entry that tells of no version."""
        request = command.request
        assert isinstance(request, RecordEvent)
        event = add_event(
            state,
            self._rows,
            request.event_type,
            actor=command.actor,
            operation_id=command.operation_id,
            payload=_payload(command, request.payload),
            now=now,
            event_id=self._entropy.mint("evt"),
            object_id=request.object_id,
            version_id=request.version_id,
            subject_id=request.payload.get("subscription_id"),
        )
        body = dumps(
            {
                "scope_id": state.ref.scope_id,
                "event_id": event.event_id,
                "ledger_sequence": event.sequence,
                "operation_id": command.operation_id,
            }
        )
        answer = Answer(200, body, positions(state, event.sequence))
        self._remember(state, command, answer, now)
        return answer

    def _account(
        self, draft: Draft, command: Command, provenance: Provenance, now: str, policy_basis: str | None = None
    ) -> None:
        """Complete a draft's provenance and private half."""
        provenance_id = provenance.provenance_id or self._entropy.mint("prov")
        draft.provenance = provenance_document(provenance, command.actor, provenance_id, now)
        run = command.request.evaluation_run_id
        if run is not None:
            refs = draft.provenance.get("evidence_refs", [])
            draft.provenance["evidence_refs"] = [*refs, f"evaluation-run:{run}"]
        draft.private["provenance"] = draft.provenance
        if command.actor.display_name is not None or command.actor.attestation is not None:
            draft.private["actor"] = draft.provenance["actor"]
        if policy_basis is not None:
            draft.private["note"] = {"policy_basis": policy_basis}

    def _finish(
        self,
        state: ScopeState,
        command: Command,
        made: Made,
        event_type: str,
        now: str,
        *,
        facts: Document | None = None,
        companion: str | None = None,
        erasing: bool = False,
    ) -> Answer:
        """Add the version's events and its record, and answer."""
        head = made.head
        payload = _payload(command, {**version_facts(head, made.digest), **(facts or {})})
        event_id: str = self._entropy.mint("evt")
        if erasing:
            payload["erasure_id"] = erasure_id(event_id)
        for name, id_ in ((event_type, event_id), (companion, None)):
            if name is not None:
                last = add_event(
                    state,
                    self._rows,
                    name,
                    actor=command.actor,
                    operation_id=command.operation_id,
                    payload=payload,
                    now=now,
                    event_id=id_ or self._entropy.mint("evt"),
                    object_id=head.object_id,
                    version_id=head.version_id,
                )
        body = version_answer(
            object_id=head.object_id,
            version_id=head.version_id,
            scope_id=state.ref.scope_id,
            sequence=head.version_seq,
            ledger_sequence=last.sequence,
            event_id=event_id,
            operation_id=command.operation_id,
            envelope=made.envelope,
            erasing=command.operation == "delete",
        )
        answer = Answer(_STATUS.get(command.operation, 200), body, positions(state, last.sequence))
        self._remember(state, command, answer, now, ledger_seq=head.ledger_seq, event_id=event_id)
        return answer

    def _remember(
        self,
        state: ScopeState,
        command: Command,
        answer: Answer,
        now: str,
        ledger_seq: int | None = None,
        event_id: str | None = None,
    ) -> None:
        remember(
            state,
            self._rows,
            command,
            answer,
            salt=self._entropy.salt(),
            now=now,
            repeatable=command.repeatable,
            ledger_seq=ledger_seq,
            event_id=event_id,
        )


_DECISIONS = {
    "create": Decider.create,
    "update": Decider.update,
    "transition": Decider.transition,
    "delete": Decider.delete,
    "record_event": Decider.record_event,
}


def _payload(command: Command, payload: Document) -> Document:
    if command.authenticated_as is not None:
        payload["authenticated_as"] = command.authenticated_as
    if command.request.evaluation_run_id is not None:
        payload["evaluation_run_id"] = command.request.evaluation_run_id
    return payload


def _expected(state: ScopeState, command: Command, expected_version_id: str, check: Callable[[str, str], None]) -> Head:
    """The head that a change follows; ObjectNotFound, the state's refusal, or VersionConflict (P69)."""
    head = state.heads.get(command.object_id or "")
    if head is None or head.kind != command.kind:
        raise ObjectNotFound
    if head.availability_state == "deleted":
        check(head.availability_state, head.retention_state)
    if head.version_id != expected_version_id:
        raise VersionConflict(
            details={"current_version_id": head.version_id, "expected_version_id": expected_version_id}
        )
    check(head.availability_state, head.retention_state)
    return head


def _following(head: Head, command: Command) -> Draft:
    """A draft that carries over all that the head has."""
    stored = orjson.loads(head.metadata)
    private = orjson.loads(head.private) if head.private is not None else {}
    carried: Document = {"integrity": private["integrity"]} if "integrity" in private else {}
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
        private={**carried, **({} if command.integrity is None else {"integrity": command.integrity})},
        extra=_extra(command, stored),
        previous=head,
        actor=command.actor,
        operation_hash=command.operation_hash,
    )


def _extra(command: Command, stored: Document) -> Document:
    """Metadata that only some objects have."""
    refs = getattr(command.request, "relationship_refs", None)
    found = {
        "quality_signals": stored.get("quality_signals")
        if command.quality_signals is None
        else command.quality_signals,
        "relationship_refs": stored.get("relationship_refs") if refs is None else refs,
    }
    return {name: value for name, value in found.items() if value is not None}


def _carried(head: Head) -> Provenance:
    """The provenance of a change that brings none of its own (decisions 14)."""
    private = orjson.loads(head.private) if head.private is not None else {}
    known = private.get("provenance", {})
    return msgspec.convert(
        {
            "activity": "transition",
            "transformation_parent": head.version_id,
            **{
                name: known[name]
                for name in ("source_ref", "evidence_refs", "observed_at", "source_confidence", "integrity_ref")
                if name in known
            },
        },
        Provenance,
    )
