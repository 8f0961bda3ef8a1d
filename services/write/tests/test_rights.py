"""Who may write what: roles and rules in force under the lock, and no word of what an actor may not see."""

from __future__ import annotations

import orjson
import pytest

from pamspec_common.principal import Principal
from services.write.tests.writer import ADMIN, AGENT, PROVENANCE, TENANT, Document, Writer, claim, edge

NOBODY = Principal(TENANT, "agent:nobody", "agent")
ROLES = ("reader", "contributor", "editor", "reviewer", "curator", "auditor", "admin", "platform")


def holder(role: str) -> Principal:
    """A principal with one role in the whole tenant."""
    return Principal(TENANT, f"agent:{role}", "agent", roles=frozenset({role}))


async def bind(writer: Writer, actor_id: str, role: str, scope: str | None = None) -> None:
    """Bind a role, in a scope or in the tenant, as an administrator's command does: with the epoch raised."""
    key = 0 if scope is None else await writer.scope_key(scope)
    await writer.admin.execute(
        "INSERT INTO core.role_binding (tenant_id, scope_key, actor_id, role, bound_by) VALUES ($1, $2, $3, $4, 'a:b')",
        TENANT, key, actor_id, role,
    )  # fmt: skip
    await moved(writer, scope)


async def moved(writer: Writer, scope: str | None) -> None:
    """Raise the authorization epoch."""
    if scope is None:
        await writer.admin.execute("UPDATE core.tenant SET epoch_authz = epoch_authz + 1 WHERE tenant_id = $1", TENANT)
        return
    await writer.admin.execute(
        "UPDATE core.scope_head SET epoch_authz = epoch_authz + 1, revision = revision + 1 WHERE scope_key = $1",
        await writer.scope_key(scope),
    )


async def rules(writer: Writer, text: str, scope: str) -> None:
    """Put rules in force in a scope."""
    key = await writer.scope_key(scope)
    await writer.admin.execute(
        "INSERT INTO core.access_rules (tenant_id, scope_key, rules_version, text, policy_basis, actor_id) "
        "SELECT $1, $2, coalesce(max(rules_version), 0) + 1, $3, 'test', 'a:b' FROM core.access_rules "
        "WHERE tenant_id = $1 AND scope_key = $2",
        TENANT, key, text,
    )  # fmt: skip
    await moved(writer, scope)


async def test_without_a_role_there_is_no_scope(shared: Writer) -> None:
    made = await shared.create()
    for operation, document in (
        ("create", claim(shared.scope)),
        ("update", shared.change(made, canonical_content="x", provenance=PROVENANCE)),
        ("delete", shared.change(made, policy_basis="x")),
        ("create", claim("scope:does-not-exist")),
    ):
        error = await shared.refused(operation, document, by=NOBODY)
        assert (error["code"], error["details"]) == ("scope_not_found", {})
    assert (await shared.refused("create_scope", {"scope_id": "scope:of-nobody"}, by=NOBODY))["code"] == "access_denied"
    assert await shared.count("core.version") == 1


@pytest.mark.parametrize("role", ROLES)
async def test_what_each_role_may_make(shared: Writer, role: str) -> None:
    by = holder(role)
    may_create = role not in ("reader", "auditor", "platform")
    trusted = claim(shared.scope, validation_state="corroborated")
    for document, allowed in ((claim(shared.scope), may_create), (trusted, role in ("reviewer", "curator", "admin"))):
        answer = await shared.call("create", document, by=by)
        assert (answer.status == 201) == allowed, answer.body
    theirs = await shared.create()
    deleting = await shared.call("delete", shared.change(theirs, policy_basis="x"), by=by)
    assert (deleting.status == 200) == (role in ("curator", "admin"))
    assert (await shared.call("create_scope", {"scope_id": f"scope:of-{role}"}, by=by)).status == (
        200 if role in ("admin", "platform") else 403
    )


async def test_nobody_trusts_their_own_words(shared: Writer) -> None:
    author = holder("contributor")
    made = await shared.ok("create", claim(shared.scope, lifecycle_state="candidate"), by=author)

    def moves(dimension: str, target: str) -> Document:
        return shared.change(made, dimension=dimension, target_state=target, policy_basis="x")

    for dimension, target in (("validation", "corroborated"), ("lifecycle", "active")):
        error = await shared.refused("transition", moves(dimension, target), by=author)
        assert (error["code"], error["details"]) == ("access_denied", {"action": f"transition_{dimension}"})
    reviewer = holder("reviewer")
    made = await shared.ok("transition", moves("validation", "corroborated"), by=reviewer)
    made = await shared.ok("transition", moves("lifecycle", "active"), by=reviewer)
    change = shared.change(made, canonical_content="better", provenance=PROVENANCE)
    assert (await shared.refused("update", change, by=author))["code"] == "access_denied"
    holding = moves("retention", "legal_hold")
    assert (await shared.refused("transition", holding, by=reviewer))["code"] == "access_denied"
    await shared.ok("transition", holding, by=holder("curator"))


