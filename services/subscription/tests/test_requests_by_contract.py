"""The decoder and the contracts accept and refuse the same requests: each member changed, removed and added to."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from pamspec_common import contracts
from pamspec_common.errors import InvalidRequest, PamspecError
from pamspec_common.strict_json import parse
from pamspec_subscription import documents

Document = dict[str, Any]

COMMON: Document = {
    "scope_id": "workspace:a",
    "operation_id": "op:1",
    "idempotency_key": "key",
    "min_sequence": 1,
    "wait_ms": 0,
    "ledger_epoch": 1,
    "evaluation_run_id": "run:1",
    "actor": {
        "actor_id": "agent:a",
        "actor_kind": "agent",
        "display_name": "A",
        "on_behalf_of_actor_id": "human:b",
        "attestation": {"issued_at": "2026-03-01T09:30:00Z", "capabilities_declared": ["read"]},
    },
}
FILTER: Document = {
    "event_classes": ["object_created", "tool_invoked"],
    "object_type": "claim",
    "object_id": "obj:1",
    "predicate": {
        "and": [
            {"not": [{"field": "payload:/a", "op": "in", "value": ["x", 1]}]},
            {"field": "sequence", "op": "gt", "value": 1},
            {"field": "object_id", "op": "exists", "value": True},
            {"field": "event_type", "op": "starts_with", "value": "object"},
        ]
    },
}
DELIVERY: Document = {
    "batching_max_events": 10,
    "batching_max_wait_ms": 5,
    "keepalive_interval_ms": 1000,
    "backpressure_policy": "close_on_lag",
}
NAMED: Document = {"subscription_id": "sub:1"}
REQUESTS: dict[str, tuple[str, type[documents.Common], Document]] = {
    "subscribe": (
        "subscribe",
        documents.Subscribe,
        {"filter": FILTER, "after_sequence": 0, "delivery": DELIVERY, "channel": "sse", "include_content": True},
    ),
    "subscribe by its other name": ("subscribe", documents.Subscribe, {"start_sequence": 0}),
    "unsubscribe": ("unsubscribe", documents.OnSubscription, NAMED),
    "poll": ("poll", documents.Poll, {**NAMED, "max": 5, "after_sequence": 0}),
    "ack": ("ack", documents.Ack, {**NAMED, "sequence": 5}),
    "ack single ones": ("ack", documents.Ack, {**NAMED, "sequences": [5, 6]}),
    "reset": ("reset", documents.Reset, {**NAMED, "after_sequence": 0}),
    "list_subscriptions": ("list_subscriptions", documents.ListSubscriptions, {**NAMED, "pagination": {"limit": 5}}),
}
VALUES: list[Any] = [
    *(None, True, 0, -1, 7, 1001, 30_001, 2**64, 1.5, "", "x", "obj:x", "obj:x\n", "a" * 300, "2026-01-01", "nats"),
    *([], [1], ["x"], [None], ["object_created"], {}, {"a": 1}, {"and": []}, {"actor_id": "a:b", "actor_kind": "a"}),
]
BEYOND = (
    "object_type is neither",
    "no such field",
    "field's type",
    "does not apply",
    "takes a number, a text or a time",
    "a time is RFC 3339",
    "block waits for",
    "drop_oldest would",
    "not offered yet",
    "<= 9223372036854775806",
    "<= 86400000",
)
"""What a schema cannot say, or leaves open: values that go with a field, channels that are offered, integers' size."""


def changes(document: Any) -> Iterator[tuple[str, Any]]:
    for path in members(document):
        for value in [*VALUES, ...]:
            changed = copy.deepcopy(document)
            holder = at(changed, path[:-1])
            if value is ...:
                del holder[path[-1]]
            else:
                holder[path[-1]] = value
            yield f"{'.'.join(map(str, path))} = {value!r:.60}", changed
    for path in [(), *(path for path in members(document) if isinstance(at(document, path), dict))]:
        changed = copy.deepcopy(document)
        at(changed, path)["unknown"] = 1
        yield f"{'.'.join(map(str, path))}.unknown", changed


def members(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    steps = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for step, value in steps:
        yield (*path, step)
        yield from members(value, (*path, step))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


def refusal_of(kind: type[documents.Common], document: Any) -> PamspecError | None:
    try:
        request = documents.decode(kind, parse(json.dumps(document).encode()))
        if isinstance(request, documents.Subscribe):
            documents.check_subscribe(request)
        if isinstance(request, documents.Ack):
            documents.check_ack(request)
    except PamspecError as error:
        return error
    return None


@pytest.mark.parametrize("name", REQUESTS)
def test_service_and_contract_agree(name: str) -> None:
    operation, kind, own = REQUESTS[name]
    document = {**COMMON, **own}
    validator = contracts.request_validator(operation)
    assert validator.is_valid(document)
    assert refusal_of(kind, document) is None
    differences: list[str] = []
    for change, changed in changes(document):
        error, allowed = refusal_of(kind, changed), validator.is_valid(changed)
        if allowed and isinstance(error, InvalidRequest) and not any(reason in error.message for reason in BEYOND):
            differences.append(f"{change}: refused: {error.message}")
        if not allowed and error is None:
            differences.append(f"{change}: accepted")
    assert not differences, "\n".join(differences)
