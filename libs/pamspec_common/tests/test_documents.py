"""Shared parts of request documents: what is refused and how the refusal names the place; condition trees."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from pamspec_common.conditions import MAX_CONDITIONS, MAX_DEPTH, MAX_VALUES, Joint, pointer, read_tree
from pamspec_common.documents import (
    MAX_KEY,
    Actor,
    CommonFields,
    Lifecycle,
    decode,
    is_extension_type,
    own_operation_id,
    take_header_key,
)
from pamspec_common.errors import InvalidRequest


class Asking(CommonFields, kw_only=True):
    """A request with a part, a word and an open member."""

    actor: Actor | None = None
    lifecycle_state: list[Lifecycle] | None = None
    where: Any = None
    pages: dict[str, list[Page]] | Literal["any"] | None = None


class Page(msgspec.Struct, forbid_unknown_fields=True):
    """A part with words of its own."""

    order: Literal["up", "down"] = msgspec.field(name="direction", default="up")


@pytest.mark.parametrize(
    ("document", "field", "said"),
    [
        ([], None, "JSON object"),
        ({"wait": 1}, "", "`wait`"),
        ({"wait_ms": 30_001}, "wait_ms", "<= 30000"),
        ({"operation_id": None}, "operation_id", "is null"),
        ({"where": None}, "where", "is null"),
        ({"actor": {"actor_id": "agent:a", "actor_kind": None}}, "actor.actor_kind", "is null"),
        ({"actor": {"actor_id": "agent a", "actor_kind": "agent"}}, "actor.actor_id", "an id like name:part"),
        ({"lifecycle_state": ["alive"]}, "lifecycle_state[0]", "scratch, candidate"),
        ({"pages": {"a": [{}, {"direction": "secret"}]}}, "pages[...][1].direction", "Expected one of up, down ("),
        ({"pages": "secret"}, "pages", "Expected one of any ("),
        (
            {
                "actor": {
                    "actor_id": "agent:a",
                    "actor_kind": "agent",
                    "attestation": {"capabilities_declared": ["read", "read"]},
                }
            },
            "actor.attestation",
            "twice",
        ),
    ],
)
def test_a_refusal_names_the_member(document: Any, field: str | None, said: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        decode(Asking, document, free=("where",))
    assert refusal.value.details.get("field") == field
    assert said in refusal.value.message
    assert "alive" not in refusal.value.message


def test_a_free_member_may_hold_nulls_inside() -> None:
    assert decode(Asking, {"where": {"value": None}}, free=("where",)).where == {"value": None}


def test_the_id_of_a_wrong_body() -> None:
    assert own_operation_id({"operation_id": "op:1", "unknown": 1}) == "op:1"
    assert own_operation_id({"operation_id": "no id"}, "op:2") == "op:2"
    bodies: list[Any] = [None, [], "op:1", {"operation_id": 1}, {"operation_id": "op:1\n"}]
    for body in bodies:
        assert own_operation_id(body).startswith("op:")
        assert own_operation_id(body) != "op:1"


def test_the_header_key_serves_where_the_body_has_none() -> None:
    without, request = CommonFields(), CommonFields()
    take_header_key(without, None)
    assert without.idempotency_key is None
    take_header_key(request, "k")
    take_header_key(request, "k")
    assert request == CommonFields(idempotency_key="k")
    with pytest.raises(InvalidRequest, match="differ"):
        take_header_key(request, "other")
    for wrong in ("", "a\tb", "k" * (MAX_KEY + 1)):
        with pytest.raises(InvalidRequest, match="1 to 255"):
            take_header_key(CommonFields(), wrong)


def test_extension_types() -> None:
    for name in ("com.example.thing", "https://types.example.com/a", "urn:" + "a" * 251):
        assert is_extension_type(name)
    for name in ("thing", "com.example.Thing", "urn:a\n", "com.example.thing\n", "urn:" + "a" * 252):
        assert not is_extension_type(name)


def _condition(field: Any, op: str, value: Any, place: str) -> str:
    return f"{place}={field}"


def _group(joint: Joint, members: list[str]) -> str:
    return f"{joint}({', '.join(members)})"


def _leaf(op: str = "eq", value: Any = 1) -> dict[str, Any]:
    return {"field": "f", "op": op, "value": value}


def test_a_tree_is_read_from_the_leaves_up() -> None:
    tree = {"and": [_leaf(), {"not": [_leaf()]}]}
    assert read_tree(tree, "where", _condition, _group) == "and(where.and[0]=f, not(where.and[1].not[0]=f))"


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        (None, "where"),
        ({}, "where"),
        ({"and": []}, "where"),
        ({"or": {}}, "where"),
        ({"and": [_leaf()], "or": [_leaf()]}, "where"),
        ({"or": [_leaf(), {"field": "f", "op": "eq"}]}, "where.or[1]"),
        (_leaf("like"), "where"),
        (_leaf("exists"), "where"),
        (_leaf("in", []), "where"),
        (_leaf("nin", [1] * (MAX_VALUES + 1)), "where"),
        (_leaf("starts_with"), "where"),
    ],
)
def test_a_tree_of_another_shape_is_refused(tree: Any, place: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read_tree(tree, "where", _condition, _group)
    assert refusal.value.details["field"] == place


def test_the_limits_of_a_tree_are_named() -> None:
    deep: dict[str, Any] = _leaf()
    for _ in range(MAX_DEPTH - 1):
        deep = {"and": [deep]}
    read_tree(deep, "where", _condition, _group)
    read_tree({"or": [_leaf()] * MAX_CONDITIONS}, "where", _condition, _group)
    for tree, limit in (({"and": [deep]}, MAX_DEPTH), ({"or": [_leaf()] * (MAX_CONDITIONS + 1)}, MAX_CONDITIONS)):
        with pytest.raises(InvalidRequest) as refusal:
            read_tree(tree, "where", _condition, _group)
        assert refusal.value.details["limit"] == limit


def test_json_pointers() -> None:
    assert pointer("", "where") == ()
    assert pointer("/a~1b/~0/", "where") == ("a/b", "~", "")
    for wrong in ("a", "/a~2", "/a~", "/\0"):
        with pytest.raises(InvalidRequest):
            pointer(wrong, "where")


def test_common_fields_are_the_contract_s() -> None:
    from pamspec_common import contracts

    known = set(contracts.schema("pamspec:schema:request")["$defs"]["common_fields"]["properties"])
    assert {field.name for field in msgspec.structs.fields(CommonFields)} == known - {"scope_id", "actor"}
