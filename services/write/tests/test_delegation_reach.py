"""How far a grant reaches: attenuation along a chain, other scopes and tenants, and who learns of it."""

from __future__ import annotations

from pamspec_common.principal import Principal
from services.write.tests.delegating import FAR, LONG_AGO, STRANGERS, Delegating, actor, agent
from services.write.tests.test_rights import bind
from services.write.tests.writer import BACKEND, Document, Writer


async def test_attenuation(given: Delegating) -> None:
    """B73: a grant that is passed on permits no more than the one above it, in any respect."""
    other = await given.writer.new_scope()
    parent = await given.grant(
        redelegation_depth=2, usage_limit=5, granted_object_ids=["obj:a", "obj:b"], granted_object_types=["claim"],
        not_before="2010-01-01T00:00:00Z", not_after="2090-01-01T00:00:00Z",
    )  # fmt: skip
    below = agent("below")
    good: Document = {
        "delegation_id": parent["delegation_id"],
        "granted_operations": ["create"],
        "usage_limit": 5,
        "granted_object_ids": ["obj:a"],
        "granted_object_types": ["claim"],
        "not_before": "2010-01-01T00:00:00Z",
        "not_after": "2090-01-01T00:00:00Z",
        "redelegation_depth": 1,
    }
    await bind(given.writer, given.delegate.actor_id, "reader", other)
    for member, value in (
        ("granted_operations", ["create", "delete"]),
        ("usage_limit", 6),
        ("usage_limit", None),
        ("granted_object_ids", ["obj:a", "obj:c"]),
        ("granted_object_ids", None),
        ("granted_object_types", ["claim", "task"]),
        ("granted_object_types", None),
        ("not_before", LONG_AGO),
        ("not_after", FAR),
        ("redelegation_depth", 2),
        ("scope_id", other),
        ("target_scope_id", other),
    ):
        error = await given.refused_grant(given.delegate, below, **{**good, member: value})
        assert (error["code"], error["details"]) == ("policy_denied", {"field": member}), (member, error)
    child = await given.grant(given.delegate, below, **good)
    deepest = agent("deepest")
    last = await given.grant(
        below, deepest, **{**good, "delegation_id": child["delegation_id"], "redelegation_depth": 0}
    )
    for up in (given.grantor, given.delegate, below):
        error = await given.refused_grant(
            below, up, **{**good, "delegation_id": child["delegation_id"], "redelegation_depth": 0}
        )
        assert (error["code"], error["details"]) == ("policy_denied", {"field": "delegate"})
    error = await given.refused_grant(deepest, agent("e"), **{**good, "delegation_id": last["delegation_id"]})
    assert error["details"] == {"field": "redelegation_depth"}
    error = await given.refused_grant(given.grantor, deepest, **good)
    assert (error["code"], error["details"]) == ("policy_denied", {"field": "delegation_id"})
    error = await given.refused_grant(agent("stranger"), deepest, **good)
    assert error["code"] == "scope_not_found"
    await given.create(last, deepest, object_id="obj:a")
    used = await given.writer.admin.fetch(
        "SELECT used FROM core.delegation WHERE delegation_id = ANY ($1)",
        [one["delegation_id"] for one in (parent, child, last)],
    )
    assert [row["used"] for row in used] == [1, 1, 1]


async def test_a_limit_above_bounds_all_that_is_below(given: Delegating) -> None:
    parent = await given.grant(redelegation_depth=1, usage_limit=3)
    below = [agent("a"), agent("b")]
    children = [
        await given.grant(given.delegate, to, delegation_id=parent["delegation_id"], usage_limit=2) for to in below
    ]
    await given.create(children[0], below[0])
    await given.create(children[0], below[0])
    assert await given.denied(children[0], below[0]) == "usage_limit"
    await given.create(children[1], below[1])
    assert await given.denied(children[1], below[1]) == "ancestor_usage_limit"
    assert await given.denied(parent) == "usage_limit"


async def test_a_grant_works_in_another_scope(given: Delegating) -> None:
    writer = given.writer
    far = await writer.new_scope()
    assert (await given.refused_grant(target_scope_id=far))["code"] == "scope_not_found"
    await bind(writer, given.grantor.actor_id, "contributor", far)
    granted = await given.grant(target_scope_id=far, usage_limit=2, redelegation_depth=1)
    assert granted["envelope"]["target_scope_id"] == far
    await given.create(granted, scope_id=far)
    error = await writer.refused("create", given.creating(granted), by=given.delegate)
    assert error["code"] == "scope_not_found"
    await bind(writer, given.delegate.actor_id, "reader", given.scope)
    assert await given.denied(granted) == "scope"
    checked = await given.check(granted)
    assert checked["remaining_uses"] == 0
    assert await given.denied(granted, scope_id=far) == "usage_limit"
    assert [event["payload"]["operation"] for event in await given.events("delegation_exercised", far)] == [
        "create"
    ] * 2
    assert not await given.events("delegation_exercised")
    for scope in (given.scope, far):
        await writer.check_scope(scope)


