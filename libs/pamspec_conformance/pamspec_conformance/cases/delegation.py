"""DELEGATION (18.2): what one actor lets another do, for how long and how often."""

from __future__ import annotations

from typing import Any

from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import PROVENANCE, Made, Trial

LIST = CaseList("DELEGATION")
case = LIST.case
DELEGATE = {"actor_id": "agent:delegate", "actor_kind": "agent"}
LONG_AGO, LATER, FAR = "2001-01-01T00:00:00Z", "2098-01-01T00:00:00Z", "2099-01-01T00:00:00Z"


async def _grantor(t: Trial) -> dict[str, Any]:
    actor = (await t.claim())["envelope"]["actor"]
    return {"actor_id": actor["actor_id"], "actor_kind": actor["actor_kind"]}


async def _grant(t: Trial, **members: Any) -> Made:
    return await t.ok("grant_delegation", **await _document(t, **members))


async def _document(t: Trial, **members: Any) -> dict[str, Any]:
    return {
        "granting_actor": await _grantor(t),
        "delegated_actor": DELEGATE,
        "granted_operations": ["read", "update"],
        "policy_basis": "conformance",
        "not_before": LONG_AGO,
        "not_after": FAR,
        "provenance": PROVENANCE,
        **members,
    }


def _id(granted: Made) -> str:
    found = granted.get("delegation_id") or granted["envelope"]["delegation_id"]
    return str(found)


def _check(granted: Made, operation: str = "read", **members: Any) -> dict[str, Any]:
    return {"delegation_id": _id(granted), "operation": operation, "actor": DELEGATE, "consume": False, **members}


@case("P207", "P175")
async def a_grant_is_a_record(t: Trial) -> None:
    """A grant answers a delegation object with the members that were granted, and can be read."""
    granted = await _grant(t)
    envelope = granted["envelope"]
    for name in ("delegation_id", "version_id", "granted_operations", "not_before", "not_after", "policy_basis"):
        t.check(name in envelope, f"the delegation lacks {name}")
    t.same(envelope["delegated_actor"]["actor_id"], DELEGATE["actor_id"], "the delegate")
    t.same((await t.ok("read", delegation_id=_id(granted)))["envelope"], envelope, "the delegation read")


@case("P208")
async def a_check_answers_the_grant(t: Trial) -> None:
    """A check within the grant answers it; of another operation or another actor it is access_denied."""
    granted = await _grant(t)
    found = await t.ok("check_delegation", **_check(granted))
    t.same(found["envelope"]["delegation_id"], _id(granted), "the grant")
    await t.refused("access_denied", "check_delegation", **_check(granted, "delete"))
    other = {"actor_id": "agent:somebody-else", "actor_kind": "agent"}
    await t.refused("access_denied", "check_delegation", **_check(granted, actor=other))


@case("P209")
async def an_inverted_window_is_denied(t: Trial) -> None:
    """A grant that ends before it begins is policy_denied."""
    document = await _document(t, not_before=FAR, not_after=LONG_AGO)
    await t.refused("policy_denied", "grant_delegation", **document)


@case("P210", "P179")
async def outside_its_window_it_is_not_effective(t: Trial) -> None:
    """A check before the window or after it is access_denied."""
    early = await _grant(t, not_before=LATER, not_after=FAR)
    late = await _grant(t, not_before=LONG_AGO, not_after="2002-01-01T00:00:00Z")
    for granted in (early, late):
        await t.refused("access_denied", "check_delegation", **_check(granted))


@case("P211", "P179")
async def a_usage_limit_is_kept(t: Trial) -> None:
    """After as many uses as the limit says, checks are access_denied; a denied check consumes nothing."""
    granted = await _grant(t, usage_limit=2)
    await t.refused("access_denied", "check_delegation", **_check(granted, "delete", consume=True))
    for _ in range(2):
        await t.ok("check_delegation", **_check(granted, consume=True))
    await t.refused("access_denied", "check_delegation", **_check(granted, consume=True))


@case("P212", "P178")
async def a_revocation_is_effective_at_once(t: Trial) -> None:
    """The check after a revocation is access_denied, and the ledger tells of grant and revocation."""
    granted = await _grant(t)
    await t.ok("check_delegation", **_check(granted))
    await t.ok("revoke_delegation", delegation_id=_id(granted), policy_basis="conformance")
    await t.refused("access_denied", "check_delegation", **_check(granted))
    kinds = [event["event_type"] for event in await t.events()]
    for due in ("delegation_granted", "delegation_revoked"):
        t.check(due in kinds, f"the ledger lacks {due}")


@case("P213")
async def granted_objects_bound_it(t: Trial) -> None:
    """A grant for certain objects is access_denied for any other."""
    mine, other = await t.claim(), await t.claim()
    granted = await _grant(t, granted_object_ids=[mine["object_id"]])
    await t.ok("check_delegation", **_check(granted, object_id=mine["object_id"]))
    await t.refused("access_denied", "check_delegation", **_check(granted, object_id=other["object_id"]))


@case("P176")
async def operations_are_of_the_list(t: Trial) -> None:
    """A grant of an unknown operation, of none, or of one twice is invalid_object or invalid_request."""
    for operations in (["fly"], [], ["read", "read"]):
        document = await _document(t, granted_operations=operations)
        await t.refused("invalid_object invalid_request", "grant_delegation", **document)


@case("P177", "P178", "P174")
async def an_exercise_names_its_grant(t: Trial) -> None:
    """A write under a grant names it in version, provenance and event, and leaves delegation_exercised."""
    made = await t.claim()
    granted = await _grant(t)
    changed = await t.update(made, {"n": 2}, delegation_id=_id(granted), actor=DELEGATE)
    envelope = changed["envelope"]
    t.same(envelope["actor"].get("delegation_id"), _id(granted), "the version's actor")
    t.same(envelope["provenance"]["actor"].get("delegation_id"), _id(granted), "the provenance's actor")
    events = await t.events()
    t.check("delegation_exercised" in [event["event_type"] for event in events], "no delegation_exercised")
    await t.refused(
        "access_denied", "delete", **t.on(changed), policy_basis="x", delegation_id=_id(granted), actor=DELEGATE
    )


@case("P206", "P180")
async def a_made_up_grant_opens_nothing(t: Trial) -> None:
    """A write under a delegation that does not exist is refused."""
    await _grant(t)
    made = await t.claim()
    members: dict[str, Any] = {
        "canonical_content": 1,
        "provenance": PROVENANCE,
        "delegation_id": "dlg:none",
        "actor": DELEGATE,
    }
    await t.refused("access_denied object_not_found", "update", **t.on(made), **members)
    t.same((await t.read(made["object_id"]))["version_id"], made["version_id"], "the object")
