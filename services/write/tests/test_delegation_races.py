"""Grants under concurrency, over two services on one database: limits are exact, and nothing follows a revocation."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import orjson
import pytest

from services.write.tests.delegating import Delegating, agent, delegating
from services.write.tests.test_rights import bind
from services.write.tests.writer import Document, Writer

Writers = tuple[Writer, Writer]
PARALLEL = 100


async def outcomes(writers: Writers, operation: str, requests: list[Document], given: Delegating) -> Counter[str]:
    """How often each outcome is answered to requests that both services get by turns at the same moment."""
    answers = await asyncio.gather(
        *(writers[number % 2].call(operation, request, by=given.delegate) for number, request in enumerate(requests))
    )
    found: Counter[str] = Counter()
    for answer in answers:
        error = orjson.loads(answer.body).get("error")
        found["done" if error is None else error["details"].get("reason", error["code"])] += 1
    return found


@pytest.mark.parametrize("limit", [1, 37])
@pytest.mark.parametrize("operation", ["create", "check_delegation"])
async def test_b70_parallel_uses_spend_a_limit_exactly(writers: Writers, operation: str, limit: int) -> None:
    """B70: of a hundred parallel uses of one grant as many succeed as its limit says, whoever carries them out."""
    given = await delegating(writers[0])
    granted = await given.grant(usage_limit=limit)
    request = given.creating(granted) if operation == "create" else given.checking(granted)
    found = await outcomes(writers, operation, [dict(request) for _ in range(PARALLEL)], given)
    assert found == {"done": limit, "usage_limit": PARALLEL - limit}
    assert await writers[0].only("used", "core.delegation") == limit
    assert len(await given.events("delegation_exercised")) == limit
    await writers[0].check_scope()


async def test_one_limit_is_exact_over_children_and_scopes(writers: Writers) -> None:
    """Uses below a grant and in another scope count against it, in whatever order they come."""
    given = await delegating(writers[0])
    far = await writers[0].new_scope()
    await bind(writers[0], given.grantor.actor_id, "contributor", far)
    parent = await given.grant(usage_limit=20, redelegation_depth=1, target_scope_id=far)
    below = agent("below")
    child = await given.grant(
        given.delegate, below, scope_id=far, usage_limit=20, delegation_id=parent["delegation_id"]
    )
    pairs = [(parent, given.delegate), (child, below)] * 25
    answers = await asyncio.gather(
        *(
            writers[number // 2 % 2].call("create", given.creating(one, scope_id=far), by=by)
            for number, (one, by) in enumerate(pairs)
        )
    )
    assert sum(answer.status == 201 for answer in answers) == 20
    assert await writers[0].only("used", "core.delegation", "usage_limit = 20 AND ancestors = '{}'") == 20
    for scope in (given.scope, far):
        await writers[0].check_scope(scope)


async def test_one_operation_is_one_use_wherever_it_arrives(writers: Writers) -> None:
    """S11: a hundred executions of one operation_id over two services are one use."""
    given = await delegating(writers[0])
    granted = await given.grant(usage_limit=2)
    request = given.creating(granted, operation_id="op:the-same")
    found = await outcomes(writers, "create", [dict(request) for _ in range(PARALLEL)], given)
    assert found == {"done": PARALLEL}
    assert await writers[0].only("used", "core.delegation") == 1


@pytest.mark.parametrize("limit", [None, 10_000])
async def test_b76_nothing_is_committed_behind_a_revocation(writers: Writers, limit: int | None) -> None:
    """B76: two services write and check under a grant while it is revoked: the revocation is the last that is told of
    it, and no request that begins after its answer succeeds.
    """
    given = await delegating(writers[0])
    granted = await given.grant(usage_limit=limit)
    over = asyncio.Event()
    late: list[Any] = []

    async def use(number: int) -> None:
        while True:
            began_late = over.is_set()
            operation = "create" if number % 3 else "check_delegation"
            request = given.creating(granted) if number % 3 else given.checking(granted)
            answer = await writers[number % 2].call(operation, request, by=given.delegate)
            if began_late:
                late.append(answer.status)
                return
            if answer.status >= 400 and not over.is_set():
                # The revocation is committed, and its answer under way.
                await over.wait()

    users = [asyncio.create_task(use(number)) for number in range(12)]
    while len(await given.events("delegation_exercised")) < 20:
        await asyncio.gather(*(given.create(granted) for _ in range(4)))
    await given.revoke(granted)
    over.set()
    await asyncio.gather(*users)
    assert late == [403] * 12
    events = await given.events()
    assert [event["event_type"] for event in events].index("delegation_revoked") == len(events) - 1
    position = events[-1]["sequence"]
    assert await writers[0].count("core.ledger", f"sequence > {position}") == 0
    await writers[0].check_scope()


async def test_a_revocation_in_the_home_scope_is_seen_where_the_grant_works(writers: Writers) -> None:
    """The grant works in another scope: whoever uses it there holds both scopes' locks."""
    given = await delegating(writers[0])
    far = await writers[0].new_scope()
    await bind(writers[0], given.grantor.actor_id, "contributor", far)
    granted = await given.grant(target_scope_id=far)
    uses = [
        asyncio.create_task(
            writers[number % 2].call("create", given.creating(granted, scope_id=far), by=given.delegate)
        )
        for number in range(60)
    ]
    revoked = await given.revoke(granted)
    await asyncio.gather(*uses)
    sent = [await writer.call("create", given.creating(granted, scope_id=far), by=given.delegate) for writer in writers]
    assert [answer.status for answer in sent] == [403, 403]
    assert revoked["envelope"]["lifecycle_state"] == "archived"
    for scope in (given.scope, far):
        await writers[0].check_scope(scope)


async def test_a_role_that_is_taken_ends_the_grants_of_its_holder_everywhere(writers: Writers) -> None:
    """A grantor loses its role in the tenant: neither service lets its delegate write with what it has kept."""
    given = await delegating(writers[0])
    tenant_wide = agent("tenant-wide")
    await bind(writers[0], tenant_wide.actor_id, "contributor")
    granted = await given.grant(tenant_wide)
    for writer in writers:
        assert (await writer.call("create", given.creating(granted), by=given.delegate)).status == 201
    unbind: Document = {"actor_id": tenant_wide.actor_id, "role": "contributor", "policy_basis": "left"}
    await writers[0].ok("unbind_role", unbind)
    for writer in writers:
        error = await writer.refused("create", given.creating(granted), by=given.delegate)
        assert error["details"]["reason"] == "grantor_rights"