async def test_grants_and_revocations_raise_the_epochs_of_both_scopes(given: Delegating) -> None:
    """What was kept or decided on the authorization before is noticed where the grant is and where it works."""
    writer = given.writer
    far = await writer.new_scope()
    await bind(writer, given.grantor.actor_id, "contributor", far)

    async def epochs() -> list[int]:
        keys = [await writer.scope_key(scope) for scope in (given.scope, far)]
        sql = "SELECT epoch_authz FROM core.scope_head WHERE scope_key = ANY ($1) ORDER BY scope_key"
        return [row["epoch_authz"] for row in await writer.admin.fetch(sql, keys)]

    before = await epochs()
    granted = await given.grant(target_scope_id=far)
    assert await epochs() == [epoch + 1 for epoch in before]
    await given.create(granted, scope_id=far)
    assert await epochs() == [epoch + 1 for epoch in before]
    await given.revoke(granted)
    assert await epochs() == [epoch + 2 for epoch in before]


async def test_nobody_learns_of_a_grant_that_is_not_theirs(given: Delegating) -> None:
    granted = await given.grant()
    missing = {"delegation_id": "dlg:0195590c-7a00-7000-8000-000000000000"}
    reader = agent("reader")
    await bind(given.writer, reader.actor_id, "contributor", given.scope)
    for by, code in ((reader, "object_not_found"), (agent("nobody"), "scope_not_found")):
        errors = [
            await given.writer.refused("create", given.creating(one, operation_id="op:same"), by=by)
            for one in (granted, missing)
        ]
        assert errors[0] == errors[1]
        assert errors[0]["code"] == code
    for operation, members in (
        ("check_delegation", {"operation": "read", "operation_id": "op:same"}),
        ("revoke_delegation", {"policy_basis": "x", "operation_id": "op:same"}),
    ):
        for by in (agent("nobody"), STRANGERS):
            errors = [
                await given.writer.refused(operation, {"delegation_id": one["delegation_id"], **members}, by=by)
                for one in (granted, missing)
            ]
            assert errors[0] == errors[1]
            assert errors[0]["code"] == "object_not_found"
    assert await given.denied(granted, given.grantor) == "delegate"


async def test_another_tenant_and_another_scope_are_out_of_reach(given: Delegating) -> None:
    """The same actor in another tenant has no grant; an id that is granted names an object of this scope alone."""
    writer = given.writer
    elsewhere = Writer(writer.service, writer.settings, writer.admin, signer=writer.signer)
    elsewhere.scope = await writer.new_scope()
    foreign = await elsewhere.create(object_id="obj:of-another-scope")
    granted = await given.grant(granted_object_ids=[foreign["object_id"]])
    same = Principal(STRANGERS.tenant_id, given.delegate.actor_id, given.delegate.actor_kind)
    for operation, document in (
        ("create", given.creating(granted)),
        ("update", given.updating(granted, foreign)),
    ):
        assert (await writer.refused(operation, document, by=same))["code"] == "scope_not_found"
    assert (await writer.refused("check_delegation", given.checking(granted), by=same))["code"] == "object_not_found"
    error = await writer.refused("update", given.updating(granted, foreign), by=given.delegate)
    assert error["code"] == "scope_not_found"
    error = await writer.refused("update", given.updating(granted, foreign, scope_id=given.scope), by=given.delegate)
    assert error["code"] == "object_not_found"
    assert not await given.events("delegation_exercised")


async def test_a_platform_acts_for_the_delegate(given: Delegating) -> None:
    granted = await given.grant()
    made = await given.create(granted, BACKEND, actor=actor(given.delegate))
    assert made["envelope"]["actor"]["actor_id"] == given.delegate.actor_id
    exercised = (await given.events("delegation_exercised"))[0]
    assert exercised["payload"]["authenticated_as"] == BACKEND.actor_id
    error = await given.writer.refused(
        "create",
        given.creating(granted, actor=actor(given.delegate) | {"delegation_id": "dlg:another"}),
        by=BACKEND,
    )
    assert error["code"] == "invalid_request"
