"""A scope's policy: versioned, checked before it applies, and in force for the next decision of every process."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from pamspec_common.calls import HEADER_REPLAYED
from pamspec_common.principal import Principal
from pamspec_common.scope_policy import MAX_POLICY_BYTES, matches
from services.write.tests.writer import AGENT, BACKEND, OTHER, PROVENANCE, Document, Writer, claim

OPENED = {"overrides": [{"dimension": "lifecycle", "from": "archived", "to": "active"}]}
ONLY_CLAIMS = {"object_types": {"allow": ["claim", "com.example.*"], "deny": ["com.example.private.*"]}}


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


async def set_policy(writer: Writer, policy: Document, expected: int, **more: Any) -> Document:
    """The answer of a change of the test scope's policy."""
    return await writer.ok("update_scope", change(writer, policy, expected, **more))


def change(writer: Writer, policy: Document, expected: int, **more: Any) -> Document:
    """A request for another policy."""
    return {
        "scope_id": writer.scope,
        "policy": policy,
        "expected_policy_version": expected,
        "policy_basis": "policy:test",
        **more,
    }


def move(of: Document, target: str, dimension: str = "lifecycle", **more: Any) -> Document:
    """A transition after that answer."""
    return {
        "scope_id": of["scope_id"],
        "object_id": of["object_id"],
        "expected_version_id": of["version_id"],
        "dimension": dimension,
        "target_state": target,
        "policy_basis": "test",
        **more,
    }


async def epochs(writer: Writer) -> tuple[int, int, int]:
    """revision, rules_version and epoch_authz of the test's scope."""
    row = await writer.admin.fetchrow(
        "SELECT revision, rules_version, epoch_authz FROM core.scope_head WHERE scope_key = $1",
        await writer.scope_key(),
    )
    assert row is not None
    return tuple(row)


async def test_a_change_is_a_version_with_author_time_and_basis(writer: Writer) -> None:
    before = await epochs(writer)
    answer = await set_policy(writer, OPENED, 0, operation_id="op:policy-1")
    assert (answer["policy_version"], answer["policy"], answer["operation_id"]) == (1, OPENED, "op:policy-1")
    assert await epochs(writer) == (before[0] + 1, before[1] + 1, before[2] + 1)
    asserted = {"actor_id": "human:keeper", "actor_kind": "human"}
    await writer.ok("update_scope", change(writer, {}, 1, actor=asserted), by=BACKEND)
    rows = await writer.admin.fetch(
        "SELECT * FROM core.scope_policy WHERE scope_key = $1 ORDER BY policy_version", await writer.scope_key()
    )
    assert [(row["policy_version"], orjson.loads(row["policy"]), row["policy_basis"]) for row in rows] == [
        (1, OPENED, "policy:test"),
        (2, {}, "policy:test"),
    ]
    assert [(row["actor_id"], row["authenticated_as"]) for row in rows] == [
        (AGENT.actor_id, None),
        ("human:keeper", BACKEND.actor_id),
    ]
    assert rows[0]["changed_at"] < rows[1]["changed_at"]
    await writer.check_scope()


async def test_an_override_holds_from_its_change_to_the_next(writer: Writer) -> None:
    made = await writer.create(lifecycle_state="archived")
    error = await writer.refused("transition", move(made, "active"))
    assert (error["code"], error["policy_rule_id"]) == ("invalid_state_transition", "scope-policy/0/overrides")
    await set_policy(writer, OPENED, 0)
    active = await writer.ok("transition", move(made, "active"))
    assert active["envelope"]["lifecycle_state"] == "active"
    archived = await writer.ok("transition", move(active, "archived"))
    await set_policy(writer, {}, 1)
    error = await writer.refused("transition", move(archived, "active"))
    assert (error["code"], error["policy_rule_id"]) == ("invalid_state_transition", "scope-policy/2/overrides")


