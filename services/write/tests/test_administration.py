"""Administration of rights: roles, rules, explanations and their record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pamspec_common.principal import Principal
from services.write.tests.test_rights import NOBODY, holder
from services.write.tests.writer import AGENT, TENANT, Document, Writer, claim

NO_TASKS = (
    '@id("no-tasks") forbid (principal, action == Action::"create", resource) when { resource.object_type == "task" };'
)


def guest_of(writer: Writer) -> Principal:
    """An actor of this test alone."""
    return Principal(TENANT, f"agent:guest-{writer.scope.partition(':')[2]}", "agent")


def binding(writer: Writer, guest: Principal, role: str = "contributor", **more: Any) -> Document:
    """A request about the guest's role in the scope of the test."""
    return {"scope_id": writer.scope, "actor_id": guest.actor_id, "role": role, "policy_basis": "ticket:1", **more}


async def test_a_role_counts_from_its_answer_on_until_it_is_taken(shared: Writer) -> None:
    guest = guest_of(shared)
    assert (await shared.refused("create", claim(shared.scope), by=guest))["code"] == "scope_not_found"
    given = await shared.ok("bind_role", binding(shared, guest))
    assert (given["bound"], given["changed"]) == (True, True)
    assert (await shared.ok("bind_role", binding(shared, guest)))["changed"] is False
    await shared.ok("create", claim(shared.scope), by=guest)
    assert (await shared.ok("unbind_role", binding(shared, guest)))["changed"] is True
    assert (await shared.refused("create", claim(shared.scope), by=guest))["code"] == "scope_not_found"
    listed = await shared.ok("list_administration", {"scope_id": shared.scope})
    assert [(entry["operation"], entry["subject"], entry["detail"]) for entry in listed["entries"]] == [
        ("unbind_role", guest.actor_id, "contributor"),
        ("bind_role", guest.actor_id, "contributor"),
    ]


