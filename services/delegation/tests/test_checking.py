"""Checks that use nothing: the same verdicts as a use would get, at once after whatever changes them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis.asyncio as valkey

from pamspec_common.instants import wire
from pamspec_common.principal import Principal
from services.delegation.tests.world import Asking, World
from services.write.tests.delegating import FAR, LATER, LONG_AGO, actor, agent, delegating
from services.write.tests.test_rights import bind, moved
from services.write.tests.writer import TENANT, Document

REPEATED = 3
"""What was kept answers the second time, what it rests on is looked at again the third."""


async def test_a_check_without_use_answers_as_one_with_it_and_changes_nothing(asking: Asking) -> None:
    granted = await asking.given.grant(usage_limit=2)
    before = await asking.given.writer.ledger()
    for _ in range(5):
        found = await asking.check(granted)
        assert found["remaining_uses"] == 2
    assert len(await asking.given.writer.ledger()) == len(before)
    used = await asking.ok("check_delegation", asking.given.checking(granted))
    assert used.keys() == found.keys()
    assert used["envelope"] == found["envelope"]
    assert (await asking.check(granted))["remaining_uses"] == used["remaining_uses"] == 1


async def test_an_operation_id_is_the_requests_own_also_when_the_answer_was_kept(asking: Asking) -> None:
    granted = await asking.given.grant()
    for name in ("op:a", "op:b"):
        assert (await asking.check(granted, operation_id=name))["operation_id"] == name


CASES: list[tuple[str, Document, Document]] = [
    ("operation", {}, {"operation": "delete"}),
    ("scope", {}, {"scope_id": "workspace:elsewhere"}),
    ("object_id", {"granted_object_ids": ["obj:1"]}, {"object_id": "obj:2"}),
    ("object_type", {"granted_object_types": ["task"]}, {"object_id": "obj:new", "object_type": "claim"}),
    ("not_before", {"not_before": LATER}, {}),
    ("not_after", {"not_after": LONG_AGO}, {}),
    ("grantor_rights", {"granted_operations": ["read", "create"]}, {}),
]


@pytest.mark.parametrize(("reason", "terms", "members"), CASES, ids=[case[0] for case in CASES])
async def test_a_check_is_denied_by_the_rule_that_a_use_would_break(
    asking: Asking, reason: str, terms: Document, members: Document
) -> None:
    granted = await asking.given.grant(**terms)
    if reason == "grantor_rights":
        await asking.check(granted)
        await asking.given.writer.admin.execute(
            "DELETE FROM core.role_binding WHERE actor_id = $1", asking.given.grantor.actor_id
        )
        await moved(asking.given.writer, asking.given.scope)
    for _ in range(2):
        assert await asking.denied(granted, **members) == reason
    assert await asking.given.unchecked(granted, **members) == reason


async def test_another_delegate_is_denied_and_a_stranger_sees_no_grant(asking: Asking) -> None:
    granted = await asking.given.grant()
    await asking.check(granted)
    stranger, elsewhere = agent("stranger"), Principal("tenant:elsewhere", "agent:a", "agent")
    missing = {"delegation_id": "dlg:missing", "operation": "create", "consume": False}
    bodies = {
        (await asking.call("check_delegation", {**missing, **more, "operation_id": "op:1"}, by)).body
        for by, more in (
            (stranger, {"delegation_id": granted["delegation_id"]}),
            (stranger, {}),
            (elsewhere, {"delegation_id": granted["delegation_id"]}),
        )
    }
    assert len(bodies) == 1
    assert b"object_not_found" in bodies.pop()
    assert await asking.denied(granted, asking.given.grantor) == "delegate"
    await asking.check(granted, asking.given.grantor, actor=actor(asking.given.delegate))


async def test_who_may_check_delegations_asks_for_others(asking: Asking) -> None:
    granted = await asking.given.grant()
    watcher = agent("watcher")
    await bind(asking.given.writer, watcher.actor_id, "admin", asking.given.scope)
    await asking.check(granted, watcher, actor=actor(asking.given.delegate))
    assert await asking.denied(granted, watcher) == "delegate"


async def test_a_revocation_denies_the_next_check_of_every_process(asking: Asking, world: World) -> None:
    others = [replace(asking, service=await world.service()) for _ in range(2)]
    for _ in range(5):
        granted = await asking.given.grant()
        for one in (asking, *others):
            for _ in range(REPEATED):
                await one.check(granted)
        await asking.given.revoke(granted)
        await _denied_soon_and_for_good((asking, *others), granted, "revoked")


async def _denied_soon_and_for_good(askers: tuple[Asking, ...], granted: Document, reason: str) -> None:
    """A permission may be repeated within its bound; once one process denies, it does so for good."""
    async with asyncio.timeout(30):
        for one in askers:
            while (await one.call("check_delegation", one._checking(granted, {}), one.given.delegate)).status == 200:
                await asyncio.sleep(0.005)
    for one in askers * REPEATED:
        assert await one.denied(granted) == reason


async def test_with_a_bound_of_nothing_no_check_after_the_revocation_permits(asking: Asking, world: World) -> None:
    strict = replace(asking, service=await world.service(delegation_confirm_ms=0))
    for _ in range(10):
        granted = await asking.given.grant()
        for _ in range(REPEATED):
            await strict.check(granted)
        await asking.given.revoke(granted)
        assert await strict.denied(granted) == "revoked"


async def test_a_revocation_above_denies_what_was_passed_on(asking: Asking) -> None:
    given = asking.given
    above = await given.grant(redelegation_depth=1)
    last = agent("last")
    below = await given.grant(given.delegate, last, delegation_id=above["delegation_id"])
    for _ in range(REPEATED):
        await asking.check(below, last)
    await given.revoke(above)
    async with asyncio.timeout(30):
        while (await asking.call("check_delegation", asking._checking(below, {}), last)).status == 200:
            await asyncio.sleep(0.005)
    assert await asking.denied(below, last) == "ancestor_revoked"


async def test_the_last_use_is_seen_by_the_next_check(asking: Asking) -> None:
    granted = await asking.given.grant(usage_limit=2)
    for left in (2, 1):
        for _ in range(REPEATED):
            assert (await asking.check(granted))["remaining_uses"] == left
        await asking.given.create(granted)
    assert await asking.denied(granted) == "usage_limit"


async def test_windows_open_and_close_while_answers_are_kept(asking: Asking, world: World) -> None:
    """No write happens at either end: only the clock denies and permits."""
    now: datetime = await asking.given.writer.admin.fetchval("SELECT clock_timestamp()")
    opens, closes = now + timedelta(seconds=1), now + timedelta(seconds=4)
    granted = await asking.given.grant(not_before=wire(opens), not_after=wire(closes))
    seen: list[tuple[str, datetime, datetime]] = []
    async with asyncio.timeout(60):
        while not seen or seen[-1][0] != "not_after":
            before: datetime = await asking.given.writer.admin.fetchval("SELECT clock_timestamp()")
            answer = await asking.call("check_delegation", asking._checking(granted, {}), asking.given.delegate)
            after: datetime = await asking.given.writer.admin.fetchval("SELECT clock_timestamp()")
            reason = "permitted" if answer.status == 200 else "not_after" if b"not_after" in answer.body else "early"
            seen.append((reason, before, after))
    for reason, before, after in seen:
        if after < opens:
            assert reason == "early"
        if before > closes:
            assert reason == "not_after"
        if before > opens and after < closes:
            assert reason == "permitted"
        if reason == "permitted":
            assert after >= opens
            assert before <= closes
    assert datetime.now(UTC).year > 2000


async def test_a_key_that_was_taken_ends_what_was_kept(asking: Asking, world: World) -> None:
    """Roles of credentials move no epoch: a permission is decided anew after its time."""
    brief = replace(asking, service=await world.service(delegation_lifetime_ms=200))
    writer, given = asking.given.writer, asking.given
    grantor = agent("by-key")
    key_id = f"key:{grantor.actor_id[6:]}"
    await writer.admin.execute(
        "INSERT INTO core.api_key (key_id, tenant_id, key_hash, actor_id, actor_kind, roles)"
        " VALUES ($1, $2, sha256(convert_to($1, 'UTF8')), $3, 'agent', '{contributor}')",
        key_id, TENANT, grantor.actor_id,
    )  # fmt: skip
    granted = await given.grant(Principal(TENANT, grantor.actor_id, "agent", roles=frozenset({"contributor"})))
    for _ in range(REPEATED):
        await brief.check(granted)
    await writer.admin.execute("UPDATE core.api_key SET revoked_at = now() WHERE key_id = $1", key_id)
    async with asyncio.timeout(30):
        while (await brief.call("check_delegation", brief._checking(granted, {}), given.delegate)).status == 200:
            await asyncio.sleep(0.02)
    assert await brief.denied(granted) == "grantor_rights"


class TestValkey:
    async def test_processes_share_permissions_which_a_revocation_ends(
        self, asking: Asking, world: World, valkey_server: str
    ) -> None:
        one, two = [replace(asking, service=await world.service(valkey_url=valkey_server)) for _ in range(2)]
        granted = await asking.given.grant()
        await one.check(granted)
        await two.check(granted)
        await asking.given.revoke(granted)
        await _denied_soon_and_for_good((one, two), granted, "revoked")

    async def test_what_was_forged_or_spoilt_there_permits_nothing(
        self, asking: Asking, world: World, valkey_server: str
    ) -> None:
        found = replace(asking, service=await world.service(valkey_url=valkey_server))
        granted = await asking.given.grant()
        await found.check(granted)
        client: Any = valkey.Redis.from_url(valkey_server)
        keys = await client.keys("pamspec:delegation:permission:*")
        assert keys
        for key in keys:
            stored = await client.get(key)
            await client.set(key, stored[:-1] + bytes([stored[-1] ^ 1]))
        other = replace(asking, service=await world.service(valkey_url=valkey_server))
        await other.check(granted)
        await asking.given.revoke(granted)
        third = replace(asking, service=await world.service(valkey_url=valkey_server))
        assert await third.denied(granted) == "revoked"
        await client.flushall()
        await client.aclose()
        assert await third.denied(granted) == "revoked"

    async def test_without_it_everything_goes_on(self, asking: Asking, world: World) -> None:
        alone = replace(asking, service=await world.service(valkey_url="redis://127.0.0.1:1"))
        granted = await asking.given.grant()
        for _ in range(REPEATED):
            await alone.check(granted)
        assert (await alone.service.ready())[0]


async def test_many_checks_at_once_get_their_own_answers(asking: Asking) -> None:
    good, bad = await asking.given.grant(), await asking.given.grant(not_before=LATER, not_after=FAR)
    found = await asyncio.gather(
        *(
            asking.call("check_delegation", asking._checking(one, {"operation_id": f"op:{n}"}), asking.given.delegate)
            for n, one in enumerate([good, bad] * 100)
        )
    )
    for n, answer in enumerate(found):
        assert answer.status == (200 if n % 2 == 0 else 403)
        assert f'"op:{n}"'.encode() in answer.body


async def test_a_stranger_to_the_scope_may_have_a_grant_there(asking: Asking) -> None:
    other = await delegating(await asking.given.writer.afresh())
    granted = await other.grant()
    await replace(asking, given=other).check(granted)