async def test_going_back_to_unverified_takes_the_override_and_the_correction(writer: Writer) -> None:
    made = await writer.create(validation_state="corroborated")
    await set_policy(
        writer, {"overrides": [{"dimension": "validation", "from": "corroborated", "to": "unverified"}]}, 0
    )
    error = await writer.refused("transition", move(made, "unverified", "validation"))
    assert (error["code"], error["details"]["reason"]) == ("invalid_state_transition", "needs_provenance")
    back = await writer.ok("transition", move(made, "unverified", "validation", provenance=PROVENANCE))
    assert back["envelope"]["validation_state"] == "unverified"


async def test_a_stale_expected_version_is_a_conflict_and_of_twenty_writers_one_wins(writer: Writer) -> None:
    await set_policy(writer, {}, 0)
    error = await writer.refused("update_scope", change(writer, OPENED, 0))
    assert (error["code"], error["details"]) == (
        "version_conflict",
        {"current_policy_version": 1, "expected_policy_version": 0},
    )
    answers = await asyncio.gather(*(writer.call("update_scope", change(writer, OPENED, 1)) for _ in range(20)))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 19
    assert await writer.count("core.scope_policy") == 2


async def test_a_repetition_answers_the_same_and_changes_nothing(writer: Writer) -> None:
    request = change(writer, OPENED, 0)
    first = await writer.call("update_scope", request, key="policy")
    again = await writer.call("update_scope", request, key="policy")
    assert again.body == first.body
    assert again.headers[HEADER_REPLAYED] == "true"
    error = await writer.refused("update_scope", change(writer, {}, 0), key="policy")
    assert error["code"] == "duplicate_operation"
    assert await writer.count("core.scope_policy") == 1
    looked_up = await writer.ok(
        "get_operation", {"scope_id": writer.scope, "operation": "update_scope", "idempotency_key": "policy"}
    )
    assert (looked_up["state"], looked_up["outcome"]) == ("committed", orjson.loads(first.body))


async def test_types_are_those_that_the_policy_allows(writer: Writer) -> None:
    schema_id = "https://schemas.example.com/any"
    await set_policy(writer, ONLY_CLAIMS, 0)
    await writer.create()
    await writer.create(object_type="com.example.note", schema_id=schema_id)
    for object_type, rule in (
        ("decision", "allow"),
        ("com.example.private.note", "deny/0"),
        ("com.other.note.a", "allow"),
    ):
        error = await writer.refused("create", claim(writer.scope, object_type=object_type, schema_id=schema_id))
        assert error["code"] == "unsupported_object_type"
        assert error["policy_rule_id"] == f"scope-policy/1/object_types/{rule}"
    await set_policy(writer, {"object_types": {"deny": ["*"]}}, 1)
    assert (await writer.refused("create", claim(writer.scope)))["code"] == "unsupported_object_type"


