"""The audit log: every administrative change and every decision names the version of the rules it was made under."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from services.write.tests.test_denials import audit
from services.write.tests.test_rights import holder
from services.write.tests.writer import AGENT, BACKEND, OTHER, TENANT, Document, Writer, claim

BASIS = {"policy_basis": "ticket 7"}
SCHEMA: Document = {"schema_id": "https://example.org/note", "schema": {"type": "object"}}


async def log(writer: Writer, *, tenant: bool = False, **more: Any) -> list[Document]:
    """The entries of the scope, or of the tenant, all pages."""
    found: list[Document] = []
    cursor: Document = {}
    while True:
        place = {} if tenant else {"scope_id": writer.scope}
        page = await writer.ok("list_administration", {**place, **more, "pagination": {"limit": 2, **cursor}})
        found += page["entries"]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


async def epochs(writer: Writer) -> str:
    """The authorization epochs of tenant and scope."""
    row = await writer.admin.fetchrow(
        "SELECT t.epoch_authz, h.epoch_authz FROM core.tenant t, core.scope_head h "
        "WHERE t.tenant_id = $1 AND h.scope_key = $2",
        TENANT, await writer.scope_key(),
    )  # fmt: skip
    assert row is not None
    return f"{row[0]}.{row[1]}"


async def administered(writer: Writer) -> list[tuple[str, str, str]]:
    """One change of each kind: what is to stand in the log, and the epochs before it."""
    done: list[tuple[str, str, str]] = []

    async def change(operation: str, document: Document, detail: str | None = None) -> Document:
        before = await epochs(writer)
        answer = await writer.ok(operation, {"scope_id": writer.scope, **document}, by=BACKEND)
        done.append((operation, detail or answer["hold_id"], before))
        return answer

    role = {"actor_id": "agent:planner", "role": "reader", **BASIS}
    await change("bind_role", role, "reader")
    await change("unbind_role", role, "reader")
    rule = '@id("quiet") forbid (principal, action == Action::"create", resource) when { resource.object_type == "x" };'
    await change("set_access_rules", {"rules": rule, "expected_rules_version": 0, **BASIS}, "1")
    await change("update_scope", {"policy": {}, "expected_policy_version": 0, **BASIS}, "1")
    await change("register_schema", SCHEMA, SCHEMA["schema_id"])
    hold = await change("place_hold", BASIS)
    await change("release_hold", {"hold_id": hold["hold_id"], **BASIS}, hold["hold_id"])
    return done


async def test_every_change_names_its_author_its_reason_and_the_rules_it_was_made_under(shared: Writer) -> None:
    done = await administered(shared)
    found = list(reversed(await log(shared)))
    assert [entry["operation"] for entry in found] == [operation for operation, _, _ in done]
    for entry, (operation, detail, before) in zip(found, done, strict=True):
        assert (entry["operation"], entry["detail"], entry["policy_version"]) == (operation, detail, before)
        assert (entry["actor_id"], entry["outcome"], entry["occurrences"]) == ("service:backend", "done", 1)
        asked = operation != "register_schema"
        assert entry["policy_basis"] == (BASIS["policy_basis"] if asked else "none was asked for")
    assert len({entry["operation_id"] for entry in found}) == len(found)
    making = await log(shared, tenant=True, operation="create_scope")
    assert [one["actor_id"] for one in making if one["subject"] == shared.scope] == [AGENT.actor_id]


async def test_filters_and_pages(shared: Writer) -> None:
    await administered(shared)
    everything = await log(shared)
    assert [one["operation"] for one in await log(shared, operation="bind_role")] == ["bind_role"]
    assert await log(shared, actor_id=BACKEND.actor_id) == [
        one for one in everything if one["actor_id"] == BACKEND.actor_id
    ]
    assert await log(shared, actor_id="agent:never") == []
    middle = everything[3]["done_at"]
    assert await log(shared, since=middle) == everything[:4]
    assert await log(shared, until=middle) == everything[4:]
    assert await log(shared, outcome="denied") == []
    for wrong in ({"since": "yesterday"}, {"operation": "DROP TABLE"}, {"outcome": "maybe"}, {"actor_id": 7}):
        assert (await shared.refused("list_administration", {"scope_id": shared.scope, **wrong}))["code"] == (
            "invalid_request"
        )


async def test_only_auditors_and_administrators_see_it(shared: Writer) -> None:
    for role in ("reader", "contributor", "editor", "reviewer", "curator"):
        for place in ({}, {"scope_id": shared.scope}):
            assert (await shared.refused("list_administration", place, by=holder(role)))["code"] == "access_denied"
    await shared.ok("list_administration", {"scope_id": shared.scope}, by=holder("auditor"))


async def test_an_event_names_the_rules_that_its_operation_was_decided_under(shared: Writer) -> None:
    first = await epochs(shared)
    made = await shared.create()
    await shared.ok("bind_role", {"scope_id": shared.scope, "actor_id": "agent:a", "role": "reader", **BASIS})
    second = await epochs(shared)
    await shared.update(made, "better")
    await shared.ok("bind_role", {"actor_id": f"agent:of-{shared.scope}", "role": "reader", **BASIS})
    third = await epochs(shared)
    await shared.create(by=OTHER)
    assert len({first, second, third}) == 3
    told = [entry.event["payload"]["policy_version"] for entry in await shared.ledger()]
    assert told == [first, second, third]


async def test_a_change_of_rules_counts_for_what_follows_it_in_the_same_commit(shared: Writer) -> None:
    before = await epochs(shared)
    policy = {"scope_id": shared.scope, "policy": {}, "expected_policy_version": 0, **BASIS}
    await asyncio.gather(shared.create(), shared.ok("update_scope", policy), shared.create())
    after = await epochs(shared)
    told = [entry.event["payload"]["policy_version"] for entry in await shared.ledger()]
    assert set(told) <= {before, after}
    assert told == sorted(told)
    assert (await log(shared, operation="update_scope"))[0]["policy_version"] == before


async def test_no_content_and_no_secret_stands_in_it(shared: Writer) -> None:
    marked = "MARKED-c0ffee"
    made = await shared.create({"secret": marked}, quality_signals={"verification_method_id": marked})
    await shared.update(made, {"secret": marked + "2"})
    await administered(shared)
    await shared.refused("create", claim("scope:none", {"secret": marked}), by=holder("reader"))
    refused = {
        "scope_id": "scope:none",
        "actor": {"actor_id": "agent:a", "actor_kind": "agent", "display_name": marked},
    }
    await shared.refused("create", {**claim("scope:none", marked), **refused}, by=BACKEND)
    told = orjson.dumps([await log(shared), await log(shared, tenant=True), [e.event for e in await shared.ledger()]])
    rows = orjson.dumps(await audit(shared), default=str)
    assert marked.encode() not in told + rows
    assert AGENT.actor_id.encode() in told
