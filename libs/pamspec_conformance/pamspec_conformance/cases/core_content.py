"""CORE (18.4), types and content: what goes in comes out."""

from __future__ import annotations

import json
from typing import Any

from pamspec_conformance import shapes
from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import PROVENANCE, Trial

LIST = CaseList("CORE")
case = LIST.case

TOOL_CALL = {"tool_name": "weather", "arguments": {"city": "Porto"}}
NOTE = {"task_ref": "task:1", "content": "half of it is done"}
CONTENTS: dict[str, Any] = {
    "claim": {"statement": "it rains"},
    "decision": {"decision": "wait"},
    "task": {"title": "look again"},
    "artifact": {"uri": "file:report"},
    "observation": {"celsius": 4.5},
    "entity": {"name": "Depot 7"},
    "summary": {"text": "it rained"},
    "tool_invocation": TOOL_CALL,
    "tool_result": {"invocation_object_id": "obj:call", "outcome": "success", "result": 21},
    "working_memory": NOTE,
}


@case("P56", "P34", "P219")
async def every_standard_type_is_taken(t: Trial) -> None:
    """Objects of all ten standard types are created and read with a whole envelope."""
    for kind, content in CONTENTS.items():
        made = await t.ok("create", object_type=kind, canonical_content=content, provenance=PROVENANCE)
        envelope = await t.read(made["object_id"])
        t.shape(shapes.envelope_faults(envelope), f"the envelope of a {kind}")
        t.same((envelope["object_type"], envelope["canonical_content"]), (kind, content), f"the {kind}")


@case("P56")
async def a_relationship_is_no_object_type(t: Trial) -> None:
    """An object of a type that is neither standard nor an extension name is refused."""
    for kind in ("relationship", "Claim", "nosuchtype", ""):
        members: dict[str, Any] = {"object_type": kind, "canonical_content": 1, "provenance": PROVENANCE}
        await t.refused("invalid_object invalid_request unsupported_object_type", "create", **members)


@case("P57", "P58", "P60", "P39")
async def extension_types_are_preserved(t: Trial) -> None:
    """An extension type with its schema_id is kept whole; without a schema_id it is refused."""
    for kind in ("com.example.memory.invoice", "https://types.example.com/invoice"):
        members: dict[str, Any] = {
            "object_type": kind,
            "canonical_content": {"x": [1, {"y": None}]},
            "provenance": PROVENANCE,
        }
        await t.refused("invalid_object invalid_request", "create", **members)
        made = await t.ok("create", **members, schema_id="https://schemas.example.com/invoice/1")
        envelope = await t.read(made["object_id"])
        t.same((envelope["object_type"], envelope["schema_id"]), (kind, "https://schemas.example.com/invoice/1"), "")
        t.same(envelope["canonical_content"], members["canonical_content"], "the content")


@case("P40", "P154")
async def any_json_value_comes_back(t: Trial) -> None:
    """Content of any JSON type comes back as the same value from create, read, query and history."""
    values: list[Any] = [
        None,
        True,
        0,
        -7,
        2**70 + 1,
        0.1,
        1e300,
        "",
        "é 日本語 \u0001 \u0000 \U0001f40b",
        [],
        {},
        [[], {"a": [None, {"b": {}}]}],
        {"": "empty name", "a.b/c~d": 1, "日本": "key"},
    ]
    for value in values:
        members: dict[str, Any] = {"object_type": "claim", "canonical_content": value, "provenance": PROVENANCE}
        made = await t.ok("create", **members)
        t.same(made["envelope"]["canonical_content"], value, "the content of create")
        t.same((await t.read(made["object_id"]))["canonical_content"], value, "the content of read")
        history = await t.history(made["object_id"])
        t.same(history["versions"][0]["canonical_content"], value, "the content of history")


