"""The steps that a scenario may have. Each does its work over the binding and judges every member of `expect`.

A step whose index is not there does what needs no index, judges that, and ends as not yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from pamspec_conformance.binding import Document
from pamspec_conformance.case import NotYet
from pamspec_conformance.scenarios.world import Step, World
from pamspec_conformance.trial import PROVENANCE, Made

Runner = Callable[[World, Step, dict[str, Any]], Awaitable[None]]
"""Takes what is left of `expect` and removes each member that it judged."""


async def ingest_event(world: World, step: Step, due: dict[str, Any]) -> None:
    """An event of a source: a first version, or the next one of the event that it corrects."""
    trial, event = world.trial, step["event"]
    place = world.place_of(event["source"])
    if step.get("freeze_indexes"):
        await world.hold_indexes()
    before = await world.head()
    reply = await trial.send(*_operation(world, event), **_members(world, step))
    if due.pop("outcome") == "conflict":
        trial.refusal(reply, "duplicate_operation", "another payload under a known event")
    else:
        trial.check(reply.refusal is None, f"refused: {reply.refusal.code if reply.refusal else ''}")
        made = Made(reply)
        first = world.outcomes.setdefault(event["id"], made)
        trial.same(reply.body, first.reply.body, "the outcome of the event")
        if "scope" in due:
            trial.same(due.pop("scope"), dict(place), "the place that the binding gives")
            trial.same(made["scope_id"], world.scope, "the scope")
        if "scope_from_caller_text" in due:
            await _text_decides_nothing(world, due.pop("scope_from_caller_text"))
        if "supersedes" in due:
            parent = made["envelope"]["provenance"].get("transformation_parent")
            old = await world.current(as_of={"ledger_sequence": world.position(due.pop("supersedes"))})
            trial.same(parent, old["version_id"], "the version that it follows")
        _holds(world, due.pop("current", {}), made["envelope"]["canonical_content"])
    head = await world.head()
    trial.same(head, due.pop("canonical_version"), "the canonical version")
    if "new_versions" in due:
        trial.same(head - before, due.pop("new_versions"), "new versions")
    if "ledger_effects" in due:
        mine = world.outcomes[event["id"]]["version_id"]
        effects = [one for one in await trial.events(scope_id=world.scope) if one.get("version_id") == mine]
        trial.same(len(effects), due.pop("ledger_effects"), "ledger effects of the event")
    if "watermark" in due:
        await _watermarks(world, due.pop("watermark"))


def _operation(world: World, event: Mapping[str, Any]) -> tuple[str]:
    return ("update" if event["payload"].get("applies_to") in world.outcomes else "create",)


def _members(world: World, step: Step) -> dict[str, Any]:
    event = step["event"]
    time, corrected = event.get("event_time"), world.outcomes.get(event["payload"].get("applies_to"))
    labels = [f"calibration:{step['calibration']}"] if "calibration" in step else []
    labels += [f"caller-text:{step['caller_text_scope']}"] if "caller_text_scope" in step else []
    provenance = {
        "activity": "ingest",
        "source_ref": f"sensor:{event['source']}",
        **({"evidence_refs": labels} if labels else {}),
        **({"transformation_parent": corrected["version_id"]} if corrected else {}),
    }
    content = {**world.place_of(event["source"]), **event["payload"], "source": event["source"]}
    target = (
        {"expected_version_id": corrected["version_id"]}
        if corrected
        else {"object_type": "observation", **({"observed_at": time} if time else {})}
    )
    return {
        "scope_id": world.scope,
        "object_id": world.object_id,
        "canonical_content": content,
        "source_event": {"source": f"sensor:{event['source']}", "id": event["id"]},
        "provenance": provenance,
        **({"asserted_at": step["receipt_time"]} if "receipt_time" in step else {}),
        **target,
    }


async def _text_decides_nothing(world: World, due: bool) -> None:
    """The principal that the text speaks of has nothing of it, and the sensor's cannot write there."""
    trial = world.trial
    trial.same(False, due, "a scope from a caller's text")
    if world.stranger is None:
        return
    elsewhere = f"{world.scope}-elsewhere"
    await trial.ok("create_scope", by=world.stranger, scope_id=elsewhere, scope_kind="workspace")
    document: dict[str, Any] = {"object_type": "observation", "canonical_content": 1, "provenance": PROVENANCE}
    await trial.refused("scope_not_found access_denied", "create", scope_id=elsewhere, **document)
    answer = await trial.ok(
        "query", by=world.stranger, scope_id=elsewhere, query={"kind": "structured", "trust": "all"}
    )
    trial.same(answer["items"], [], "objects of the place that the text names")