async def test_a_scope_can_be_made_with_its_policy(writer: Writer) -> None:
    document = {"scope_id": "scope:with-policy", "policy": ONLY_CLAIMS}
    made = await writer.ok("create_scope", document)
    assert (made["scope"]["policy"], made["policy_version"]) == (ONLY_CLAIMS, 1)
    writer.scopes.append("scope:with-policy")
    error = await writer.refused("create", claim("scope:with-policy", object_type="task"))
    assert error["policy_rule_id"] == "scope-policy/1/object_types/allow"
    again = await writer.call("create_scope", document)
    assert again.headers[HEADER_REPLAYED] == "true"
    others: list[Document] = [{}, {"policy": {}}, {"policy": OPENED}]
    for other in others:
        error = await writer.refused("create_scope", {"scope_id": "scope:with-policy", **other})
        assert error["code"] == "duplicate_operation"
    await writer.ok("update_scope", change(writer, {}, 1, scope_id="scope:with-policy"))
    assert (await writer.call("create_scope", document)).headers[HEADER_REPLAYED] == "true"
    assert await writer.count("core.scope_policy") == 2


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"override": []}, "policy"),
        ({"overrides": None}, "policy.overrides"),
        ({"overrides": [{"dimension": "lifecycle", "from": "archived"}]}, "policy.overrides[0]"),
        (
            {"overrides": [*OPENED["overrides"], {"dimension": "lifecycle", "from": "active", "to": "archived"}]},
            "policy.overrides[1]",
        ),
        ({"overrides": [{"dimension": "availability", "from": "deleted", "to": "available"}]}, "policy.overrides[0]"),
        (
            {"overrides": [{"dimension": "lifecycle", "from": "archived", "to": "active", "roles": []}]},
            "policy.overrides[0].roles",
        ),
        ({"object_types": {"allow": ["Claim"]}}, "policy.object_types.allow[0]"),
        ({"object_types": {"deny": ["claim", "com.*.*"]}}, "policy.object_types.deny[1]"),
        ({"retention": {"default": {"ttl_seconds": 0}}}, "policy.retention.default.ttl_seconds"),
        ({"retention": {"by_type": {"nothing": {}}}}, "policy.retention.by_type"),
        ({"retention": {"default": {"max_versions": 1}}}, "policy.retention.default.max_versions"),
        ({"retention": {"default": {"decay": {"importance": 1.5}}}}, "policy.retention.default.decay.importance"),
        ({"retention": {"default": {"decay": {"threshold": 0}}}}, "policy.retention.default.decay.threshold"),
        ({"retention": {"default": {"decay": {"rate_at": "rate"}}}}, "policy.retention.default.decay.rate_at"),
        (
            {"retention": {"default": {"deletion": {"after_seconds": -1}}}},
            "policy.retention.default.deletion.after_seconds",
        ),
        ({"cross_scope": {"relate_to": [{"scope_id": "estate"}]}}, "policy.cross_scope.relate_to[0].scope_id"),
        (
            {"cross_scope": {"traverse_from": [{"scope_id": "workspace:a", "relationship_types": []}]}},
            "policy.cross_scope.traverse_from[0]",
        ),
        ({"object_types": {"deny": [f"com.example.{'a' * 200}{n}.*" for n in range(400)]}}, "policy"),
    ],
)
async def test_a_policy_that_breaks_its_contract_never_applies(writer: Writer, policy: Any, field: str) -> None:
    before = await epochs(writer)
    error = await writer.refused("update_scope", change(writer, policy, 0))
    assert (error["code"], error["details"]["field"]) == ("invalid_request", field)
    error = await writer.refused("create_scope", {"scope_id": "scope:never-made", "policy": policy})
    assert (error["code"], error["details"]["field"]) == ("invalid_request", field)
    assert (await epochs(writer))[1:] == before[1:]
    assert await writer.count("core.scope_policy") == 0


def test_the_limit_of_a_policy_is_told() -> None:
    assert MAX_POLICY_BYTES == 65536


async def test_another_process_decides_by_the_new_policy_at_once(writers: tuple[Writer, Writer]) -> None:
    """Both hold the rules of the version before; nobody tells them of the next."""
    first, second = writers
    made = await first.create(lifecycle_state="archived")
    for n in range(6):
        changing, deciding = (first, second) if n % 2 else (second, first)
        await set_policy(changing, OPENED if n % 2 == 0 else {}, n)
        answer = await deciding.call("transition", move(made, "active"))
        assert answer.status == (200 if n % 2 == 0 else 409), n
        if answer.status == 200:
            made = await changing.ok("transition", move(orjson.loads(answer.body), "archived"))
    assert await first.count("core.scope_policy") == 6


async def test_a_foreign_tenant_changes_nothing(writer: Writer) -> None:

    stranger = Principal("tenant:foreign", "agent:stranger", "agent")
    error = await writer.refused("update_scope", change(writer, OPENED, 0), by=stranger)
    assert error["code"] == "scope_not_found"
    await writer.ok("update_scope", change(writer, OPENED, 0), by=OTHER)


def test_a_pattern_has_one_star() -> None:
    assert matches("com.example.*", "com.example.note")
    assert matches("*.note", "com.example.note")
    assert matches("com.*.note", "com.example.note")
    assert not matches("com.*.note", "com.note")
    assert not matches("com.note.*.note", "com.note.note")
    assert not matches("claim", "claims")
