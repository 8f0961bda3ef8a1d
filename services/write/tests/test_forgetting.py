"""The job of a forget: what goes, what stays, holds, repetition (P189, M040, M042)."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from pamspec_common.calls import Answer
from pamspec_write.documents.erasures import Delete, Redact
from pamspec_write.documents.objects import Update
from pamspec_write.model.forgetting import Step, next_step, outcome
from services.write.tests.writer import AGENT, SUBSCRIPTION, Document, Writer, edge

PERSON = {"actor_id": "human:officer", "actor_kind": "human"}


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


async def begun(writer: Writer, *items: Document) -> str:
    """The erasure of a forget about these items."""
    token = "1." + hashlib.sha256(repr(items).encode()).hexdigest()
    request = {
        "scope_id": writer.scope, "actor": PERSON, "policy_basis": "asked", "token": token, "ledger_sequence": 1,
        "items": list(items),
    }  # fmt: skip
    answer = await writer.ok("begin_forget", request, by=SUBSCRIPTION)
    again = await writer.ok("begin_forget", request, by=SUBSCRIPTION)
    assert (again["erasure_id"], again["total"]) == (answer["erasure_id"], len(items))
    return str(answer["erasure_id"])


async def finished(writer: Writer, erasure_id: str) -> dict[str, str]:
    """The state of each item, once the job is done."""
    done = "SELECT finished_at FROM core.forget WHERE erasure_id = $1"
    async with asyncio.timeout(60):
        while await writer.admin.fetchval(done, erasure_id) is None:
            await asyncio.sleep(0.05)
    rows = await writer.admin.fetch(
        "SELECT object_id, state::text || coalesce(code, '') FROM core.forget_item WHERE erasure_id = $1", erasure_id
    )
    return {row[0]: row[1] for row in rows}


async def revised(writer: Writer, of: Document, content: Any, provenance: Document) -> Document:
    """The next version, from this source."""
    return await writer.ok("update", writer.change(of, canonical_content=content, provenance=provenance))


async def values(writer: Writer, object_id: str) -> list[tuple[bool, bool]]:
    """Of each version: whether it has content, and a private half."""
    rows = await writer.admin.fetch(
        "SELECT p.content IS NOT NULL, p.private IS NOT NULL FROM core.version v JOIN core.version_private p "
        "USING (scope_key, ledger_seq) WHERE v.scope_key = $1 AND v.object_id = $2 ORDER BY v.version_seq",
        await writer.scope_key(),
        object_id,
    )
    return [(row[0], row[1]) for row in rows]


async def test_objects_and_relationships_go_and_others_stay(writer: Writer) -> None:
    one, two, other = [await writer.create({"n": number}) for number in range(3)]
    joined = await writer.ok("relate", edge(one, other))
    kept = await writer.ok("relate", edge(other, two))
    name = await begun(writer, {"id": one["object_id"], "kind": "o"}, {"id": joined["relationship_id"], "kind": "r"})
    assert set((await finished(writer, name)).values()) == {"d"}
    assert await values(writer, one["object_id"]) == [(False, False), (False, True)]
    for object_id in (two["object_id"], other["object_id"], kept["relationship_id"]):
        assert (await values(writer, object_id))[0][1], "it is not concerned"
    receipts = await writer.admin.fetch(
        "SELECT kind, part_of, actor_id, due_at FROM core.erasure WHERE scope_key = $1 ORDER BY position",
        await writer.scope_key(),
    )
    assert [(row["kind"], row["part_of"]) for row in receipts] == [(b"f", None), (b"d", name), (b"d", name)]
    assert {row["actor_id"] for row in receipts} == {"human:officer"}
    await writer.check_scope()


async def test_what_stays_loses_the_versions_and_the_account_of_the_person(writer: Writer) -> None:
    """The current content is somebody's work still: it stays, under an account that names nobody's source."""
    first = await writer.create({"n": 1}, provenance={"activity": "a", "source_ref": "mail:ann"})
    second = await revised(writer, first, {"n": 2}, {"activity": "b", "source_ref": "mail:ann"})
    third = await revised(writer, second, {"n": 3}, {"activity": "c", "source_ref": "mail:bob"})
    fourth = await revised(writer, third, {"n": 4}, {"activity": "d", "source_ref": "mail:ann"})
    item = {
        "id": first["object_id"], "kind": "o",
        "version_ids": [second["version_id"], fourth["version_id"]],
    }  # fmt: skip
    assert set((await finished(writer, await begun(writer, item))).values()) == {"d"}
    found = await values(writer, first["object_id"])
    assert found == [(True, True), (False, False), (True, True), (False, False), (True, True), (True, True)]
    head = await writer.admin.fetchrow(
        "SELECT convert_from(p.content, 'UTF8'), convert_from(p.private, 'UTF8') FROM core.version v "
        "JOIN core.version_private p USING (scope_key, ledger_seq) WHERE v.scope_key = $1 AND v.object_id = $2 "
        "ORDER BY v.version_seq DESC LIMIT 1",
        await writer.scope_key(),
        first["object_id"],
    )
    assert head is not None
    assert head[0] == '{"n":4}'
    assert "mail:ann" not in head[1]
    await writer.check_scope()


async def test_a_relationship_whose_current_version_concerns_the_person_goes(writer: Writer) -> None:
    one, two = await writer.create({"n": 1}), await writer.create({"n": 2})
    joined = await writer.ok("relate", edge(one, two))
    name = joined["relationship_id"]
    item = {"id": name, "kind": "r", "version_ids": [joined["version_id"]]}
    assert await finished(writer, await begun(writer, item)) == {name: "d"}
    assert (await values(writer, name))[0] == (False, False)
    await writer.check_scope()


async def test_what_is_held_is_skipped_and_told(writer: Writer) -> None:
    free, held = await writer.create({"n": 1}), await writer.create({"n": 2})
    hold = writer.change(held, dimension="retention", target_state="legal_hold", policy_basis="court")
    await writer.ok("transition", hold)
    name = await begun(writer, {"id": free["object_id"], "kind": "o"}, {"id": held["object_id"], "kind": "o"})
    assert await finished(writer, name) == {free["object_id"]: "d", held["object_id"]: "hlegal_hold"}
    assert (await values(writer, held["object_id"]))[0] == (True, True)


async def test_what_moved_meanwhile_is_followed_and_what_is_gone_is_done(writer: Writer) -> None:
    moved, gone = await writer.create({"n": 1}), await writer.create({"n": 2})
    await writer.delete(gone)
    items = [{"id": one["object_id"], "kind": "o"} for one in (moved, gone)]
    name, _ = await asyncio.gather(begun(writer, *items), writer.update(moved, {"n": 9}))
    states = await finished(writer, name)
    assert set(states.values()) == {"d"}
    assert not any(content for content, _ in await values(writer, moved["object_id"]))


async def test_a_lease_from_before_the_stores_clock_jumped_back_is_not_waited_for(writer: Writer) -> None:
    """It is written in the transaction that begins the forget, before the job can see it."""
    made = await writer.create({"n": 1})
    lease = "ALTER TABLE core.forget ALTER leased_until SET DEFAULT {}"
    await writer.admin.execute(lease.format("clock_timestamp() + interval '1 hour'"))
    try:
        name = await begun(writer, {"id": made["object_id"], "kind": "o"})
    finally:
        await writer.admin.execute(lease.format("'-infinity'"))
    assert await finished(writer, name) == {made["object_id"]: "d"}


async def test_only_services_begin_one(writer: Writer) -> None:
    request: Any = {"scope_id": writer.scope, "actor": PERSON, "policy_basis": "p", "token": "1.a", "items": [],
                    "ledger_sequence": 1}  # fmt: skip
    assert (await writer.refused("begin_forget", request, by=AGENT))["code"] == "access_denied"


def step(**changes: Any) -> Step | None:
    given: Any = {"relationship": False, "whole": True, "head": ("ver:2", "available"), "left": [], "policy_basis": "p"}
    return next_step("scope:a", "obj:a", **(given | changes))


def test_steps() -> None:
    """Each is decided from what is there, so that one that comes again finds nothing to do."""
    whole = step()
    assert whole is not None
    assert isinstance(whole.request, Delete)
    assert step(head=None) is None
    assert step(head=("ver:2", "deleted")) is None
    assert step(whole=False) is None, "nothing is left"
    joined = step(relationship=True, whole=False, left=["ver:2"])
    assert joined is not None
    assert isinstance(joined.request, Delete)
    assert (joined.request.object_id, joined.request.relationship_id) == (None, "obj:a")
    past = step(whole=False, left=["ver:1"])
    assert past is not None
    assert isinstance(past.request, Redact)
    assert past.past == ("ver:1",)
    current = step(whole=False, left=["ver:1", "ver:2"])
    assert current is not None
    assert isinstance(current.request, Update)


@pytest.mark.parametrize(
    ("status", "code", "settled"),
    [
        (200, "", ("d", None)),
        (409, "legal_hold", ("h", "legal_hold")),
        (409, "version_conflict", None),
        (503, "service_unavailable", None),
        (410, "object_deleted", ("d", None)),
        (403, "policy_denied", ("f", "policy_denied")),
    ],
)
def test_outcomes(status: int, code: str, settled: Any) -> None:
    assert outcome(Answer(status, b'{"error":{"code":"%b"}}' % code.encode()), whole=True) == settled
    assert outcome(Answer(200, b"{}"), whole=False) is None