async def read_version(world: World, step: Step, due: dict[str, Any]) -> None:
    """A canonical version by its number, with all that is known of it."""
    trial = world.trial
    envelope = await world.current(as_of={"ledger_sequence": world.position(step["version"])})
    refs = envelope["provenance"].get("evidence_refs", [])
    found = {
        "event_time": _plain(envelope.get("observed_at")),
        "first_receipt_time": _plain(envelope.get("asserted_at")),
        "source": envelope["canonical_content"].get("source"),
        "calibration": next((ref[12:] for ref in refs if ref.startswith("calibration:")), None),
        "verification": envelope["validation_state"],
        "status": "current" if await world.current() == envelope else "historical",
    }
    for name, value in found.items():
        if name in due:
            trial.same(value, due.pop(name), name)
    _payload(world, due, envelope)


async def as_of_read(world: World, step: Step, due: dict[str, Any]) -> None:
    """The version that was known before another one, by record time."""
    newer = await world.current(as_of={"ledger_sequence": world.position(step["record_time_before_version"])})
    versions = (await world.trial.history(world.object_id, scope_id=world.scope))["versions"]
    older = next(one for one in versions if one["sequence"] == newer["sequence"] - 1)
    envelope = await world.current(as_of={"recorded_at": older["recorded_at"]})
    due_version = due.pop("version")
    by_position = await world.current(as_of={"ledger_sequence": world.position(due_version)})
    world.trial.same(envelope, by_position, f"version {due_version}")
    label = "current" if envelope == await world.current() else "historical"
    world.trial.same(label, due.pop("label"), "label")
    _payload(world, due, envelope)


async def query(world: World, step: Step, due: dict[str, Any]) -> None:
    """A question: by id where a canonical path is declared for an identified object, else through an index."""
    if not (step.get("declared_canonical_path") and step.get("object")):
        await _ranked(world, step, due)
        return
    trial, floor = world.trial, world.position(step["version_floor"])
    trial.same(f"obj:{step['object']}", world.object_id, "the object")
    answer = await trial.ok("read", scope_id=world.scope, object_id=world.object_id, min_sequence=floor)
    trial.same("canonical_lookup", due.pop("served_from"), "served from")
    due_version = due.pop("version")
    by_position = await world.current(as_of={"ledger_sequence": world.position(due_version)})
    trial.same(answer["envelope"], by_position, f"version {due_version}")
    _holds(world, due.pop("current", {}), answer["envelope"]["canonical_content"])
    history = (await trial.history(world.object_id, scope_id=world.scope))["versions"]
    for old in due.pop("excluded_as_current", []):
        envelope = await world.current(as_of={"ledger_sequence": world.position(old)})
        trial.check(envelope["version_id"] != answer["envelope"]["version_id"], f"{old} is answered as current")
        allowed = old in due.get("may_include_as_historical", [])
        trial.check(not allowed or envelope in history, f"{old} is missing from the history")
    due.pop("may_include_as_historical", None)
    if due.pop("index_lag_exposed", False):
        await _watermarks(world, None)
        if world.holds:
            behind = await trial.ok("query", **_lexical(world, step["ask"]))
            trial.check(behind["index"]["watermark"] < floor, "the lag of the index is not exposed")
            trial.same(behind["items"], [], "what an index that lags holds of an older version")


async def _ranked(world: World, step: Step, due: dict[str, Any]) -> None:
    """A question that only an index can answer: at the floor, or not at all."""
    trial, floor = world.trial, world.position(step["version_floor"])
    await _watermarks(world, None)
    wait = {"min_sequence": floor, "wait_ms": step.get("wait_bound_ms", 20_000)}
    reply = await trial.send("query", **_lexical(world, step["ask"]), **wait)
    if reply.refusal is not None:
        trial.refusal(reply, "service_unavailable", "a question below the floor")
        trial.check("unavailable" in due.get("any_of", []), "the answer is unavailable")
        trial.check(reply.refusal.details["watermark"] < floor, "an index that is at the floor was called behind")
    else:
        watermark = reply.document["index"]["watermark"]
        trial.check(watermark >= floor, "an index below the floor was taken to satisfy it")
        trial.check(not world.holds, "an index that is held back was taken to satisfy the floor")
        current = await world.current()
        for item in reply.document["items"]:
            trial.same(item["envelope"]["version_id"], current["version_id"], "the version answered as current")
        if "version" in due:
            trial.check(reply.document["items"], "the object is not found")
            trial.same(await world.head(), due.pop("version"), "the version")
    for name in [name for name in due if name in ("any_of", "never") or name.startswith("stale_")]:
        due.pop(name)


