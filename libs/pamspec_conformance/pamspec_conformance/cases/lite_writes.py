"""LITE (18.1), expected versions and idempotency."""

from __future__ import annotations

import asyncio
from typing import Any

from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import PROVENANCE, Trial

LIST = CaseList("LITE")
case = LIST.case
WRITERS = 20


def _claim(content: Any) -> dict[str, Any]:
    return {"object_type": "claim", "canonical_content": content, "provenance": PROVENANCE}


@case("P204", "P69", "P158")
async def stale_update_conflicts(t: Trial) -> None:
    """An update that names an older version is version_conflict, names the current one, and changes nothing."""
    made = await t.claim()
    newer = await t.update(made, {"n": 2})
    refusal = await t.refused(
        "version_conflict", "update", **t.on(made), canonical_content={"n": 3}, provenance=PROVENANCE
    )
    t.same(refusal.details.get("current_version_id"), newer["version_id"], "the current version in the refusal")
    t.same(await t.read(made["object_id"]), newer["envelope"], "the object after the conflict")


@case("P204", "P69")
async def stale_transition_conflicts(t: Trial) -> None:
    """A transition that names an older version is version_conflict and changes nothing."""
    made = await t.claim()
    newer = await t.update(made, {"n": 2})
    await t.refused("version_conflict", "transition", **t.on(made), **t.to("lifecycle", "archived"))
    t.same(await t.read(made["object_id"]), newer["envelope"], "the object after the conflict")


@case("P204", "P69")
async def stale_delete_conflicts(t: Trial) -> None:
    """A delete that names an older version is version_conflict and deletes nothing."""
    made = await t.claim()
    newer = await t.update(made, {"n": 2})
    await t.refused("version_conflict", "delete", **t.on(made), policy_basis="conformance")
    t.same(await t.read(made["object_id"]), newer["envelope"], "the object after the conflict")


@case("P204", "P112")
async def changes_need_an_expected_version(t: Trial) -> None:
    """Update, transition and delete without an expected version are invalid_request."""
    made = await t.claim()
    about: dict[str, Any] = {"object_id": made["object_id"]}
    await t.refused("invalid_request", "update", **about, canonical_content=1, provenance=PROVENANCE)
    await t.refused("invalid_request", "transition", **about, **t.to("lifecycle", "archived"))
    await t.refused("invalid_request", "delete", **about, policy_basis="conformance")


@case("P204", "P69", "P48", "P49")
async def concurrent_updates_have_one_winner(t: Trial) -> None:
    """Of twenty updates of one version one succeeds, the others are version_conflict, nothing is lost."""
    made = await t.claim()
    replies = await asyncio.gather(
        *(
            t.send("update", **t.on(made), canonical_content={"n": number}, provenance=PROVENANCE)
            for number in range(WRITERS)
        )
    )
    won = [reply.document for reply in replies if reply.refusal is None]
    t.same(len(won), 1, "updates that succeeded")
    for reply in replies:
        if reply.refusal is not None:
            t.refusal(reply, "version_conflict", "a concurrent update")
    envelope = await t.read(made["object_id"])
    t.same((envelope["sequence"], envelope["version_id"]), (2, won[0]["version_id"]), "the object afterwards")


@case("P108", "P159", "P205")
async def create_retry_answers_the_first_outcome(t: Trial) -> None:
    """The same create with the same key answers the same bytes and creates nothing."""
    key = t.key()
    first = await t.ok("create", key=key, **_claim({"n": 1}))
    for _ in range(2):
        again = await t.ok("create", key=key, **_claim({"n": 1}))
        t.same(again.reply.body, first.reply.body, "the answer of the repetition")
    t.same(len(await t.events()), 1, "events after the repetitions")


@case("P108", "P160", "P205")
async def create_retry_with_other_content_is_refused(t: Trial) -> None:
    """Another create under a used key is duplicate_operation and creates nothing."""
    key = t.key()
    await t.ok("create", key=key, **_claim({"n": 1}))
    await t.refused("duplicate_operation", "create", key=key, **_claim({"n": 2}))
    t.same(len(await t.events()), 1, "events after the refusal")


@case("P108", "P205")
async def concurrent_creates_under_one_key_make_one_object(t: Trial) -> None:
    """Of twenty simultaneous creates under one key one object and one event come about; all answers are equal."""
    key = t.key()
    await t.scope()
    made = await asyncio.gather(*(t.ok("create", key=key, **_claim({"n": 1})) for _ in range(WRITERS)))
    t.same(len({answer.reply.body for answer in made}), 1, "different answers")
    t.same(len(await t.events()), 1, "events")


@case("P159", "P113")
async def update_retry_answers_the_first_outcome(t: Trial) -> None:
    """A repeated update answers its first outcome, though its expected version is no longer current."""
    made, key = await t.claim(), t.key()
    first = await t.update(made, {"n": 2}, idempotency_key=key)
    await t.update(first, {"n": 3})
    again = await t.update(made, {"n": 2}, idempotency_key=key)
    t.same(again.reply.body, first.reply.body, "the answer of the repetition")
    t.same((await t.read(made["object_id"]))["sequence"], 3, "versions")


@case("P159")
async def refusals_repeat_too(t: Trial) -> None:
    """A stable refusal under a key is answered again, byte for byte, even when it would succeed by now."""
    key, object_id = t.key(), "obj:later"
    document: dict[str, Any] = {
        "object_id": object_id,
        "expected_version_id": "ver:none",
        "canonical_content": 1,
        "provenance": PROVENANCE,
    }
    first = await t.send("update", key=key, **document)
    t.refusal(first, "object_not_found", "an update of nothing")
    await t.claim(object_id=object_id)
    again = await t.send("update", key=key, **document)
    t.same(again.body, first.body, "the refusal of the repetition")


@case("P205", "P161", needs=("restart",))
async def create_retry_survives_a_restart(t: Trial) -> None:
    """After a restart on the same store the same key still answers the same bytes, and other content is refused."""
    restart = t.facilities.restart
    assert restart is not None
    key = t.key()
    first = await t.ok("create", key=key, **_claim({"n": 1}))
    await restart()
    again = await t.ok("create", key=key, **_claim({"n": 1}))
    t.same(again.reply.body, first.reply.body, "the answer after the restart")
    await t.refused("duplicate_operation", "create", key=key, **_claim({"n": 2}))
    t.same(len(await t.events()), 1, "events after the restart")
