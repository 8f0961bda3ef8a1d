"""Relationships into other scopes: both policies open the way, and locks are taken in order."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import orjson
import pytest

from services.write.tests.test_faults import waiting_backends
from services.write.tests.writer import PROVENANCE, Document, Writer, claim, edge, move


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


async def test_another_scope_needs_a_basis_and_a_policy(writer: Writer) -> None:
    there = await writer.new_scope()
    one, two = await writer.create(1), await writer.ok("create", claim(there))
    crossing = edge(one, two, target_scope_id=there)
    assert (await writer.refused("relate", crossing))["code"] == "policy_denied"
    assert (await writer.refused("relate", {**crossing, "policy_basis": "p"}))["code"] == "policy_denied"
    # Whether the target is there is told to nobody who may not relate to it.
    missing = {**crossing, "policy_basis": "p", "target_object_id": "obj:missing"}
    assert (await writer.refused("relate", missing))["code"] == "policy_denied"
    unseen = {**crossing, "policy_basis": "p", "target_scope_id": "scope:nowhere"}
    assert (await writer.refused("relate", unseen))["code"] == "scope_not_found"
    assert await writer.count("core.version_span", "kind = 'r'") == 0


async def open_way(writer: Writer, near: str, far: str, **more: Any) -> None:
    """The policies of two scopes let relationships lead from one to the other."""
    for scope_id, policy in (
        (near, {"relate_to": [{"scope_id": far, **more}]}),
        (far, {"accept_from": [{"scope_id": near, **more}]}),
    ):
        await set_policy(writer, scope_id, {"cross_scope": policy})


async def set_policy(writer: Writer, scope_id: str, policy: Document, version: int = 0) -> None:
    """A scope's policy, its version after that one."""
    change = {"scope_id": scope_id, "policy": policy, "expected_policy_version": version, "policy_basis": "test"}
    await writer.ok("update_scope", change)


async def test_both_policies_open_the_way_into_another_scope(writer: Writer) -> None:
    there = await writer.new_scope()
    one, two, gone = (
        await writer.create(1),
        await writer.ok("create", claim(there)),
        await writer.ok("create", claim(there)),
    )
    await writer.delete(gone)
    crossing = edge(one, two, target_scope_id=there, policy_basis="agreed", directionality="bidirectional")
    await set_policy(writer, writer.scope, {"cross_scope": {"relate_to": [{"scope_id": there}]}})
    error = await writer.refused("relate", crossing)
    assert (error["code"], "policy_rule_id" in error) == ("policy_denied", False)
    accepted = {"accept_from": [{"scope_id": writer.scope, "relationship_types": ["supports", "com.example.*"]}]}
    await set_policy(writer, there, {"cross_scope": accepted})
    assert (await writer.refused("relate", {**crossing, "relationship_type": "references"}))["code"] == "policy_denied"
    made = await writer.ok("relate", crossing)
    assert (made["envelope"]["target_scope_id"], made["envelope"]["policy_basis"]) == (there, "agreed")
    event = (await writer.ledger())[-1].event
    assert (event["scope_id"], event["payload"]["target_scope_id"]) == (writer.scope, there)
    # The relationship lies in its own scope alone.
    assert [entry.event["event_type"] for entry in await writer.ledger(there)][-1] != "relationship_created"
    error = await writer.refused("relate", crossing)
    assert error["details"] == {"relationship_id": made["relationship_id"]}
    for target, code in (("obj:missing", "object_not_found"), (gone["object_id"], "object_deleted")):
        error = await writer.refused("relate", {**crossing, "target_object_id": target})
        assert (error["code"], error["details"]) == (code, {"field": "target_object_id"})
    # The way back is another one.
    back = edge(two, one, target_scope_id=writer.scope, policy_basis="agreed")
    assert (await writer.refused("relate", back))["code"] == "policy_denied"
    await writer.check_scope()
    await writer.check_scope(there)


async def test_a_withdrawn_policy_ends_the_changes(writer: Writer) -> None:
    there = await writer.new_scope()
    one, two = await writer.create(1), await writer.ok("create", claim(there))
    await open_way(writer, writer.scope, there)
    made = await writer.ok("relate", edge(one, two, target_scope_id=there, policy_basis="agreed"))
    changed = await writer.ok("relate", writer.change(made, canonical_content=2, provenance=PROVENANCE))
    assert changed["envelope"]["policy_basis"] == "agreed"
    await set_policy(writer, writer.scope, {}, 1)
    change = writer.change(changed, canonical_content=3, provenance=PROVENANCE)
    error = await writer.refused("relate", change)
    assert (error["code"], error["policy_rule_id"]) == ("policy_denied", "scope-policy/2/cross_scope/relate_to")
    moved = await writer.ok("transition", move(writer, changed, "lifecycle", "archived"))
    assert (moved["envelope"]["policy_basis"], moved["envelope"]["target_scope_id"]) == ("agreed", there)


async def test_of_an_erased_crossing_the_basis_is_said_to_be_erased(writer: Writer) -> None:
    there = await writer.new_scope()
    one, two = await writer.create(1), await writer.ok("create", claim(there))
    await open_way(writer, writer.scope, there)
    made = await writer.ok("relate", edge(one, two, target_scope_id=there, policy_basis="SECRET"))
    gone = await writer.ok("delete", writer.change(made, policy_basis="asked"))
    assert (gone["envelope"]["policy_basis"], gone["envelope"]["target_scope_id"]) == ("erased", there)
    for table in ("version", "version_private", "version_span", "ledger", "operation_record"):
        rows = await writer.admin.fetch(f"SELECT t.* FROM core.{table} t JOIN core.scope s USING (scope_key) "
                                        "WHERE s.scope_id = $1", writer.scope)  # fmt: skip
        assert "SECRET" not in str([dict(row) for row in rows]), table
    await writer.check_scope()


async def test_crossing_relationships_of_two_processes_lock_in_order(writers: tuple[Writer, Writer]) -> None:
    writer = writers[0]
    scopes = [writer.scope, *[await writer.new_scope() for _ in range(3)]]
    for scope_id in scopes:
        others = [{"scope_id": other} for other in scopes if other != scope_id]
        await set_policy(writer, scope_id, {"cross_scope": {"relate_to": others, "accept_from": others}})
    objects = {scope_id: await writer.ok("create", claim(scope_id)) for scope_id in scopes}
    pairs = list(itertools.permutations(scopes, 2))
    answers = await asyncio.gather(
        *(
            writers[number % 2].call(
                "relate",
                edge(objects[near], objects[far], f"label-{number}", target_scope_id=far, policy_basis="p"),
            )
            for number, (near, far) in enumerate(pairs * 4)
        )
    )
    assert {answer.status for answer in answers} == {201}
    for scope_id in scopes:
        await writer.check_scope(scope_id)


async def test_a_target_deleted_meanwhile_is_not_joined(writers: tuple[Writer, Writer], hold: Any) -> None:
    """The decision waits for the target's scope, and sees what happened there."""
    writer = writers[0]
    there = await writer.new_scope()
    one, two = await writer.create(1), await writer.ok("create", claim(there))
    await open_way(writer, writer.scope, there)
    async with hold(await writer.scope_key(there)):
        deleting = asyncio.create_task(writers[0].call("delete", writer.change(two, policy_basis="p")))
        await waiting_backends(writer, 1)
        crossing = edge(one, two, target_scope_id=there, policy_basis="p")
        relating = asyncio.create_task(writers[1].call("relate", crossing))
        await waiting_backends(writer, 2)
    assert (await deleting).status == 200
    assert orjson.loads((await relating).body)["error"]["code"] == "object_deleted"