async def advance_indexes(world: World, step: Step, due: dict[str, Any]) -> None:
    """The indexes process what there is."""
    await world.release_indexes()
    floor = world.position(step["to"])
    await world.trial.ok("query", **_lexical(world, "anything"), min_sequence=floor, wait_ms=20_000)
    await _watermarks(world, due.pop("watermark"))


async def _watermarks(world: World, due: Mapping[str, int] | None) -> None:
    """Each index tells how far it is; NotYet where the implementation has no indexes to list.

    Whatever indexes the file speaks of, those that the implementation has are held against the lowest of them.
    """
    reply = await world.trial.send("list_indexes", scope_id=world.scope)
    found = [index["watermark"]["sequence"] for index in reply.document["indexes"]]
    world.trial.check(found, "no index is listed")
    if due and world.is_timely:
        world.trial.same(world.version(min(found)), min(due.values()), "the watermark")


def _lexical(world: World, text: str) -> dict[str, Any]:
    return {
        "scope_id": world.scope,
        "query": {"kind": "hybrid", "text": text, "modes": ["lexical"], "trust": "working"},
    }


async def assemble_context(world: World, step: Step, due: dict[str, Any]) -> None:
    """The context for a model: sources labelled, evidence apart from instructions, bounded."""
    document: Document = {"scope_id": world.scope, "object_ids": [world.object_id], "budget": 2000}
    reply = await world.trial.send("assemble", **document)
    raise NotYet(f"assemble: this runner does not know its answer (status {reply.status})")


async def runtime_propose(world: World, step: Step, due: dict[str, Any]) -> None:
    """A proposal is memory like any other: it changes nothing that it speaks of, and nobody trusts it by default."""
    trial, before = world.trial, await world.current()
    content = {"propose": step["allowed"][0], "about": world.object_id}
    proposal: dict[str, Any] = {"object_type": "decision", "canonical_content": content, "lifecycle_state": "candidate"}
    made = await trial.ok("create", scope_id=world.host_scope, **proposal, provenance={"activity": "propose"})
    trial.same("proposal_only", due.pop("effect"), "effect")
    trial.same(await trial.found(scope_id=world.host_scope), [], "trusted retrieval of a proposal")
    trial.same(made["envelope"]["lifecycle_state"], "candidate", "lifecycle of the proposal")
    trial.same(await world.current() != before, due.pop("dispatch_state_changed_by_memory"), "a change by memory")


async def host_decide(world: World, step: Step, due: dict[str, Any]) -> None:
    """The host decides in its own system; memory hears nothing of it."""
    before = await world.head()
    world.trial.same(step["apply_in"], due.pop("system_of_record"), "the system of record")
    world.trial.same(await world.head(), before, "the canonical version")


async def store_host_result(world: World, step: Step, due: dict[str, Any]) -> None:
    """What the host reports is kept as a report, traced, and no authority over what it reports."""
    trial, before = world.trial, await world.current()
    content = {"invocation_object_id": "obj:dispatch", "outcome": "success", "result": {"done": True}}
    activity = due.pop("stored_as")
    made = await trial.ok(
        "create",
        scope_id=world.host_scope,
        object_type="tool_result",
        canonical_content=content,
        provenance={"activity": activity, "source_ref": "system:host"},
    )
    trial.same(made["envelope"]["provenance"]["activity"], activity, "what it is stored as")
    trial.same(made["envelope"]["validation_state"], "unverified", "validation")
    events = [event["event_type"] for event in await trial.events(made["object_id"], scope_id=world.host_scope)]
    trial.same(events == ["object_created", "tool_completed"], due.pop("trace_recorded"), "the trace")
    trial.same(await world.current() != before, due.pop("memory_is_authority_for_dispatch"), "authority")


def _holds(world: World, due: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    for name, value in due.items():
        world.trial.same(content.get(name), value, name)


def _payload(world: World, due: dict[str, Any], envelope: Mapping[str, Any]) -> None:
    """What is left names members of the payload."""
    for name in list(due):
        world.trial.same(envelope["canonical_content"].get(name), due.pop(name), name)


def _plain(time: Any) -> str | None:
    """A time without a fraction that is zero."""
    return time.replace(".000000Z", "Z") if isinstance(time, str) else None


STEPS: Final[Mapping[str, Runner]] = {
    step.__name__: step
    for step in (
        ingest_event,
        read_version,
        as_of_read,
        query,
        advance_indexes,
        assemble_context,
        runtime_propose,
        host_decide,
        store_host_result,
    )
}
