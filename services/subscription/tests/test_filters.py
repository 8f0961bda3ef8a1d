"""Filters: every operator on every kind of value, refusals at opening, and decisions per event."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from pamspec_common.conditions import MAX_CONDITIONS, MAX_DEPTH
from pamspec_common.errors import InvalidRequest
from pamspec_common.events import PARTY_TYPES
from pamspec_common.principal import RIGHT_ADMIN, RIGHT_AUDIT, Principal
from pamspec_subscription.entries import Entry
from pamspec_subscription.matching import Matcher, viewer_of
from pamspec_subscription.predicates import compile_predicate

EVENT: dict[str, Any] = {
    "event_id": "evt:1",
    "operation_id": "op:1",
    "scope_id": "workspace:1",
    "object_id": "obj:1",
    "version_id": "ver:1",
    "event_type": "object_created",
    "recorded_at": "2026-03-01T09:00:00.000000Z",
    "sequence": 7,
    "actor": {"actor_id": "agent:1", "actor_kind": "agent"},
    "payload": {"object_type": "claim", "n": 1, "yes": True, "list": ["a", 2], "deep": {"a/b": "x", "t~u": "y"}},
}
AGENT = Principal("tenant:test", "agent:1", "agent")


def entry(**changes: Any) -> Entry:
    event = {**EVENT, **changes}
    return Entry(event["sequence"], event["event_type"], orjson.dumps(event, option=orjson.OPT_SORT_KEYS))


@pytest.mark.parametrize(
    ("field", "op", "value", "holds"),
    [
        ("event_type", "eq", "object_created", True),
        ("event_type", "ne", "object_created", False),
        ("object_id", "starts_with", "obj:", True),
        ("object_id", "contains", "j:", True),
        ("object_id", "contains", "zz", False),
        ("relationship_id", "exists", False, True),
        ("relationship_id", "exists", True, False),
        ("relationship_id", "eq", "rel:1", False),
        ("relationship_id", "ne", "rel:1", True),
        ("relationship_id", "nin", ["rel:1"], True),
        ("relationship_id", "in", ["rel:1"], False),
        ("relationship_id", "starts_with", "rel", False),
        ("relationship_id", "gt", "a", False),
        ("sequence", "gte", 7, True),
        ("sequence", "gt", 7, False),
        ("sequence", "lt", 7.5, True),
        ("sequence", "lte", 6, False),
        ("sequence", "in", [1, 7], True),
        ("recorded_at", "eq", "2026-03-01T10:00:00+01:00", True),
        ("recorded_at", "gt", "2026-03-01T08:59:59Z", True),
        ("recorded_at", "lte", "2026-03-01T08:59:59Z", False),
        ("recorded_at", "in", ["2026-03-01T09:00:00Z"], True),
        ("actor.actor_id", "eq", "agent:1", True),
        ("actor.delegation_id", "exists", True, False),
        ("payload:/object_type", "eq", "claim", True),
        ("payload:/object_type", "lt", "d", True),
        ("payload:/n", "eq", 1, True),
        ("payload:/n", "eq", True, False),
        ("payload:/yes", "eq", True, True),
        ("payload:/yes", "eq", 1, False),
        ("payload:/yes", "in", [1], False),
        ("payload:/yes", "gt", 0, False),
        ("payload:/n", "gt", "0", False),
        ("payload:/list", "contains", "a", True),
        ("payload:/list", "contains", 2, True),
        ("payload:/list", "contains", "2", False),
        ("payload:/list", "eq", "a", False),
        ("payload:/list", "in", ["a"], False),
        ("payload:/list/1", "eq", 2, True),
        ("payload:/list/2", "exists", False, True),
        ("payload:/deep/a~1b", "eq", "x", True),
        ("payload:/deep/t~0u", "eq", "y", True),
        ("payload:/deep/none/at/all", "exists", False, True),
        ("payload:", "exists", True, True),
    ],
)
def test_an_operator_decides_by_value_and_kind(field: str, op: str, value: Any, holds: bool) -> None:
    assert compile_predicate({"field": field, "op": op, "value": value})(EVENT) is holds


def test_groups_combine() -> None:
    yes = {"field": "sequence", "op": "eq", "value": 7}
    no = {"field": "sequence", "op": "eq", "value": 8}
    for tree, holds in [
        ({"and": [yes, yes]}, True),
        ({"and": [yes, no]}, False),
        ({"or": [no, yes]}, True),
        ({"or": [no, no]}, False),
        ({"not": [no, no]}, True),
        ({"not": [no, yes]}, False),
        ({"and": [{"or": [no, yes]}, {"not": [{"and": [yes, no]}]}]}, True),
    ]:
        assert compile_predicate(tree)(EVENT) is holds


@pytest.mark.parametrize(
    "tree",
    [
        [],
        "x",
        {},
        {"and": []},
        {"and": {}},
        {"xor": []},
        {"and": [{"field": "sequence", "op": "eq", "value": 1}], "or": []},
        {"field": "sequence", "op": "eq"},
        {"field": "sequence", "op": "eq", "value": 1, "more": 1},
        {"field": "canonical_content", "op": "eq", "value": "x"},
        {"field": "content:/a", "op": "eq", "value": "x"},
        {"field": 3, "op": "eq", "value": "x"},
        {"field": "payload:a", "op": "eq", "value": "x"},
        {"field": "payload:/a~2", "op": "eq", "value": "x"},
        {"field": "sequence", "op": "like", "value": "x"},
        {"field": "sequence", "op": "$ne", "value": 1},
        {"field": "sequence", "op": "eq", "value": "1"},
        {"field": "sequence", "op": "eq", "value": True},
        {"field": "sequence", "op": "eq", "value": None},
        {"field": "sequence", "op": "contains", "value": 1},
        {"field": "sequence", "op": "starts_with", "value": "1"},
        {"field": "object_id", "op": "eq", "value": {"$ne": None}},
        {"field": "object_id", "op": "eq", "value": ["a"]},
        {"field": "object_id", "op": "gt", "value": 3},
        {"field": "object_id", "op": "in", "value": "obj:1"},
        {"field": "object_id", "op": "in", "value": []},
        {"field": "object_id", "op": "in", "value": [1]},
        {"field": "object_id", "op": "exists", "value": "yes"},
        {"field": "object_id", "op": "starts_with", "value": 1},
        {"field": "recorded_at", "op": "gt", "value": "2026-01-01"},
        {"field": "recorded_at", "op": "gt", "value": 1700000000},
        {"field": "payload:/n", "op": "gt", "value": True},
        {"field": "payload:/n", "op": "eq", "value": None},
    ],
)
def test_what_no_filter_can_be_is_refused(tree: Any) -> None:
    with pytest.raises(InvalidRequest):
        compile_predicate(tree)


def test_the_limits_are_named() -> None:
    tree: Any = {"field": "sequence", "op": "eq", "value": 7}
    for _ in range(MAX_DEPTH - 1):
        tree = {"not": [tree]}
    compile_predicate(tree)
    with pytest.raises(InvalidRequest, match="8 levels"):
        compile_predicate({"not": [tree]})
    leaf = {"field": "sequence", "op": "eq", "value": 7}
    compile_predicate({"or": [leaf] * MAX_CONDITIONS})
    with pytest.raises(InvalidRequest, match=str(MAX_CONDITIONS)):
        compile_predicate({"or": [leaf] * (MAX_CONDITIONS + 1)})


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        ({}, True),
        ({"event_classes": ["object_created", "object_deleted"]}, True),
        ({"event_classes": ["object_deleted"]}, False),
        ({"object_id": "obj:1"}, True),
        ({"object_id": "obj:2"}, False),
        ({"object_id": "ver:1"}, False),
        ({"object_type": "claim"}, True),
        ({"object_type": "task"}, False),
        ({"object_type": "claim", "event_classes": ["object_created"], "object_id": "obj:1"}, True),
        ({"object_type": "claim", "predicate": {"field": "sequence", "op": "gt", "value": 9}}, False),
    ],
)
def test_a_filter_needs_every_member(wanted: dict[str, Any], holds: bool) -> None:
    assert Matcher(wanted, viewer_of(AGENT, {"actor_id": "agent:1"})).matches(entry()) is holds


def test_an_object_type_in_another_place_does_not_match() -> None:
    matcher = Matcher({"object_type": "task"}, viewer_of(AGENT, {"actor_id": "agent:1"}))
    assert not matcher.matches(entry(payload={"object_type": "claim", "inner": {"object_type": "task"}}))


@pytest.mark.parametrize("event_type", sorted(PARTY_TYPES))
def test_bookkeeping_reaches_the_party_auditors_and_administrators(event_type: str) -> None:
    theirs = entry(event_type=event_type, actor={"actor_id": "agent:9", "actor_kind": "agent"}, payload={})
    named = [
        entry(event_type=event_type),
        entry(
            event_type=event_type,
            actor={"actor_id": "agent:9", "actor_kind": "agent"},
            payload={"delegated_actor_id": "agent:1", "granting_actor_id": "agent:9"},
        ),
        entry(
            event_type=event_type,
            actor={"actor_id": "agent:9", "actor_kind": "agent"},
            payload={"delegated_actor_id": "agent:9", "granting_actor_id": "agent:1"},
        ),
    ]
    plain = Matcher({}, viewer_of(AGENT, {"actor_id": "agent:1"}))
    assert not plain.matches(theirs)
    assert all(plain.matches(one) for one in named)
    for right in (RIGHT_AUDIT, RIGHT_ADMIN):
        officer = Principal("tenant:test", "human:1", "human", frozenset({right}))
        assert Matcher({}, viewer_of(officer, {"actor_id": "human:1"})).matches(theirs)
    asserted = viewer_of(Principal("tenant:test", "service:backend", "service"), {"actor_id": "agent:9"})
    assert Matcher({}, asserted).matches(theirs)


def test_equal_filters_of_one_viewer_are_one() -> None:
    first = Matcher({"object_type": "claim", "object_id": "obj:1"}, viewer_of(AGENT, {"actor_id": "agent:1"}))
    second = Matcher({"object_id": "obj:1", "object_type": "claim"}, viewer_of(AGENT, {"actor_id": "agent:1"}))
    assert first == second
    assert len({first, second}) == 1
    other = Matcher({"object_id": "obj:1", "object_type": "claim"}, viewer_of(AGENT, {"actor_id": "agent:2"}))
    assert first != other
