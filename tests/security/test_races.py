"""Rights and rules that change while people write and read: nothing is committed or shown that they forbid by then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import pytest_asyncio

from tests.security.people import GARDEN, Answer, Document, People, bind, number

WRITERS = 12
P = {"provenance": {"activity": "t"}}
Change = Callable[[People], Awaitable[object]]


async def _take_the_role(people: People) -> None:
    for role in ("contributor", "editor", "reviewer", "curator"):
        await bind(people.owner, people.guest.actor_id, role, GARDEN, ends=True)


async def _forbid_by_a_rule(people: People) -> None:
    version = (await people.owner.do("get_access_rules", {"scope_id": GARDEN}))["rules_version"]
    rule = (
        '@id("stop") forbid (principal, action == Action::"create", resource) when { resource.object_type == "claim" };'
    )
    request = {"scope_id": GARDEN, "rules": rule, "expected_rules_version": version, "policy_basis": "t"}
    await people.owner.do("set_access_rules", request)


async def _deny_the_type(people: People) -> None:
    scope = await people.owner.do("get_scope", {"scope_id": GARDEN})
    request = {
        "scope_id": GARDEN, "policy": {"object_types": {"deny": ["claim"]}}, "policy_basis": "t",
        "expected_policy_version": scope["policy_version"],
    }  # fmt: skip
    await people.owner.do("update_scope", request)


CHANGES: dict[str, tuple[Change, set[str]]] = {
    "a role is taken": (_take_the_role, {"access_denied"}),
    "a rule forbids": (_forbid_by_a_rule, {"access_denied", "policy_denied"}),
    "a policy denies the type": (_deny_the_type, {"unsupported_object_type"}),
}


@pytest_asyncio.fixture(loop_scope="session")
async def garden(people: People) -> People:
    """The guest may write claims."""
    for role in ("contributor", "editor", "reviewer", "curator", "reader"):
        await bind(people.owner, people.guest.actor_id, role, GARDEN)
    version = (await people.owner.do("get_access_rules", {"scope_id": GARDEN}))["rules_version"]
    rules = {"scope_id": GARDEN, "rules": "", "expected_rules_version": version, "policy_basis": "t"}
    await people.owner.do("set_access_rules", rules)
    scope = await people.owner.do("get_scope", {"scope_id": GARDEN})
    await people.owner.do(
        "update_scope",
        {"scope_id": GARDEN, "policy": {}, "policy_basis": "t", "expected_policy_version": scope["policy_version"]},
    )
    return people


@pytest.mark.parametrize("change", CHANGES)
async def test_nothing_is_committed_after_the_change_was_answered(garden: People, change: str) -> None:
    """Twelve writers go on until they are refused; nothing was written after the change was answered."""
    make, codes = CHANGES[change]
    begun = asyncio.Event()

    async def write() -> tuple[int, Answer]:
        made = 0
        while True:
            document: Document = {"scope_id": GARDEN, "object_type": "claim", "canonical_content": number(), **P}
            answer = await garden.guest.ask("create", document)
            if answer.status != 201:
                return made, answer
            made += 1
            begun.set()

    writers = [asyncio.create_task(write()) for _ in range(WRITERS)]
    async with asyncio.timeout(90):
        await begun.wait()
        await make(garden)
        answered = await garden.owner.head(GARDEN)
        refused = await asyncio.gather(*writers)
    assert not await garden.owner.changes(GARDEN, answered)
    assert {answer.code for _, answer in refused} <= codes
    assert sum(made for made, _ in refused) >= 1


async def test_a_page_that_is_open_shows_nothing_of_what_is_forbidden_by_now(garden: People) -> None:
    """A walk goes on by the rights that hold then: the rest of the forbidden type is not in it."""
    for kind in ("claim", "decision") * 4:
        await garden.owner.create(GARDEN, object_type=kind)
    query = {"scope_id": GARDEN, "query": {"kind": "structured", "trust": "all"}}
    first = await garden.guest.do("query", {**query, "pagination": {"limit": 3}})
    assert any(one["envelope"]["object_type"] == "claim" for one in first["items"])
    version = (await garden.owner.do("get_access_rules", {"scope_id": GARDEN}))["rules_version"]
    rule = '@id("t") forbid (principal, action == Action::"read", resource) when { resource.object_type == "claim" };'
    request = {"scope_id": GARDEN, "rules": rule, "expected_rules_version": version, "policy_basis": "t"}
    await garden.owner.do("set_access_rules", request)
    cursor, types = first["next_cursor"], set()
    while cursor is not None:
        page = await garden.guest.do("query", {**query, "pagination": {"limit": 3, "cursor": cursor}})
        types |= {one["envelope"]["object_type"] for one in page["items"]}
        cursor = page["next_cursor"]
    assert "claim" not in types
    assert "decision" in types


async def test_a_role_that_ends_ends_open_pages(garden: People) -> None:
    """Without a role there is no scope, cursor or not."""
    for _ in range(3):
        await garden.owner.create(GARDEN)
    query = {"scope_id": GARDEN, "query": {"kind": "structured", "trust": "all"}}
    first = await garden.guest.do("query", {**query, "pagination": {"limit": 1}})
    await _take_the_role(garden)
    await bind(garden.owner, garden.guest.actor_id, "reader", GARDEN, ends=True)
    after = await garden.guest.ask("query", {**query, "pagination": {"limit": 1, "cursor": first["next_cursor"]}})
    assert after.code == "scope_not_found"
    await bind(garden.owner, garden.guest.actor_id, "reader", GARDEN)
    again = await garden.guest.do("query", {**query, "pagination": {"limit": 1, "cursor": first["next_cursor"]}})
    assert len(again["items"]) == 1