async def test_a_role_in_the_tenant_and_pages_of_bindings(shared: Writer) -> None:
    guest = guest_of(shared)
    document = binding(shared, guest)
    del document["scope_id"]
    await shared.ok("bind_role", document)
    await shared.ok("create", claim(shared.scope), by=guest)
    await shared.ok("create", claim(await shared.new_scope()), by=guest)
    await shared.ok("unbind_role", document)
    assert (await shared.refused("create", claim(shared.scope), by=guest))["code"] == "scope_not_found"
    for number in range(5):
        await shared.ok("bind_role", binding(shared, Principal(TENANT, f"agent:{number}", "agent"), "reader"))
    seen, cursor = [], None
    while True:
        page = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
        answer = await shared.ok("list_role_bindings", {"scope_id": shared.scope, "pagination": page})
        seen += [one["actor_id"] for one in answer["role_bindings"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert seen == [f"agent:{number}" for number in range(5)]


@pytest.mark.parametrize("operation", ["bind_role", "set_access_rules", "list_role_bindings", "explain_access"])
async def test_only_administrators_administer(shared: Writer, operation: str) -> None:
    document = {
        "bind_role": binding(shared, guest_of(shared), "admin"),
        "set_access_rules": {
            "scope_id": shared.scope, "rules": "", "expected_rules_version": 0, "policy_basis": "x",
        },
        "list_role_bindings": {"scope_id": shared.scope},
        "explain_access": {"scope_id": shared.scope, "actor_id": "agent:x", "action": "read"},
    }[operation]  # fmt: skip
    assert (await shared.refused(operation, document, by=NOBODY))["code"] == "scope_not_found"
    for role in ("reader", "contributor", "curator", "platform"):
        error = await shared.refused(operation, document, by=holder(role))
        assert error["code"] in ("access_denied", "scope_not_found")
    stranger = Principal("tenant:elsewhere", "agent:tester", "agent", roles=frozenset({"admin"}))
    assert (await shared.refused(operation, document, by=stranger))["code"] == "scope_not_found"
    if operation != "explain_access":
        everywhere = {name: value for name, value in document.items() if name != "scope_id"}
        assert (await shared.refused(operation, everywhere, by=holder("curator")))["code"] == "access_denied"


async def test_rules_follow_one_another(shared: Writer) -> None:
    document = {"scope_id": shared.scope, "rules": NO_TASKS, "expected_rules_version": 0, "policy_basis": "ticket:2"}
    dry = await shared.ok("set_access_rules", {**document, "dry_run": True})
    assert (dry["rules_version"], dry["dry_run"]) == (0, True)
    await shared.ok("create", claim(shared.scope, object_type="task"))
    assert (await shared.ok("set_access_rules", document))["rules_version"] == 1
    refused = await shared.refused("create", claim(shared.scope, object_type="task"))
    assert refused["policy_rule_id"] == "no-tasks"
    conflict = await shared.refused("set_access_rules", document)
    assert conflict["details"] == {"current_rules_version": 1, "expected_rules_version": 0}
    shown = await shared.ok("get_access_rules", {"scope_id": shared.scope})
    assert (shown["rules_version"], shown["rules"], shown["changed_by"]) == (1, NO_TASKS, AGENT.actor_id)
    await shared.ok("set_access_rules", {**document, "rules": "", "expected_rules_version": 1})
    await shared.ok("create", claim(shared.scope, object_type="task"))
    earlier = await shared.ok("get_access_rules", {"scope_id": shared.scope, "rules_version": 1})
    assert earlier["rules"] == NO_TASKS
    missing = {"scope_id": shared.scope, "rules_version": 9}
    assert (await shared.refused("get_access_rules", missing))["code"] == "object_not_found"


async def test_of_many_authors_one_is_first(shared: Writer) -> None:
    document = {"scope_id": shared.scope, "rules": NO_TASKS, "expected_rules_version": 0, "policy_basis": "x"}
    answers = await asyncio.gather(*(shared.call("set_access_rules", document) for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [200, *[409] * 7]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("permit(principal, action, resource)", "not Cedar"),
        ('@id("a") permit(principal, action, resource) when { resource.mood == "x" };', "mood"),
        ('@id("a") permit(principal, action, resource) when { resource.object_type like "a*" };', "like"),
    ],
)
async def test_rules_that_cannot_apply_say_why(shared: Writer, rules: str, said: str) -> None:
    document = {"scope_id": shared.scope, "rules": rules, "expected_rules_version": 0, "policy_basis": "x"}
    error = await shared.refused("set_access_rules", document)
    assert error["code"] == "invalid_request"
    assert any(said in one["problem"] for one in error["details"]["problems"])
    assert (await shared.ok("get_access_rules", {"scope_id": shared.scope}))["rules_version"] == 0


async def test_nobody_locks_themselves_out(shared: Writer) -> None:
    rules = '@id("nobody") forbid (principal, action == Action::"administer", resource);'
    document = {"scope_id": shared.scope, "rules": rules, "expected_rules_version": 0, "policy_basis": "x"}
    assert (await shared.refused("set_access_rules", document))["details"]["reason"] == "lock_out"
    everywhere = {name: value for name, value in document.items() if name != "scope_id"}
    assert (await shared.refused("set_access_rules", everywhere))["details"]["reason"] == "lock_out"
    await shared.ok("bind_role", binding(shared, guest_of(shared)))


async def test_access_is_explained(shared: Writer) -> None:
    guest = guest_of(shared)
    await shared.ok("bind_role", binding(shared, guest))
    rules = {"scope_id": shared.scope, "rules": NO_TASKS, "expected_rules_version": 0, "policy_basis": "x"}
    await shared.ok("set_access_rules", rules)
    memory = {
        "object_type": "task",
        "lifecycle_state": "active",
        "availability_state": "available",
        "retention_state": "retained",
        "validation_state": "unverified",
        "creator": guest.actor_id,
    }
    asked = {"scope_id": shared.scope, "actor_id": guest.actor_id, "action": "create", "memory": memory}
    told = await shared.ok("explain_access", asked)
    assert (told["allowed"], told["roles"], told["policy_rule_id"]) == (False, ["contributor"], "no-tasks")
    assert (await shared.ok("explain_access", {**asked, "memory": {**memory, "object_type": "claim"}}))["allowed"]
    assert (await shared.refused("explain_access", {**asked, "action": "fly"}))["details"]["field"] == "action"
