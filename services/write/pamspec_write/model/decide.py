"""The decision of each command over the batch's overlay: pure, in ledger order, each with its own outcome.

Invariant: a refusal leaves the overlay and the rows as they were, but for the record of the refusal itself.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import orjson
from msgspec import structs

from pamspec_common.calls import Answer, refusal
from pamspec_common.errors import PamspecError
from pamspec_common.instants import MICROSECOND, wire
from pamspec_common.strict_json import dumps
from pamspec_write.model import batches
from pamspec_write.model.attested import check_attested
from pamspec_write.model.commands import BatchCommand, Command, Work
from pamspec_write.model.delegations import grant_delegation, revoke_delegation
from pamspec_write.model.entries import record_event
from pamspec_write.model.erasures import delete, redact
from pamspec_write.model.evaluation import moment
from pamspec_write.model.facts import Document, ScopeState, Stored
from pamspec_write.model.grants import chain_of, check_room, check_standing, check_terms
from pamspec_write.model.holds import hold_object, let_go, place_hold, release_hold
from pamspec_write.model.making import Making
from pamspec_write.model.objects import create, update
from pamspec_write.model.permission import check_operation
from pamspec_write.model.policies import update_scope
from pamspec_write.model.promotion import promote
from pamspec_write.model.records import (
    UNSTORED_CODES,
    again,
    check_source,
    found_record,
    is_stored,
    positions,
    remember,
    replay,
)
from pamspec_write.model.relationships import relate
from pamspec_write.model.rows import Rows
from pamspec_write.model.schemas import register_schema
from pamspec_write.model.snapshots import seal_snapshot
from pamspec_write.model.transitions import transition
from pamspec_write.model.uses import check_delegation, exercise_delegation, tell_uses
from pamspec_write.model.versions import Entropy

DECISIONS: dict[str, Callable[[Making], Answer]] = {
    "create": create,
    "update": update,
    "transition": transition,
    "redact": redact,
    "delete": delete,
    "relate": relate,
    "promote": promote,
    "record_event": record_event,
    "seal_snapshot": seal_snapshot,
    "update_scope": update_scope,
    "register_schema": register_schema,
    "place_hold": place_hold,
    "release_hold": release_hold,
    "hold_object": hold_object,
    "let_go": let_go,
    "grant_delegation": grant_delegation,
    "revoke_delegation": revoke_delegation,
    "check_delegation": check_delegation,
    "exercise_delegation": exercise_delegation,
    "tell_uses": tell_uses,
}


class Decider:
    """Decides a batch: `states` by scope_key, changed as it goes; `at` is PostgreSQL's clock under the locks."""

    def __init__(self, states: dict[int, ScopeState], rows: Rows, at: datetime, entropy: Entropy) -> None:
        self._states, self._rows, self._at, self._entropy = states, rows, at, entropy

    def decide(self, work: Work) -> Answer:
        """The outcome of one command or batch."""
        before = len(self._rows.ledger)
        answer = self._batch(work) if isinstance(work, BatchCommand) else self._command(work)
        if work.traceparent is not None:
            self._rows.trace(before, work.traceparent)
        return answer

    def _command(self, command: Command) -> Answer:
        state = self._states[command.scope.scope_key]
        try:
            self._check_grant(command, max(self._at, state.last_at + MICROSECOND))
            check_operation(command.operation, command.rights)
            known = found_record(state, command)
            if known is not None:
                return replay(state, command, known)
            source = check_source(state, command)
            if source is not None:
                return again(state, source, own_retry=command.attempts > 0)
            check_attested(state, command, self._at)
            if command.grant is not None and command.operation != "grant_delegation":
                check_room(chain_of(self._states, command.grant))
            at, entropy = max(self._at, state.last_at + MICROSECOND), self._entropy
            if state.ref.evaluation or command.request.evaluation_run_id is not None:
                at, entropy = moment(state, command, self._at, entropy)
        except PamspecError as error:
            return refusal(error, command.operation_id)
        before = state.last_seq
        making = Making(state, self._rows, command, wire(at), entropy, self._states, self._at)
        try:
            answer = DECISIONS[command.operation](making)
        except PamspecError as error:
            answer = refusal(error, command.operation_id)
            if is_stored(error):
                making.remember(answer)
            return answer
        if state.last_seq > before:
            state.last_at = at
        return answer

    def _check_grant(self, command: Command, at: datetime) -> None:
        """Raise AccessDenied unless the grant that the command acts under, or checks, is in force at that time.

        How often it was used is looked at later: a repetition of the command is no further use.
        """
        ref, use = command.grant or command.about, command.use
        if ref is None or use is None:
            return
        chain = chain_of(self._states, ref)
        if command.grant is not None and command.operation != "grant_delegation":
            check_terms(chain, use)
        check_standing(chain, use.operation, at, command.authority)

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
        stored = {id(room): (room, structs.replace(room)) for room in map(_tenant_room, self._states.values()) if room}
        trial = Decider({key: state.copy() for key, state in self._states.items()}, Rows(), self._at, self._entropy)
        results: list[Answer] = []
        for index, item in enumerate(batch.items):
            result = trial._command(item)
            if result.status >= 400:
                answer = batches.failed_item(batch, index, result)
                for room, before in stored.values():
                    room.objects, room.versions, room.content_bytes = structs.astuple(before)
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


def _tenant_room(state: ScopeState) -> Stored | None:
    return state.tenant_stored
