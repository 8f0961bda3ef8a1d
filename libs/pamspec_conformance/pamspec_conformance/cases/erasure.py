"""LEDGER (18.6), erasure: redaction whole and by path, what stays of it and what must not."""

from __future__ import annotations

from typing import Any

from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import PROVENANCE, Made, Trial

LIST = CaseList("LEDGER")
case = LIST.case
WHOLE: dict[str, Any] = {"policy_basis": "conformance", "redaction_target": {"whole": True}}


async def _searched(t: Trial, secret: str, object_id: str) -> None:
    """No answer of any kind holds the secret."""
    asked: list[tuple[str, dict[str, Any]]] = [
        ("read", {"object_id": object_id}),
        ("inspect_history", {"object_id": object_id}),
        ("inspect_history", {"after_sequence": 0}),
        ("query", {"query": {"kind": "structured", "trust": "all"}}),
    ]
    for operation, members in asked:
        reply = await t.send(operation, **members)
        t.check(secret.encode() not in reply.body, f"{operation} still answers erased content")


async def _secrets(t: Trial) -> tuple[Made, Made]:
    first = await t.claim({"name": "secret-e1", "kept": 1}, provenance={"activity": "told", "source_ref": "secret-e1"})
    return first, await t.update(first, {"name": "secret-e1", "kept": 2})


@case("P136", "P101", "P221", "P24")
async def redaction_erases_every_version(t: Trial) -> None:
    """Redaction of the whole object writes a tombstone version and object_redacted; no answer has the content."""
    first, second = await _secrets(t)
    gone = await t.ok("redact", **t.on(second), **WHOLE)
    t.same(gone["envelope"]["availability_state"], "redacted", "availability")
    t.same((await t.events(first["object_id"]))[-1]["event_type"], "object_redacted", "the last event")
    await t.refused("object_redacted", "read", object_id=first["object_id"])
    await t.refused("object_redacted", "read", object_id=first["object_id"], version_id=first["version_id"])
    await _searched(t, "secret-e1", first["object_id"])


@case("P101", "P136", "P87")
async def redaction_by_path_keeps_the_rest(t: Trial) -> None:
    """Redaction of a path leaves the rest of the current content, and the object partially_redacted."""
    first, second = await _secrets(t)
    target = {"paths": ["/name"]}
    part = await t.ok("redact", **t.on(second), policy_basis="conformance", redaction_target=target)
    t.same(part["envelope"]["availability_state"], "partially_redacted", "availability")
    t.same(part["envelope"]["canonical_content"].get("kept"), 2, "what was not redacted")
    await _searched(t, "secret-e1", first["object_id"])


@case("P136", "P67")
async def chosen_past_versions_are_erased(t: Trial) -> None:
    """Redaction of chosen past versions erases exactly those; the object stays available."""
    first, second = await _secrets(t)
    third = await t.update(second, {"name": "kept-e2"})
    ids = [first["version_id"]]
    await t.ok("redact", **t.on(third), **WHOLE, version_ids=ids)
    await t.refused("object_redacted", "read", object_id=first["object_id"], version_id=first["version_id"])
    kept = await t.read(first["object_id"], version_id=second["version_id"])
    t.same(kept["canonical_content"], {"name": "secret-e1", "kept": 2}, "a version that was not chosen")
    t.same((await t.read(first["object_id"]))["availability_state"], "available", "availability")


@case("P136", "P88")
async def a_hold_blocks_redaction(t: Trial) -> None:
    """Under a legal hold redaction fails with legal_hold and erases nothing."""
    held = await t.transition(await t.claim({"name": "held"}), "retention", "legal_hold")
    await t.refused("legal_hold", "redact", **t.on(held), **WHOLE)
    t.same((await t.read(held["object_id"]))["canonical_content"], {"name": "held"}, "the content")


@case("P136", "P69")
async def redaction_needs_its_preconditions(t: Trial) -> None:
    """Redaction of a stale version, of nothing, or without a policy basis or target is refused."""
    first, second = await _secrets(t)
    await t.refused("version_conflict", "redact", **t.on(first), **WHOLE)
    missing: dict[str, Any] = {"object_id": "obj:none", "expected_version_id": "ver:none"}
    await t.refused("object_not_found", "redact", **missing, **WHOLE)
    await t.refused("invalid_request", "redact", **t.on(second), redaction_target={"whole": True})
    await t.refused("invalid_request", "redact", **t.on(second), policy_basis="conformance")


@case("P24", "P159", "P184")
async def a_repetition_tells_no_erased_content(t: Trial) -> None:
    """After an erasure the repetition of the create answers without its content."""
    key = t.key()
    document: dict[str, Any] = {
        "object_type": "claim",
        "canonical_content": {"name": "secret-e3"},
        "provenance": PROVENANCE,
    }
    made = await t.ok("create", key=key, **document)
    await t.ok("redact", **t.on(made), **WHOLE)
    again = await t.send("create", key=key, **document)
    t.refusal(again, "object_redacted", "the repetition")
    t.check(b"secret-e3" not in again.body, "the repetition holds erased content")
