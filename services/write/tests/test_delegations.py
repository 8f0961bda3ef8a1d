"""Grants as records and at work: what they let a delegate do, within which terms, and what they leave behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pamspec_common.principal import Principal
from services.write.tests.delegating import FAR, LATER, LONG_AGO, STRANGERS, Delegating, actor, agent
from services.write.tests.test_rights import bind, moved, rules
from services.write.tests.writer import AGENT, PROVENANCE, SUBSCRIPTION, TENANT, Document, claim, edge


async def test_a_grant_is_a_versioned_record(given: Delegating) -> None:
    named = actor(given.delegate) | {"display_name": "The delegate"}
    granted = await given.grant(delegated_actor=named, usage_limit=3, granted_object_types=["claim"])
    envelope = granted["envelope"]
    assert envelope["delegation_id"] == granted["delegation_id"]
    assert (envelope["granting_actor"], envelope["delegated_actor"]) == (actor(given.grantor), named)
    assert (envelope["policy_basis"], envelope["lifecycle_state"]) == ("policy:handoff", "active")
    assert (granted["remaining_uses"], granted["redelegation_depth"], granted["sequence"]) == (3, 0, 1)
    revoked = await given.revoke(granted, expected_version_id=granted["version_id"])
    assert (revoked["sequence"], revoked["envelope"]["lifecycle_state"]) == (2, "archived")
    assert revoked["envelope"]["delegated_actor"] == named
    assert revoked["envelope"]["policy_basis"] == "policy:handoff"
    same = [name for name in envelope if name.startswith("granted_") or name in ("usage_limit", "not_after")]
    assert {name: revoked["envelope"][name] for name in same} == {name: envelope[name] for name in same}
    events = await given.events()
    assert [event["event_type"] for event in events] == ["delegation_granted", "delegation_revoked"]
    assert all(event["payload"]["granting_actor_id"] == given.grantor.actor_id for event in events)
    await given.writer.check_scope()


async def test_what_a_grant_says_of_persons_and_reasons_can_be_erased(given: Delegating) -> None:
    secret = {"display_name": "NAME-OF-A-PERSON"}
    granted = await given.grant(delegated_actor=actor(given.delegate) | secret, policy_basis="BASIS-OF-A-GRANT")
    await given.revoke(granted, policy_basis="BASIS-OF-AN-END")
    kept = await given.writer.admin.fetch(
        "SELECT v.metadata FROM core.version v WHERE v.object_id = $1", granted["delegation_id"]
    )
    stored = b"".join(row["metadata"] for row in kept) + b"".join(one.raw for one in await given.writer.ledger())
    for text in (b"NAME-OF-A-PERSON", b"BASIS-OF-A-GRANT", b"BASIS-OF-AN-END"):
        assert text not in stored


async def test_a_write_under_a_grant_names_it_everywhere(given: Delegating) -> None:
    granted = await given.grant()
    made = await given.create(granted)
    named = actor(given.delegate) | {"delegation_id": granted["delegation_id"]}
    assert made["envelope"]["actor"] == made["envelope"]["provenance"]["actor"] == named
    created, exercised = [entry.event for entry in await given.writer.ledger()][-2:]
    assert (created["event_type"], created["actor"]) == ("object_created", named)
    assert made["event_id"] == created["event_id"]
    assert made["ledger_sequence"] == exercised["sequence"]
    assert (exercised["event_type"], exercised["actor"]) == ("delegation_exercised", named)
    assert exercised["object_id"] == made["object_id"]
    told = {
        "delegation_id": granted["delegation_id"],
        "granting_actor_id": given.grantor.actor_id,
        "delegated_actor_id": given.delegate.actor_id,
        "operation": "create",
    }
    assert told.items() <= exercised["payload"].items()
    await given.writer.check_scope()


async def test_the_delegate_has_the_rights_of_its_grantor_and_none_without_the_grant(given: Delegating) -> None:
    await bind(given.writer, given.grantor.actor_id, "editor", given.scope)
    granted = await given.grant(granted_operations=["create", "update", "transition"])
    made = await given.create(granted)
    assert (await given.writer.refused("create", claim(given.scope), by=given.delegate))["code"] == "scope_not_found"
    assert (await given.writer.refused("create", given.creating(granted, validation_state="corroborated"),
                                       by=given.delegate))["details"] == {"action": "create"}  # fmt: skip
    move = given.writer.change(made, dimension="validation", target_state="corroborated", policy_basis="x")
    error = await given.writer.refused(
        "transition", move | {"delegation_id": granted["delegation_id"]}, by=given.delegate
    )
    assert error["code"] == "access_denied"
    await given.writer.ok("update", given.updating(granted, made), by=given.delegate)


async def test_a_grant_of_what_the_grantor_may_not_do_is_refused(given: Delegating) -> None:
    error = await given.refused_grant(granted_operations=["read", "transition"])
    assert (error["code"], error["details"]) == (
        "access_denied",
        {"reason": "grantor_rights", "operation": "transition"},
    )
    nobody = agent("nobody")
    assert (await given.refused_grant(nobody))["code"] == "scope_not_found"
    await bind(given.writer, nobody.actor_id, "reader", given.scope)
    assert (await given.refused_grant(nobody))["code"] == "access_denied"
    assert not await given.events()


async def test_a_grantor_that_lost_its_role_has_no_effective_grant(given: Delegating) -> None:
    granted = await given.grant()
    made = await given.create(granted)
    await given.writer.admin.execute("DELETE FROM core.role_binding WHERE actor_id = $1", given.grantor.actor_id)
    await moved(given.writer, given.scope)
    assert await given.denied(granted) == await given.unchecked(granted) == "grantor_rights"
    await bind(given.writer, given.grantor.actor_id, "reader", given.scope)
    error = await given.writer.refused("update", given.updating(granted, made), by=given.delegate)
    assert error["details"]["reason"] == "grantor_rights"
    await bind(given.writer, given.grantor.actor_id, "editor", given.scope)
    await given.writer.ok("update", given.updating(granted, made), by=given.delegate)


async def test_a_grantor_that_has_its_role_by_a_key_loses_it_with_the_key(given: Delegating) -> None:
    holder = agent("holder-of-a-key")
    await given.writer.admin.execute(
        "INSERT INTO core.api_key (key_id, tenant_id, key_hash, actor_id, actor_kind, roles) "
        "VALUES ($1, $2, $3, $4, 'agent', '{contributor}')",
        holder.actor_id, TENANT, holder.actor_id.encode(), holder.actor_id,
    )  # fmt: skip
    holder = Principal(TENANT, holder.actor_id, "agent", roles=frozenset({"contributor"}))
    granted = await given.grant(holder)
    await given.create(granted)
    await given.writer.admin.execute(
        "UPDATE core.api_key SET revoked_at = clock_timestamp() WHERE key_id = $1", holder.actor_id
    )
    assert await given.denied(granted) == "grantor_rights"


async def test_rules_can_forbid_what_is_delegated(given: Delegating) -> None:
    granted = await given.grant()
    await given.create(granted)
    forbid = (
        '@id("in-person") forbid(principal, action == Action::"create", resource) when { principal has delegation_id };'
    )
    await rules(given.writer, forbid, given.scope)
    error = await given.writer.refused("create", given.creating(granted), by=given.delegate)
    assert error["code"] == "access_denied"
    await given.writer.ok("create", claim(given.scope), by=given.grantor)


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"not_before": FAR, "not_after": LONG_AGO}, "policy_denied"),
        ({"granted_operations": ["read", "fly"]}, "invalid_object"),
        ({"granted_operations": []}, "invalid_object"),
        ({"granted_operations": ["read", "read"]}, "invalid_object"),
        ({"granted_operations": ["grant_delegation"]}, "invalid_object"),
        ({"usage_limit": 0}, "invalid_object"),
        ({"redelegation_depth": 9}, "invalid_object"),
        ({"granted_object_ids": ["no id"]}, "invalid_object"),
        ({"not_after": "tomorrow"}, "invalid_object"),
        ({"not_after": None}, "invalid_object"),
        ({"delegated_actor": {"actor_id": "agent:a"}}, "invalid_object"),
        ({"policy_basis": None}, "invalid_request"),
        ({"policy_basis": ""}, "invalid_request"),
        ({"target_scope_id": "scope:nowhere"}, "scope_not_found"),
        ({"granting_actor": {"actor_id": "agent:somebody-else", "actor_kind": "agent"}}, "access_denied"),
        ({"delegated_actor": "self"}, "policy_denied"),
        ({"validation_state": "corroborated"}, "access_denied"),
        ({"delegation_id": "dlg:none"}, "object_not_found"),
    ],
)  # fmt: skip
async def test_grants_that_are_refused(given: Delegating, members: Document, code: str) -> None:
    if members.get("delegated_actor") == "self":
        members = {"delegated_actor": actor(given.grantor)}
    assert (await given.refused_grant(**members))["code"] == code
    assert not await given.events()


async def test_terms_bound_what_is_done(given: Delegating) -> None:
    writer = given.writer
    mine = await writer.create(object_type="task")
    other = await writer.create()
    granted = await given.grant(
        granted_operations=["update", "create", "delete"],
        granted_object_ids=[mine["object_id"], other["object_id"], "obj:new"],
        granted_object_types=["task"],
    )

    async def reason(operation: str, document: Document) -> Any:
        error = await writer.refused(operation, document, by=given.delegate)
        return error["code"] if error["code"] != "access_denied" else error["details"]["reason"]

    under = {"delegation_id": granted["delegation_id"]}
    unknown = given.updating(granted, mine, object_id="obj:unknown")
    third = await writer.create(object_type="task")
    assert await reason("update", given.updating(granted, third)) == await reason("update", unknown) == "object_id"
    assert await reason("update", given.updating(granted, other)) == "object_not_found"
    assert await reason("create", given.creating(granted, object_type="task")) == "object_id"
    assert await reason("create", given.creating(granted, object_id="obj:new")) == "object_type"
    assert await reason("transition", writer.change(mine, dimension="lifecycle", target_state="archived",
                                                    policy_basis="x", **under)) == "operation"  # fmt: skip
    related = await writer.relate(mine, third)
    assert await reason("delete", writer.change(related, policy_basis="x", **under)) == "object_id"
    await given.create(granted, object_id="obj:new", object_type="task")
    await writer.ok("update", given.updating(granted, mine), by=given.delegate)
    assert len(await given.events("delegation_exercised")) == 2


async def test_relationships_and_promotions_touch_what_they_join(given: Delegating) -> None:
    writer = given.writer
    a, b = await writer.create(), await writer.create(object_type="task")
    memory = await writer.create({"task_ref": "task:1", "content": 1}, object_type="working_memory")
    claims = await given.grant(granted_operations=["relate", "promote"], granted_object_types=["claim"])
    listed = await given.grant(granted_operations=["relate"], granted_object_ids=[a["object_id"]])
    both = await given.grant(granted_operations=["relate", "promote"])
    under = [{"delegation_id": granted["delegation_id"]} for granted in (claims, listed, both)]
    error = await writer.refused("relate", edge(a, b, **under[0]), by=given.delegate)
    assert error["code"] == "object_not_found"
    error = await writer.refused("relate", edge(a, b, **under[1]), by=given.delegate)
    assert error["details"]["reason"] == "object_id"
    await writer.ok("relate", edge(a, b, **under[2]), by=given.delegate)
    promoting = {
        "scope_id": given.scope,
        "source_object_id": memory["object_id"],
        "expected_version_id": memory["version_id"],
        "target_object_type": "claim",
        "target_canonical_content": 1,
        "provenance": PROVENANCE,
    }
    error = await writer.refused("promote", promoting | under[0], by=given.delegate)
    assert error["details"]["reason"] == "object_type"
    await writer.ok("promote", promoting | under[2], by=given.delegate)
    assert [event["payload"]["operation"] for event in await given.events("delegation_exercised")] == [
        "relate",
        "promote",
    ]
    await writer.check_scope()


async def test_windows_are_those_of_the_store(given: Delegating) -> None:
    early = await given.grant(not_before=LATER)
    late = await given.grant(not_after="2002-01-01T00:00:00Z")
    for granted, reason in ((early, "not_before"), (late, "not_after")):
        assert await given.denied(granted) == await given.unchecked(granted) == reason
    now = await given.writer.admin.fetchval("SELECT clock_timestamp()")
    passed = await given.grant(not_before=now.isoformat(), not_after=now.isoformat())
    assert await given.denied(passed) == "not_after"


async def test_a_limit_is_spent_once_per_operation_and_not_by_denials(given: Delegating) -> None:
    granted = await given.grant(usage_limit=2)
    unknown = {"scope_id": given.scope, "object_id": "obj:unknown", "version_id": "ver:1"}
    refusal = await given.writer.refused("update", given.updating(granted, unknown), by=given.delegate)
    assert refusal["code"] == "object_not_found"
    first = await given.create(granted, idempotency_key="first")
    for _ in range(3):
        assert await given.create(granted, idempotency_key="first") == first
    await given.create(granted)
    assert await given.denied(granted) == await given.unchecked(granted) == "usage_limit"
    assert await given.create(granted, idempotency_key="first") == first
    assert len(await given.events("delegation_exercised")) == 2
    assert await given.writer.only("used", "core.delegation") == 2


async def test_a_revocation_is_effective_at_once_and_for_all_below(given: Delegating) -> None:
    granted = await given.grant(redelegation_depth=1)
    below = agent("below")
    child = await given.grant(given.delegate, below, delegation_id=granted["delegation_id"])
    assert child["envelope"]["actor"]["delegation_id"] == granted["delegation_id"]
    await given.create(child, below, idempotency_key="k")
    await given.revoke(granted)
    assert await given.denied(granted) == await given.unchecked(granted) == "revoked"
    assert await given.denied(child, below) == await given.unchecked(child, below) == "ancestor_revoked"
    assert await given.denied(child, below, idempotency_key="k") == "ancestor_revoked"
    again = {"delegation_id": granted["delegation_id"], "policy_basis": "x"}
    assert (await given.writer.refused("revoke_delegation", again, by=given.grantor))["code"] == (
        "invalid_state_transition"
    )
    fixed = await given.grant(revocable=False)
    error = await given.writer.refused(
        "revoke_delegation", again | {"delegation_id": fixed["delegation_id"]}, by=given.grantor
    )
    assert (error["code"], error["details"]) == ("policy_denied", {"reason": "irrevocable"})


async def test_who_may_revoke(given: Delegating) -> None:
    granted = await given.grant(redelegation_depth=1)
    below = agent("below")
    child = await given.grant(given.delegate, below, delegation_id=granted["delegation_id"])
    request = {"delegation_id": child["delegation_id"], "policy_basis": "x"}
    colleague = agent("colleague")
    await bind(given.writer, colleague.actor_id, "contributor", given.scope)
    await bind(given.writer, below.actor_id, "contributor", given.scope)

    async def code(by: Principal, **members: Any) -> str:
        return str((await given.writer.refused("revoke_delegation", request | members, by=by))["code"])

    assert await code(colleague) == "object_not_found"
    assert await code(STRANGERS) == "object_not_found"
    assert await code(below) == "access_denied"
    assert await code(given.grantor, scope_id="scope:another") == "object_not_found"
    assert await code(given.grantor, expected_version_id="ver:old") == "version_conflict"
    await given.revoke(child, given.grantor)
    await given.revoke(granted, AGENT)


async def test_checks_use_a_grant_unless_they_say_otherwise(given: Delegating) -> None:
    granted = await given.grant(usage_limit=2, granted_operations=["read"], granted_object_ids=["obj:a"])
    checking: Document = {"operation": "read", "object_id": "obj:a"}
    looked = await given.check(granted, consume=False, **checking)
    assert (looked["remaining_uses"], looked["envelope"]) == (2, granted["envelope"])
    assert await given.unchecked(granted, operation="delete") == "operation"
    assert await given.unchecked(granted, operation="read", object_id="obj:b") == "object_id"
    assert await given.unchecked(granted, operation="read", scope_id="scope:another") == "scope"
    assert await given.unchecked(granted, given.grantor, **checking) == "delegate"
    assert await given.unchecked(granted, AGENT, actor=actor(agent("x")), **checking) == "delegate"
    used = await given.check(granted, idempotency_key="k", **checking)
    assert used["remaining_uses"] == 1
    assert await given.check(granted, idempotency_key="k", **checking) == used
    found = await given.writer.ok(
        "get_operation",
        {"scope_id": given.scope, "operation_id": used["operation_id"]},
        by=Principal(TENANT, given.delegate.actor_id, "agent", roles=frozenset({"reader"})),
    )
    assert found["outcome"] == used
    assert (await given.check(granted, AGENT, actor=actor(given.delegate), **checking))["remaining_uses"] == 0
    assert await given.unchecked(granted, **checking) == "usage_limit"
    assert len(await given.events("delegation_exercised")) == 2
    await given.writer.check_scope()


async def test_services_tell_of_the_reads_under_a_grant(given: Delegating) -> None:
    unlimited = await given.grant()
    limited = await given.grant(usage_limit=5)

    async def exercise(granted: Document, **members: Any) -> Document:
        request = {"delegation_id": granted["delegation_id"], "operation": "read", "actor": actor(given.delegate)}
        return await given.writer.ok("exercise_delegation", request | members, by=SUBSCRIPTION)

    answers = [await exercise(unlimited, count=7) for _ in range(20)]
    events = await given.events("delegation_exercised")
    minutes = {event["recorded_at"][:16] for event in events}
    assert len(minutes) == len(events) == sum(answer["recorded"] for answer in answers)
    untold = await given.writer.only("untold", "core.delegation_tally")
    assert sum(event["payload"].get("count", 1) for event in events) + untold == 140
    assert (await exercise(limited, count=4))["remaining_uses"] == 1
    request = {"delegation_id": limited["delegation_id"], "operation": "read", "actor": actor(given.delegate)}
    error = await given.writer.refused("exercise_delegation", request | {"count": 2}, by=SUBSCRIPTION)
    assert error["details"]["reason"] == "usage_limit"
    assert (await exercise(limited))["remaining_uses"] == 0
    error = await given.writer.refused("exercise_delegation", request, by=given.delegate)
    assert error["code"] == "access_denied"
    await given.writer.check_scope()


async def test_uses_are_told_when_their_minute_is_over_and_before_a_revocation(given: Delegating) -> None:
    """No use that a service told of is missing from the ledger, whenever the next one comes."""
    writer = given.writer
    granted = [await given.grant(granted_operations=["read", "query"]) for _ in range(2)]

    async def exercise(of: Document, operation: str = "read") -> None:
        request = {"delegation_id": of["delegation_id"], "operation": operation, "actor": actor(given.delegate)}
        await writer.ok("exercise_delegation", request | {"count": 3}, by=SUBSCRIPTION)

    for of in granted:
        for operation in ("read", "query", "read", "query"):
            await exercise(of, operation)

    async def told(of: Document) -> int:
        events = await given.events("delegation_exercised")
        own = [event["payload"] for event in events if event["payload"]["delegation_id"] == of["delegation_id"]]
        return sum(payload.get("count", 1) for payload in own)

    await given.revoke(granted[0])
    assert await told(granted[0]) == 12
    assert (await given.events())[-1]["event_type"] == "delegation_revoked"
    await writer.admin.execute(
        "UPDATE core.delegation_tally SET told_at = told_at - interval '1 minute' WHERE delegation_id = $1",
        granted[1]["delegation_id"],
    )
    async with asyncio.timeout(60):
        while await told(granted[1]) < 12:
            await asyncio.sleep(0.05)
    assert await writer.count("core.delegation_tally", "untold > 0") == 0
    await writer.check_scope()


async def test_batches_act_under_a_grant(given: Delegating) -> None:
    granted = await given.grant(usage_limit=3)
    item = {name: value for name, value in claim(given.scope).items() if name != "scope_id"} | {"operation": "create"}
    batch = {"scope_id": given.scope, "delegation_id": granted["delegation_id"], "items": [item, item]}
    answer = await given.writer.ok("batch", batch | {"atomic": True, "idempotency_key": "b"}, by=given.delegate)
    assert all(one["envelope"]["actor"]["delegation_id"] == granted["delegation_id"] for one in answer["results"])
    assert await given.writer.ok("batch", batch | {"atomic": True, "idempotency_key": "b"}, by=given.delegate) == answer
    refused = await given.writer.refused("batch", batch | {"atomic": True}, by=given.delegate)
    assert refused["details"] == {"reason": "usage_limit", "index": 1}
    assert await given.writer.only("used", "core.delegation") == 2
    answer = await given.writer.ok("batch", batch, by=given.delegate)
    assert ["error" in one for one in answer["results"]] == [False, True]
    assert await given.writer.only("used", "core.delegation") == 3
    await given.writer.check_scope()