async def test_a_bound_role_holds_where_it_was_bound(shared: Writer) -> None:
    other = await shared.new_scope()
    guest = Principal(TENANT, f"agent:guest-of-{shared.scope.partition(':')[2]}", "agent")
    assert (await shared.refused("create", claim(shared.scope), by=guest))["code"] == "scope_not_found"
    await bind(shared, guest.actor_id, "contributor", shared.scope)
    await shared.ok("create", claim(shared.scope), by=guest)
    assert (await shared.refused("create", claim(other), by=guest))["code"] == "scope_not_found"
    await shared.admin.execute("DELETE FROM core.role_binding WHERE actor_id = $1", guest.actor_id)
    await moved(shared, shared.scope)
    assert (await shared.refused("create", claim(shared.scope), by=guest))["code"] == "scope_not_found"


async def test_a_role_in_the_tenant_holds_in_every_scope_until_it_is_taken(shared: Writer) -> None:
    other = await shared.new_scope()
    guest = Principal(TENANT, f"agent:everywhere-{shared.scope.partition(':')[2]}", "agent")
    await bind(shared, guest.actor_id, "contributor")
    for scope in (shared.scope, other):
        await shared.ok("create", claim(scope), by=guest)
    await shared.admin.execute("DELETE FROM core.role_binding WHERE actor_id = $1", guest.actor_id)
    await moved(shared, None)
    for scope in (shared.scope, other):
        assert (await shared.refused("create", claim(scope), by=guest))["code"] == "scope_not_found"


async def test_rules_of_a_scope_forbid_and_are_named(shared: Writer) -> None:
    await rules(
        shared,
        '@id("no-tasks") forbid(principal, action == Action::"create", resource) '
        'when { resource.object_type == "task" };',
        shared.scope,
    )
    error = await shared.refused("create", claim(shared.scope, object_type="task"))
    assert (error["code"], error["policy_rule_id"]) == ("access_denied", "no-tasks")
    await shared.ok("create", claim(shared.scope))
    await rules(shared, "", shared.scope)
    await shared.ok("create", claim(shared.scope, object_type="task"))


async def test_what_may_not_be_seen_is_not_there(shared: Writer) -> None:
    hidden = await shared.create(object_type="decision")
    seen = await shared.create()
    await rules(
        shared,
        '@id("secret") forbid(principal, action == Action::"read", resource) '
        'when { resource.object_type == "decision" };',
        shared.scope,
    )
    missing = {**hidden, "object_id": "obj:missing"}
    for operation, more in (
        ("update", {"canonical_content": "x", "provenance": PROVENANCE}),
        ("delete", {"policy_basis": "x"}),
        ("transition", {"dimension": "lifecycle", "target_state": "archived", "policy_basis": "x"}),
        ("redact", {"redaction_target": {"whole": True}, "policy_basis": "x"}),
    ):
        bodies = []
        for of in (hidden, missing):
            answer = await shared.call(operation, {**shared.change(of, **more), "operation_id": f"op:{operation}"})
            assert answer.status == 404
            bodies.append(answer.body)
            await shared.admin.execute("DELETE FROM core.operation_record WHERE operation_id = $1", f"op:{operation}")
        assert bodies[0] == bodies[1]
    await shared.ok("delete", shared.change(seen, policy_basis="x"))


async def test_what_may_not_be_seen_cannot_be_related(shared: Writer) -> None:
    hidden, seen = await shared.create(object_type="decision"), await shared.create()
    await rules(
        shared,
        '@id("secret") forbid(principal, action == Action::"read", resource) '
        'when { resource.object_type == "decision" };',
        shared.scope,
    )
    missing = {**hidden, "object_id": "obj:missing"}
    errors = []
    for source, target in ((hidden, seen), (missing, seen), (seen, hidden), (seen, missing)):
        error = await shared.refused("relate", edge(source, target, "supports"))
        errors.append((error["code"], error["message"], error["details"]))
    assert errors[0] == errors[1] != errors[2] == errors[3]
    assert {code for code, _, _ in errors} == {"object_not_found"}


