"""Entries that tell of no version."""

from __future__ import annotations

from pamspec_common.calls import Answer
from pamspec_common.strict_json import dumps
from pamspec_write.documents.entries import RecordEvent
from pamspec_write.model.making import Making
from pamspec_write.model.records import positions
from pamspec_write.model.versions import add_event


def record_event(making: Making) -> Answer:
    """P70: an entry that tells of no version."""
    state, command = making.state, making.command
    request = command.request
    assert isinstance(request, RecordEvent)
    event = add_event(
        state,
        making.rows,
        request.event_type,
        actor=command.actor,
        operation_id=command.operation_id,
        payload=making.payload(request.payload),
        now=making.now,
        event_id=making.entropy.mint("evt"),
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
    making.remember(answer)
    return answer
