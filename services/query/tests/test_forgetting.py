"""forget: what concerns a subject, previewed and begun; what does not stays (P189, M035, M040), and its receipt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from pamspec_cli.servers.databases import Database
from pamspec_common.peers import LocalPeer
from pamspec_common.principal import RIGHT_ASSERT_ACTOR, Principal, TokenSigner
from pamspec_query.app import build
from services.query.tests.door import KEY, Door, settings
from services.query.tests.seeds import TENANT
from services.query.tests.writing import SCOPE, Writer

ANN: Any = {"actor_id": "human:ann", "actor_kind": "human"}
BY_ANN: Any = {"actor_id": "human:ann"}


@pytest_asyncio.fixture
async def door(database: Database, writer: Writer) -> AsyncIterator[Door]:
    """The query service beside a write service; the writer may write in anybody's name."""
    principal = Principal(
        TENANT, "service:backend", "service", frozenset({RIGHT_ASSERT_ACTOR}), roles=frozenset({"admin"})
    )
    writer._token = TokenSigner("k1", KEY).sign(principal)
    service = build(settings(database), LocalPeer(writer.service))
    await service.start()
    yield Door(service, Principal(TENANT, "human:officer", "human", roles=frozenset({"admin"})))
    await service.stop()


async def forgotten(door: Door, subject: Any) -> dict[str, Any]:
    """The receipt of a forget that was previewed, begun twice and has done its work."""
    request: Any = {"scope_id": SCOPE, "policy_basis": "asked", "subject": subject}
    shown = await door.ok("forget", **request)
    first = await door.ok("forget", **request, preview_token=shown["preview_token"])
    again = await door.ok("forget", **request, preview_token=shown["preview_token"])
    assert again["erasure_id"] == first["erasure_id"]
    async with asyncio.timeout(60):
        while True:
            found = await door.ok("list_erasures", erasure_id=first["erasure_id"])
            receipt: dict[str, Any] = found["erasures"][0]
            if receipt["progress"]["finished"]:
                return receipt
            await asyncio.sleep(0.05)


async def alive(door: Door) -> set[str]:
    """The ids of all that is not deleted."""
    found = await door.ok(
        "query",
        scope_id=SCOPE,
        query={"kind": "structured", "trust": "all", "filters": {"relationship_type": "any", "object_type": "any"}},
        pagination={"limit": 1000},
    )
    every = [item["envelope"] for item in found["items"]]
    return {one.get("object_id") or one["relationship_id"] for one in every if one["availability_state"] != "deleted"}


async def test_all_that_an_actor_made_goes_and_nothing_else(writer: Writer, door: Door) -> None:
    mine = await writer.create({"n": 1}, actor=ANN)
    theirs = await writer.create({"n": 2})
    shared = await writer.create({"n": 3})
    touched = await writer.change("update", shared, canonical_content={"n": 4}, provenance={"activity": "x"}, actor=ANN)
    joined: Any = {"relationship_type": "supports", "directionality": "directed", "provenance": {"activity": "x"}}
    of_mine = await writer.ok(
        "relate", source_object_id=mine["object_id"], target_object_id=theirs["object_id"], **joined
    )
    of_others = await writer.ok(
        "relate", source_object_id=theirs["object_id"], target_object_id=shared["object_id"], **joined
    )
    request: Any = {"scope_id": SCOPE, "policy_basis": "asked", "subject": BY_ANN}
    shown = await door.ok("forget", **request)
    assert shown["counts"] == {"objects": 1, "relationships": 1, "partly": 1, "versions": 3, "held": 0}
    assert await alive(door) >= {mine["object_id"]}, "a preview changes nothing"
    receipt = await forgotten(door, BY_ANN)
    assert (receipt["kind"], receipt["progress"]["done"], receipt["progress"]["failed"]) == ("forget", 3, 0)
    assert await alive(door) == {theirs["object_id"], shared["object_id"], of_others["relationship_id"]}
    assert of_mine["relationship_id"] not in await alive(door)
    head = await door.ok("read", scope_id=SCOPE, object_id=shared["object_id"])
    assert head["envelope"]["canonical_content"] == {"n": 4}
    assert head["envelope"]["actor"]["actor_id"] == "human:officer"
    old = await door.refused("read", scope_id=SCOPE, object_id=shared["object_id"], version_id=touched["version_id"])
    assert old["code"] == "object_redacted"
    assert (await door.ok("forget", **request))["counts"]["objects"] == 0