async def test_promotion_makes_nothing_that_its_actor_may_not_make(shared: Writer) -> None:
    author = holder("contributor")
    note = {"task_ref": "task:1", "content": {"seen": "a storm"}}
    made = await shared.ok("create", claim(shared.scope, note, object_type="working_memory"), by=author)
    document = {
        "scope_id": shared.scope,
        "source_object_id": made["object_id"],
        "expected_version_id": made["version_id"],
        "target_object_type": "claim",
        "target_canonical_content": "a storm",
        "provenance": PROVENANCE,
    }
    trusted = {**document, "target_validation_state": "corroborated"}
    assert (await shared.refused("promote", trusted, by=author))["details"] == {"action": "promote"}
    assert len(await shared.ledger()) == 1
    assert (await shared.refused("promote", document, by=holder("reader")))["code"] == "access_denied"
    await shared.ok("promote", document, by=author)


async def test_both_scopes_of_a_relationship_must_be_open_to_the_actor(shared: Writer) -> None:
    far = await shared.new_scope()
    near, target = await shared.create(), await shared.ok("create", claim(far))
    guest = Principal(TENANT, f"agent:between-{shared.scope.partition(':')[2]}", "agent")
    await bind(shared, guest.actor_id, "contributor", shared.scope)
    document = {**edge(near, target, "supports"), "target_scope_id": far, "policy_basis": "test"}
    assert (await shared.refused("relate", document, by=guest))["code"] == "scope_not_found"
    await bind(shared, guest.actor_id, "reader", far)
    assert (await shared.refused("relate", document, by=guest))["code"] == "policy_denied"


async def test_each_item_of_a_batch_has_its_own_refusal(shared: Writer) -> None:
    items = [
        {"operation": "create", **claim(shared.scope, validation_state=state)}
        for state in ("unverified", "corroborated")
    ]
    author = holder("contributor")
    answer = await shared.ok("batch", {"scope_id": shared.scope, "items": items}, by=author)
    assert [result.get("error", {}).get("code") for result in answer["results"]] == [None, "access_denied"]
    atomic = {"scope_id": shared.scope, "items": items, "atomic": True}
    assert (await shared.refused("batch", atomic, by=author))["details"]["index"] == 1
    assert await shared.count("core.version") == 1


async def test_a_replay_needs_the_right_too(shared: Writer) -> None:
    guest = Principal(TENANT, f"agent:replaying-{shared.scope.partition(':')[2]}", "agent")
    await bind(shared, guest.actor_id, "contributor", shared.scope)
    document = claim(shared.scope, "once")
    first = await shared.call("create", document, key="k", by=guest)
    assert (await shared.call("create", document, key="k", by=guest)).body == first.body
    await shared.admin.execute("DELETE FROM core.role_binding WHERE actor_id = $1", guest.actor_id)
    await moved(shared, shared.scope)
    assert (await shared.refused("create", document, key="k", by=guest))["code"] == "scope_not_found"


async def test_an_asserted_actor_has_its_own_roles_or_its_principals(shared: Writer) -> None:
    backend = Principal(TENANT, "service:backend", "service", frozenset({"assert_actor"}), roles=ADMIN)
    plain = {"actor_id": "agent:plain", "actor_kind": "agent"}
    trusted = claim(shared.scope, validation_state="corroborated", actor=plain)
    assert (await shared.ok("create", trusted, by=backend))["envelope"]["actor"]["actor_id"] == "agent:plain"
    await bind(shared, "agent:plain", "contributor", shared.scope)
    assert (await shared.refused("create", trusted, by=backend))["code"] == "access_denied"
    await shared.ok("create", claim(shared.scope, actor=plain), by=backend)


async def test_a_tenant_that_does_not_exist(shared: Writer) -> None:
    stranger = Principal("tenant:unheard-of", "agent:a", "agent", roles=ADMIN)
    error = await shared.refused("create_scope", {"scope_id": "scope:x"}, by=stranger)
    assert error["code"] == "access_denied"
    assert b"unheard" not in orjson.dumps(error)
    assert (await shared.refused("create", claim(shared.scope), by=stranger))["code"] == "scope_not_found"
    await shared.ok("create", claim(shared.scope), by=AGENT)


