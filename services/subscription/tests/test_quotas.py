"""Subscription quotas: so many, exactly, whoever opens them at the same moment; a closed one makes room."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from pamspec_common.calls import Answer, Call
from pamspec_common.internal import answer as run
from pamspec_common.principal import RIGHT_OPERATOR, Principal
from services.subscription.tests.world import AGENT, OTHER, TENANT, Document, World, token

OPERATOR = Principal(TENANT, "human:operator", "human", frozenset({RIGHT_OPERATOR}))


async def bound(world: World, quotas: Document) -> None:
    """Put quotas in force."""
    shown = await _write(world, "get_quotas", {})
    request = {"quotas": quotas, "expected_quotas_version": shown["quotas_version"], "policy_basis": "contract:7"}
    await _write(world, "set_quotas", request)


async def _write(world: World, operation: str, document: Document) -> Document:
    answer = await run(world.write.operations, Call(operation, token(OPERATOR), orjson.dumps(document)))
    assert answer.status == 200, answer.body
    body: Document = orjson.loads(answer.body)
    return body


async def opened(world: World, scope: str, by: Principal, number: int, **more: Any) -> Answer:
    """The answer of one of the two services to an opening."""
    service = world.services[number % len(world.services)]
    request = orjson.dumps({"scope_id": scope, "idempotency_key": f"{by.actor_id}-{number}", **more})
    return await run(service.operations, Call("subscribe", token(by), request))


async def test_so_many_and_no_more(world: World) -> None:
    scope = await world.scope()
    await world.service()
    await world.service()
    await bound(world, {"principal": {"subscriptions": 5}, "tenant": {"subscriptions": 7}})
    answers = await asyncio.gather(*(opened(world, scope, AGENT, number) for number in range(12)))
    assert sorted(answer.status for answer in answers) == [201] * 5 + [429] * 7
    refused = next(answer for answer in answers if answer.status == 429)
    error = orjson.loads(refused.body)["error"]
    assert (error["code"], error["details"]["limit"], error["details"]["bound"]) == (
        "service_unavailable",
        "principal.subscriptions",
        5,
    )
    assert int(refused.headers["Retry-After"]) >= 1
    others = await asyncio.gather(*(opened(world, scope, OTHER, number) for number in range(6)))
    assert [answer.status for answer in others].count(201) == 2
    again = [await opened(world, scope, AGENT, number) for number, one in enumerate(answers) if one.status == 201]
    assert [answer.status for answer in again] == [201] * 5
    ended = orjson.loads(again[0].body)["subscription_id"]
    call = Call("unsubscribe", token(AGENT), orjson.dumps({"subscription_id": ended}))
    assert (await run(world.services[0].operations, call)).status == 200
    assert (await opened(world, scope, AGENT, 100)).status == 201
    assert (await opened(world, scope, AGENT, 101)).status == 429
    await bound(world, {})
    assert (await opened(world, scope, AGENT, 101)).status == 201