async def test_by_source_and_by_filter(writer: Writer, door: Door) -> None:
    mail: Any = {"activity": "x", "source_ref": "mail:ann", "evidence_refs": ["mail:ann#2"]}
    from_mail = await writer.create({"about": "Ann"}, provenance=mail)
    cited = await writer.create({"about": "Bob"}, provenance={"activity": "x", "evidence_refs": ["mail:ann"]})
    other = await writer.create({"about": "Ann"}, provenance={"activity": "x", "source_ref": "mail:bob"})
    far = await writer.create({"about": "Cy"})
    receipt = await forgotten(door, {"source_ref": "mail:ann"})
    assert receipt["progress"]["total"] == 2
    assert await alive(door) == {other["object_id"], far["object_id"]}
    assert cited["object_id"] != from_mail["object_id"]
    where: Any = {"field": "content:/about", "op": "eq", "value": "Ann"}
    await forgotten(door, {"filter": {"where": where}})
    assert await alive(door) == {far["object_id"]}


async def test_what_was_shown_is_what_goes(writer: Writer, door: Door) -> None:
    """A set that changed since its preview is refused; what came later is no part of it."""
    first, second = await writer.create({"n": 1}, actor=ANN), await writer.create({"n": 2}, actor=ANN)
    request: Any = {"scope_id": SCOPE, "policy_basis": "asked", "subject": BY_ANN}
    shown = await door.ok("forget", **request)
    later = await writer.create({"n": 3}, actor=ANN)
    await writer.change("delete", first, policy_basis="x")
    refused = await door.refused("forget", **request, preview_token=shown["preview_token"])
    assert (refused["code"], refused["details"]["reason"]) == ("version_conflict", "set_changed")
    for wrong in ("x", "99999999.ab", "1.a\0b", "\u0663." + "0" * 64, "1." + "0" * 64):
        assert (await door.refused("forget", **request, preview_token=wrong))["code"] in (
            "invalid_request", "version_conflict",
        )  # fmt: skip
    nul = await door.refused("forget", **{**request, "subject": {"source_ref": "mail:\0ann"}})
    assert nul["code"] == "invalid_request"
    assert await alive(door) == {second["object_id"], later["object_id"]}


async def test_a_token_is_of_one_caller_and_one_subject_and_ends(writer: Writer, door: Door) -> None:
    """Also once it has begun its forget: whoever sends it otherwise is never told that theirs is under way."""
    kept = await writer.create({"n": 2})
    gone = await writer.create({"n": 1}, actor=ANN)
    request: Any = {"scope_id": SCOPE, "policy_basis": "asked"}
    token = (await door.ok("forget", **request, subject=BY_ANN))["preview_token"]
    position, until, bound, digest = token.split(".")
    other = door.as_("human:other", roles=("admin",))
    where: Any = {"field": "content:/n", "op": "eq", "value": 1}
    # This filter finds the same set; the token is that of another preview still.
    filters: list[Any] = [{"filter": {"where": where}}, {"actor_id": "human:bob"}, {"source_ref": "human:ann"}]
    filters += [{"filter": {"where": where | {"value": value}}} for value in (1.5, 2**63, "\ud83d\ude00", None)]
    longer = f"{position}.{int(until) + 60}.{bound}.{digest}"

    async def misused() -> None:
        for by, subject, sent in (
            (other, BY_ANN, token),
            *((door, subject, token) for subject in filters),
            (door, BY_ANN, longer),
        ):
            refused = await by.refused("forget", **request, subject=subject, preview_token=sent)
            assert (refused["code"], refused["details"]["field"]) == ("invalid_request", "preview_token"), subject

    await misused()
    assert await alive(door) == {kept["object_id"], gone["object_id"]}
    begun = await door.ok("forget", **request, subject=BY_ANN, preview_token=token)
    await misused()
    again = await door.ok("forget", **request, subject=BY_ANN, preview_token=token)
    assert again["erasure_id"] == begun["erasure_id"], "a repetition is answered with what it began"


async def test_a_preview_holds_for_an_hour(writer: Writer, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = await writer.create({"n": 1}, actor=ANN)
    request: Any = {"scope_id": SCOPE, "policy_basis": "asked", "subject": BY_ANN}
    monkeypatch.setattr("pamspec_query.handlers.forgetting._HOLDS_S", -1)
    shown = await door.ok("forget", **request)
    refused = await door.refused("forget", **request, preview_token=shown["preview_token"])
    assert (refused["code"], refused["details"]["reason"]) == ("version_conflict", "preview_expired")
    assert await alive(door) == {gone["object_id"]}


@pytest.mark.parametrize("role", ["reader", "contributor", "auditor"])
async def test_who_may_not_erase_all_of_it_may_not_forget(writer: Writer, door: Door, role: str) -> None:
    await writer.create({"n": 1}, actor=ANN)
    by = door.as_("agent:other", roles=(role,))
    refused = await by.refused("forget", scope_id=SCOPE, policy_basis="asked", subject=BY_ANN)
    assert refused["code"] == "access_denied"


async def test_subjects_that_are_none(writer: Writer, door: Door) -> None:
    for subject in ({}, {"actor_id": "human:a", "source_ref": "x"}, {"filter": {"where": {"field": "nothing"}}}):
        refused = await door.refused("forget", scope_id=SCOPE, policy_basis="asked", subject=subject)
        assert refused["code"] == "invalid_request", subject