@pytest.mark.parametrize("place", ["credential", "tenant", "scope"])
async def test_the_role_platform_lets_a_principal_act_for_its_agents(shared: Writer, place: str) -> None:
    """S9: carried by the key, bound in the tenant or in the scope; until it is taken, under the lock too."""
    roles = frozenset({"platform", "contributor"}) if place == "credential" else frozenset({"contributor"})
    platform = Principal(TENANT, f"service:{place}-{shared.scope.partition(':')[2]}", "service", roles=roles)
    asserted = claim(shared.scope, actor={"actor_id": "agent:small", "actor_kind": "agent"})
    if place != "credential":
        refused = await shared.refused("create", asserted, by=platform)
        assert (refused["code"], refused["details"]) == ("access_denied", {"action": "assert_actor"})
        await bind(shared, platform.actor_id, "platform", None if place == "tenant" else shared.scope)
    made = await shared.ok("create", asserted, by=platform)
    assert made["envelope"]["actor"] == {"actor_id": "agent:small", "actor_kind": "agent"}
    event = (await shared.ledger())[-1].event
    assert event["actor"] == {"actor_id": "agent:small", "actor_kind": "agent"}
    assert event["payload"]["authenticated_as"] == platform.actor_id
    if place == "scope":
        elsewhere = claim(await shared.new_scope(), actor=asserted["actor"])
        assert (await shared.refused("create", elsewhere, by=platform))["code"] == "access_denied"
    if place != "credential":
        unbound = {"actor_id": platform.actor_id, "role": "platform", "policy_basis": "x"}
        await shared.ok("unbind_role", unbound | ({"scope_id": shared.scope} if place == "scope" else {}))
        assert (await shared.refused("create", asserted, by=platform))["code"] == "access_denied"
    await shared.ok("create", claim(shared.scope), by=platform)


async def test_a_platform_s_power_is_bound_to_what_its_agents_may(shared: Writer) -> None:
    number = shared.scope.partition(":")[2]
    platform = Principal(TENANT, f"service:platform-{number}", "service", roles=frozenset({"platform", "contributor"}))
    reader, nobody = f"agent:reader-{number}", f"agent:nobody-{number}"
    await bind(shared, reader, "reader", shared.scope)
    for actor_id, code in ((reader, "access_denied"), (nobody, None)):
        document = claim(shared.scope, actor={"actor_id": actor_id, "actor_kind": "agent"})
        answer = await shared.call("create", document, by=platform)
        assert (answer.status < 300) == (code is None), answer.body
    trusted = claim(shared.scope, validation_state="corroborated", actor={"actor_id": nobody, "actor_kind": "agent"})
    assert (await shared.refused("create", trusted, by=platform))["code"] == "access_denied"


async def test_whoever_names_another_actor_learns_no_more_of_scopes(shared: Writer) -> None:
    """Who may not see a scope hears of one that is missing and one that is there in the same words."""
    actor = {"actor_id": "agent:tester", "actor_kind": "agent"}
    there = await shared.refused("create", claim(shared.scope, actor=actor), by=NOBODY)
    nowhere = await shared.refused("create", claim("scope:nowhere", actor=actor), by=NOBODY)
    assert there["code"] == "scope_not_found"
    assert {**there, "operation_id": ""} == {**nowhere, "operation_id": ""}
    item = {**claim(shared.scope, actor=actor), "operation": "create"}
    batch = await shared.refused("batch", {"scope_id": shared.scope, "items": [item], "actor": actor}, by=NOBODY)
    assert batch["code"] == "scope_not_found"
    seen = holder("contributor")
    batch_of = await shared.ok("batch", {"scope_id": shared.scope, "items": [item]}, by=seen)
    assert batch_of["results"][0]["error"]["code"] == "access_denied"
    assert (await shared.refused("create_scope", {"scope_id": "scope:of-another", "actor": actor}, by=seen))[
        "code"
    ] == ("access_denied")
    role = {"scope_id": shared.scope, "actor_id": "agent:x", "role": "admin", "policy_basis": "x", "actor": actor}
    assert (await shared.refused("bind_role", role, by=seen))["code"] == "access_denied"


async def test_a_grant_of_somebody_named_is_not_anybody_s_to_use(shared: Writer) -> None:
    """Naming the delegate of a grant without the right to act for it opens nothing, even with the grant's id."""
    number = shared.scope.partition(":")[2]
    delegate = {"actor_id": f"agent:delegate-{number}", "actor_kind": "agent"}
    await bind(shared, AGENT.actor_id, "admin", shared.scope)
    granted = await shared.ok(
        "grant_delegation",
        {
            "scope_id": shared.scope, "delegated_actor": delegate, "granted_operations": ["create"],
            "not_before": "2020-01-01T00:00:00Z", "not_after": "2099-01-01T00:00:00Z", "policy_basis": "season",
        },
    )  # fmt: skip
    document = claim(shared.scope, actor=delegate, delegation_id=granted["delegation_id"])
    assert (await shared.refused("create", document, by=holder("reader")))["code"] == "access_denied"
    assert (await shared.refused("create", document, by=NOBODY))["code"] == "scope_not_found"
    platform = Principal(TENANT, f"service:grants-{number}", "service", roles=frozenset({"reader"}))
    await bind(shared, platform.actor_id, "platform", shared.scope)
    assert (await shared.ok("create", document, by=platform))["envelope"]["actor"]["actor_id"] == delegate["actor_id"]
