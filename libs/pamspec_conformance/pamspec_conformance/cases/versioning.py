"""VERSIONING (18.5): immutable versions, conflicts, historical reads."""

from __future__ import annotations

import asyncio
from typing import Any

from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import PROVENANCE, Made, Trial

LIST = CaseList("VERSIONING")
case = LIST.case


async def _three(t: Trial) -> list[Made]:
    made = [await t.claim({"n": 1})]
    for number in (2, 3):
        made.append(await t.update(made[-1], {"n": number}))
    return made


@case("P220", "P68")
async def every_change_is_a_new_version(t: Trial) -> None:
    """Create, updates, a transition and a deletion make one version each, all of them in the history."""
    made = await _three(t)
    made.append(await t.transition(made[-1], "validation", "disputed"))
    made.append(await t.delete(made[-1]))
    versions = (await t.history(made[0]["object_id"]))["versions"]
    t.same([one["version_id"] for one in versions], [one["version_id"] for one in made], "versions in the history")
    t.same([one["sequence"] for one in versions], [1, 2, 3, 4, 5], "their sequences")


@case("P220", "P67", "P40")
async def past_versions_never_change(t: Trial) -> None:
    """Every past version is read as it was committed, whatever came later."""
    made = await _three(t)
    await t.transition(made[-1], "lifecycle", "archived")
    for one in made:
        found = await t.read(one["object_id"], version_id=one["version_id"])
        t.same(found, one["envelope"], f"version {one['sequence']}")


@case("P220", "P110")
async def reads_as_of_a_position(t: Trial) -> None:
    """A read as of a ledger position or a record time answers the version that was current then."""
    made = await _three(t)
    object_id = made[0]["object_id"]
    for one in made:
        by_position = await t.read(object_id, as_of={"ledger_sequence": one["ledger_sequence"]})
        t.same(by_position, one["envelope"], "as of the ledger sequence")
        by_time = await t.read(object_id, as_of={"recorded_at": one["envelope"]["recorded_at"]})
        t.same(by_time, one["envelope"], "as of the record time")
    await t.refused("object_not_found", "read", object_id=object_id, as_of={"ledger_sequence": 0})


@case("P45", "P194")
async def reads_as_of_a_validity(t: Trial) -> None:
    """A read as of a time of validity answers the newest version that was valid then."""
    first = await t.claim({"n": 1}, valid_from="2020-01-01T00:00:00Z", valid_until="2021-01-01T00:00:00Z")
    second = await t.update(first, {"n": 2}, valid_from="2021-01-01T00:00:00Z", valid_until="2022-01-01T00:00:00Z")
    for time, due in (("2020-06-01T00:00:00Z", first), ("2021-01-01T00:00:00Z", second)):
        t.same(await t.read(first["object_id"], as_of={"valid_at": time}), due["envelope"], f"as of {time}")


@case("P220", "P109")
async def a_version_belongs_to_its_object(t: Trial) -> None:
    """A version is not found under another object's id, nor an unknown version."""
    one, other = await t.claim(), await t.claim()
    await t.refused("object_not_found", "read", object_id=one["object_id"], version_id=other["version_id"])
    await t.refused("object_not_found", "read", object_id=one["object_id"], version_id="ver:none")


@case("P69", "P158", "P220")
async def a_lost_race_is_a_conflict(t: Trial) -> None:
    """Of an update, a transition and a delete of the same version one wins; the others are version_conflict."""
    made = await t.claim()
    replies = await asyncio.gather(
        t.send("update", **t.on(made), canonical_content=2, provenance=PROVENANCE),
        t.send("transition", **t.on(made), **t.to("lifecycle", "archived")),
        t.send("delete", **t.on(made), policy_basis="conformance"),
    )
    t.same(sum(reply.refusal is None for reply in replies), 1, "operations that succeeded")
    for reply in replies:
        if reply.refusal is not None:
            t.refusal(reply, "version_conflict object_deleted", "the loser")
    t.same(len((await t.history(made["object_id"]))["versions"]), 2, "versions")


@case("P112", "P68")
async def what_is_not_named_stays(t: Trial) -> None:
    """An update keeps what it does not name, in a new version."""
    made = await t.claim({"n": 1}, observed_at="2020-01-01T00:00:00Z", quality_signals={"staleness_score": 0.5})
    changed = await t.ok("update", **t.on(made), provenance=PROVENANCE, quality_signals={"staleness_score": 0.75})
    for name in ("canonical_content", "observed_at", "lifecycle_state", "validation_state", "object_type"):
        t.same(changed["envelope"].get(name), made["envelope"].get(name), name)
    t.same(changed["envelope"]["quality_signals"], {"staleness_score": 0.75}, "what was named")


@case("P220", "P67")
async def an_old_version_is_restored_as_a_new_one(t: Trial) -> None:
    """Restoring brings an old version's content back in a new version; the old ones stay."""
    made = await _three(t)
    about: dict[str, Any] = {**t.on(made[-1]), "provenance": PROVENANCE}
    back = await t.ok("update", **about, restore_version_id=made[0]["version_id"])
    t.same((back["sequence"], back["envelope"]["canonical_content"]), (4, {"n": 1}), "the restored version")
    t.check(back["version_id"] not in [one["version_id"] for one in made], "an old version_id came back")
    about = {**t.on(back), "provenance": PROVENANCE}
    await t.refused("object_not_found", "update", **about, restore_version_id="ver:none")


@case("P116", "P48")
async def a_repeated_change_makes_one_version(t: Trial) -> None:
    """A transition that is sent three times under one key makes one version."""
    made, key = await t.claim(), t.key()
    members: dict[str, Any] = {**t.on(made), **t.to("validation", "disputed")}
    answers = [await t.ok("transition", key=key, **members) for _ in range(3)]
    t.same(len({answer.reply.body for answer in answers}), 1, "different answers")
    t.same(len((await t.history(made["object_id"]))["versions"]), 2, "versions")


@case("P124", "P220")
async def history_by_version_range(t: Trial) -> None:
    """History answers the versions of a range, oldest first, and pages through all of them."""
    made = await _three(t)
    about: dict[str, Any] = {"object_id": made[0]["object_id"]}
    answer = await t.ok("inspect_history", **about, version_range={"from_sequence": 2, "to_sequence": 3})
    t.same([one["sequence"] for one in answer["versions"]], [2, 3], "versions of the range")
    got, cursor = [], None
    for _ in range(4):
        page = {"limit": 1, **({"cursor": cursor} if cursor else {})}
        answer = await t.ok("inspect_history", **about, pagination=page)
        got += [one["sequence"] for one in answer["versions"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    t.same(got, [1, 2, 3], "versions over pages")
