"""Explanations and lists: for the parties of a grant, auditors and administrators, and nobody else."""

from __future__ import annotations

import asyncio

from pamspec_common.principal import Principal
from services.delegation.tests.world import Asking
from services.write.tests.delegating import LONG_AGO, agent
from services.write.tests.test_rights import bind
from services.write.tests.writer import ADMIN, TENANT


async def test_an_explanation_names_each_rule_of_each_grant(asking: Asking) -> None:
    given = asking.given
    above = await given.grant(redelegation_depth=2, usage_limit=9)
    last = agent("last")
    below = await given.grant(given.delegate, last, delegation_id=above["delegation_id"], usage_limit=5)
    told = await asking.explain(below, last)
    assert (told["permitted"], told["reason"], told["remaining_uses"]) == (True, None, 5)
    first, second = told["chain"]
    assert [first["delegation_id"], second["delegation_id"]] == [above["delegation_id"], below["delegation_id"]]
    assert {rule["rule"] for rule in second["rules"]} >= {"delegate", "operation", "revoked", "usage_limit"}
    assert all(rule["kept"] for link in told["chain"] for rule in link["rules"])
    await given.revoke(above)
    told = await asking.explain(below, last)
    assert (told["permitted"], told["reason"]) == (False, "ancestor_revoked")
    broken = [
        (link["delegation_id"], rule["rule"]) for link in told["chain"] for rule in link["rules"] if not rule["kept"]
    ]
    assert broken == [(above["delegation_id"], "ancestor_revoked")]


async def test_terms_are_shown_to_the_parties_of_each_grant(asking: Asking) -> None:
    given = asking.given
    above = await given.grant(redelegation_depth=1)
    last = agent("last")
    below = await given.grant(given.delegate, last, delegation_id=above["delegation_id"])
    watcher = agent("watcher")
    await bind(given.writer, watcher.actor_id, "auditor", given.scope)
    shown = {
        who.actor_id: ["granting_actor_id" in link for link in (await asking.explain(below, who))["chain"]]
        for who in (last, given.delegate, given.grantor, watcher)
    }
    assert shown == {
        last.actor_id: [False, True],
        given.delegate.actor_id: [True, True],
        given.grantor.actor_id: [True, True],
        watcher.actor_id: [True, True],
    }
    document = {"delegation_id": below["delegation_id"], "operation": "create"}
    assert (await asking.refused("explain_delegation", document, agent("x")))["code"] == "object_not_found"
    assert (await asking.refused("explain_delegation", {**document, "delegation_id": above["delegation_id"]}, last))[
        "code"
    ] == "object_not_found"


async def test_exercises_are_counted_as_the_ledger_is_followed(asking: Asking) -> None:
    granted = await asking.given.grant()
    for _ in range(3):
        await asking.given.create(granted)
    async with asyncio.timeout(60):
        while (await asking.explain(granted))["exercised"] != {"create": 3}:
            await asyncio.sleep(0.05)


async def test_grants_are_listed_by_grantor_delegate_scope_and_standing(asking: Asking) -> None:
    given = asking.given
    other = agent("other")
    one, two, three = await given.grant(), await given.grant(to=other), await given.grant(not_after=LONG_AGO)
    revoked = await given.grant(redelegation_depth=1)
    below = await given.grant(given.delegate, other, delegation_id=revoked["delegation_id"])
    await given.revoke(revoked)

    def ids(*granted: dict[str, object]) -> list[str]:
        return sorted(str(each["delegation_id"]) for each in granted)

    assert await asking.listed(given.grantor) == ids(one, two, three, revoked, below)
    assert await asking.listed(given.delegate) == ids(one, three, revoked, below)
    assert await asking.listed(other) == ids(two, below)
    assert await asking.listed(given.grantor, delegated_actor_id=other.actor_id) == ids(two, below)
    assert await asking.listed(given.grantor, granting_actor_id=given.delegate.actor_id) == ids(below)
    assert await asking.listed(given.grantor, scope_id=given.scope, in_force=True) == ids(one, two)
    assert await asking.listed(given.grantor, in_force=False) == ids(three, revoked, below)
    assert await asking.listed(other, granting_actor_id=given.grantor.actor_id) == ids(two)


async def test_auditors_see_a_scopes_grants_and_strangers_no_scope(asking: Asking) -> None:
    given = asking.given
    granted = await given.grant()
    auditor = agent("auditor")
    await bind(given.writer, auditor.actor_id, "auditor", given.scope)
    assert await asking.listed(auditor, scope_id=given.scope) == [granted["delegation_id"]]
    assert await asking.listed(auditor) == []
    stranger = agent("stranger")
    missing = await asking.call("list_delegations", {"scope_id": "scope:none", "operation_id": "op:1"}, stranger)
    hidden = await asking.call("list_delegations", {"scope_id": given.scope, "operation_id": "op:1"}, stranger)
    assert missing.body == hidden.body
    assert missing.status == 404
    foreign = Principal("tenant:elsewhere", "agent:a", "agent", roles=ADMIN)
    answer = await asking.call("list_delegations", {"scope_id": given.scope}, foreign)
    assert answer.status in (403, 404)
    admin = Principal(TENANT, "agent:admin", "agent", roles=ADMIN)
    assert granted["delegation_id"] in await asking.listed(admin, granting_actor_id=given.grantor.actor_id)


async def test_pages_of_grants_follow_one_another(asking: Asking) -> None:
    given = asking.given
    made = sorted([(await given.grant())["delegation_id"] for _ in range(5)])
    found: list[str] = []
    cursor = None
    for _ in range(3):
        pagination = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
        page = await asking.ok("list_delegations", {"pagination": pagination}, given.grantor)
        found += [one["envelope"]["delegation_id"] for one in page["delegations"]]
        cursor = page["next_cursor"]
    assert cursor is None
    assert found == made
    for bad in ("é", "====", "AAA", "ZGxnOgA="):
        error = await asking.refused("list_delegations", {"pagination": {"limit": 2, "cursor": bad}}, given.grantor)
        assert error["code"] == "invalid_request"