@case("P66", "P65", "P157")
async def working_memory_starts_as_scratch(t: Trial) -> None:
    """Working memory is created as scratch and is no part of default retrieval."""
    made = await t.ok(
        "create",
        object_type="working_memory",
        canonical_content=NOTE,
        provenance=PROVENANCE,
        validation_state="corroborated",
    )
    t.same(made["envelope"]["lifecycle_state"], "scratch", "lifecycle")
    t.same(await t.found(), [], "found by default")
    t.same(await t.found({"filters": {"lifecycle_state": ["scratch"]}}), [made["object_id"]], "found when asked")


async def _bad_content(t: Trial, kind: str, contents: list[Any]) -> None:
    for content in contents:
        members: dict[str, Any] = {"object_type": kind, "canonical_content": content, "provenance": PROVENANCE}
        await t.refused("invalid_object", "create", **members)


@case("P61")
async def tool_invocations_have_their_form(t: Trial) -> None:
    """A tool_invocation without tool_name or arguments is invalid_object."""
    await _bad_content(
        t, "tool_invocation", [{"arguments": {}}, {"tool_name": "x"}, "call", {**TOOL_CALL, "tool_name": 1}]
    )


@case("P62")
async def tool_results_have_their_form(t: Trial) -> None:
    """A tool_result without invocation, or with an unknown outcome, is invalid_object."""
    contents = [
        {"outcome": "success"},
        {"invocation_object_id": "obj:1"},
        {"invocation_object_id": "obj:1", "outcome": "fine"},
    ]
    await _bad_content(t, "tool_result", contents)


@case("P64")
async def working_memory_has_its_form(t: Trial) -> None:
    """Working memory without task_ref or content is invalid_object."""
    await _bad_content(t, "working_memory", [{"content": "x"}, {"task_ref": "task:1"}])


@case("P62", "P145")
async def tools_leave_their_events(t: Trial) -> None:
    """A tool_invocation also leaves tool_invoked, a tool_result tool_completed."""
    for kind, due in (("tool_invocation", "tool_invoked"), ("tool_result", "tool_completed")):
        made = await t.ok("create", object_type=kind, canonical_content=CONTENTS[kind], provenance=PROVENANCE)
        kinds = [event["event_type"] for event in await t.events(made["object_id"])]
        t.same(kinds, ["object_created", due], f"events of a {kind}")


@case("P50", "P51")
async def the_actor_is_the_principal(t: Trial) -> None:
    """Every version and event names its actor; two writes of one principal name the same."""
    made = await t.claim()
    other = await t.claim()
    actor = made["envelope"]["actor"]
    t.same(other["envelope"]["actor"], actor, "the actor of the second write")
    for event in await t.events():
        t.same(event["actor"]["actor_id"], actor["actor_id"], "the actor of an event")


@case("P40", "P69")
async def content_is_never_merged(t: Trial) -> None:
    """An update replaces the content whole; nothing of the old one stays in the new version."""
    made = await t.claim({"a": 1, "b": {"c": 2}})
    changed = await t.update(made, {"b": {"d": 3}})
    t.same(changed["envelope"]["canonical_content"], {"b": {"d": 3}}, "the new content")
    t.same(
        (await t.read(made["object_id"], version_id=made["version_id"]))["canonical_content"],
        {"a": 1, "b": {"c": 2}},
        "",
    )


@case("P155", "P154")
async def envelopes_have_no_fields_per_call(t: Trial) -> None:
    """The envelope of one version has the same bytes in create, read, query and history, however often asked."""
    made = await t.claim({"z": 1, "a": 2})
    seen = set()
    for _ in range(3):
        read = await t.send("read", object_id=made["object_id"])
        query = await t.send("query", query={"kind": "structured"})
        history = await t.send("inspect_history", object_id=made["object_id"])
        seen.add(json.dumps(read.document["envelope"]))
        seen.add(json.dumps(query.document["items"][0]["envelope"]))
        seen.add(json.dumps(history.document["versions"][0]))
    t.same(seen, {json.dumps(made["envelope"])}, "forms of the envelope")
