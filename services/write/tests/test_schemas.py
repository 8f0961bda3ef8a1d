"""Content schemas: registered for good, cheap whatever the content, enforced on every write, silent about values."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from pamspec_common.calls import HEADER_REPLAYED
from pamspec_common.errors import InvalidRequest
from pamspec_write.model.content import MAX_SCHEMA_BYTES, ContentSchema, checked_schema, standard_schema
from services.write.tests.writer import PROVENANCE, Document, Writer, claim

PLANT = "https://schemas.example.com/plant/1"
SCHEMA: Document = {
    "type": "object",
    "required": ["species"],
    "properties": {
        "species": {"type": "string", "maxLength": 20},
        "height_cm": {"type": "number", "minimum": 0},
        "seen_at": {"type": "string", "format": "date-time"},
        "parts": {"type": "array", "items": {"$ref": "#"}},
    },
    "additionalProperties": {"type": "integer"},
}
SECRET = "the secret of the rose"
MEMORY = {"task_ref": "task:1", "content": {"any": "value"}}


@pytest.fixture
def writer(shared: Writer) -> Writer:
    """A scope of its own is all that a test here needs."""
    return shared


async def register(writer: Writer, schema: Any = SCHEMA, schema_id: str = PLANT, **more: Any) -> Document:
    """The answer of a registration in the test's scope."""
    return await writer.ok(
        "register_schema", {"scope_id": writer.scope, "schema_id": schema_id, "schema": schema, **more}
    )


def plant(writer: Writer, content: Any, **more: Any) -> Document:
    """A request for an object of that schema."""
    return claim(writer.scope, content, object_type="com.example.plant", schema_id=PLANT, **more)


async def test_a_schema_is_registered_for_good(writer: Writer) -> None:
    before = await writer.admin.fetchval(
        "SELECT epoch_authz FROM core.scope_head WHERE scope_key = $1", await writer.scope_key()
    )
    request = {"scope_id": writer.scope, "schema_id": PLANT, "schema": SCHEMA}
    first = await writer.call("register_schema", request, key="plant")
    again = await writer.call("register_schema", request, key="plant")
    assert (again.body, again.headers[HEADER_REPLAYED]) == (first.body, "true")
    await register(writer, {name: SCHEMA[name] for name in sorted(SCHEMA)})
    error = await writer.refused("register_schema", {**request, "schema": {"type": "string"}})
    assert (error["code"], error["details"]["reason"]) == ("duplicate_operation", "schema_exists")
    assert await writer.count("core.content_schema") == 1
    after = await writer.admin.fetchval(
        "SELECT epoch_authz FROM core.scope_head WHERE scope_key = $1", await writer.scope_key()
    )
    assert after == before + 1
    there = await writer.new_scope()
    await register(writer, {"type": "string"}, scope_id=there)


@pytest.mark.parametrize(
    ("content", "pointer", "rule"),
    [
        ({}, "", "required"),
        ({"species": 1}, "/species", "type"),
        ({"species": SECRET}, "/species", "maxLength"),
        ({"species": "rose", "height_cm": -1}, "/height_cm", "minimum"),
        ({"species": "rose", "seen_at": "yesterday"}, "/seen_at", "format"),
        ({"species": "rose", "parts": [{"species": "leaf"}, {"species": SECRET}]}, "/parts/1/species", "maxLength"),
        ({"species": "rose", SECRET: "no integer"}, "/*", "type"),
        (SECRET, "", "type"),
    ],
)
async def test_a_breach_names_the_place_and_never_a_value(
    writer: Writer, content: Any, pointer: str, rule: str
) -> None:
    await register(writer)
    answer = await writer.call("create", plant(writer, content))
    error = orjson.loads(answer.body)["error"]
    assert (answer.status, error["code"]) == (422, "invalid_object")
    assert error["details"] == {"field": "canonical_content", "pointer": pointer, "rule": rule, "schema_id": PLANT}
    assert SECRET.encode() not in answer.body
    stored = await writer.admin.fetch(
        "SELECT answer FROM core.operation_record WHERE scope_key = $1", await writer.scope_key()
    )
    assert all(SECRET.encode() not in (row["answer"] or b"") for row in stored)


async def test_every_write_of_content_is_held_against_its_schema(writer: Writer) -> None:
    second = f"{PLANT[:-1]}2"
    before = await writer.ok("create", plant(writer, "written before the schema"))
    await register(writer)
    made = await writer.ok("create", plant(writer, {"species": "rose", "big": 2**63, "height_cm": 1.5e2}))
    change = writer.change(made, provenance=PROVENANCE)
    error = await writer.refused("update", {**change, "canonical_content": {"species": 2}})
    assert (error["code"], error["details"]["pointer"]) == ("invalid_object", "/species")
    timed = writer.change(before, provenance=PROVENANCE, valid_from="2026-01-01T00:00:00Z")
    kept = await writer.ok("update", timed)
    assert kept["envelope"]["canonical_content"] == "written before the schema"
    good = await writer.ok("update", {**change, "canonical_content": {"species": "tulip"}})
    later = writer.change(good, provenance=PROVENANCE, schema_id=second)
    await register(writer, {"type": "object", "required": ["name"]}, second)
    error = await writer.refused("update", later)
    assert (error["code"], error["details"]["rule"]) == ("invalid_object", "required")
    other = await writer.ok("update", {**later, "canonical_content": {"name": "tulip"}})
    restore = writer.change(other, provenance=PROVENANCE, restore_version_id=good["version_id"])
    error = await writer.refused("update", {**restore, "schema_id": second})
    assert (error["code"], error["details"]["schema_id"]) == ("invalid_object", second)
    back = await writer.ok("update", restore)
    assert back["envelope"]["schema_id"] == PLANT
    target = {"paths": ["/species"]}
    redacted = await writer.ok("redact", writer.change(back, policy_basis="test", redaction_target=target))
    assert redacted["envelope"]["canonical_content"] == {}
    available = writer.change(redacted, dimension="availability", target_state="available", policy_basis="test")
    error = await writer.refused("transition", {**available, "canonical_content": {"species": 3}})
    assert error["code"] == "invalid_object"
    await writer.ok("transition", {**available, "canonical_content": {"species": "tulip"}})
    await writer.check_scope()


async def test_promote_holds_the_target_against_its_schema(writer: Writer) -> None:
    await register(writer)
    memory = await writer.create(MEMORY, object_type="working_memory")
    request = {
        "scope_id": writer.scope,
        "source_object_id": memory["object_id"],
        "expected_version_id": memory["version_id"],
        "target_object_type": "com.example.plant",
        "target_schema_id": PLANT,
        "provenance": PROVENANCE,
    }
    error = await writer.refused("promote", {**request, "target_canonical_content": {"species": 1}})
    assert (error["code"], error["details"]["field"], error["details"]["pointer"]) == (
        "invalid_object",
        "target_canonical_content",
        "/species",
    )
    wrong_type = {**request, "target_object_type": "tool_result", "target_canonical_content": {"species": "rose"}}
    assert (await writer.refused("promote", wrong_type))["details"]["schema_id"] == "pamspec:schema:tool-result-content"
    await writer.ok("promote", {**request, "target_canonical_content": {"species": "rose"}})
    await writer.check_scope()


async def test_a_repetition_is_answered_whatever_was_registered_since(writer: Writer) -> None:
    request = plant(writer, {"no": "species"}, idempotency_key="once")
    first = await writer.call("create", request)
    await register(writer)
    again = await writer.call("create", request)
    assert (again.status, again.body, again.headers[HEADER_REPLAYED]) == (201, first.body, "true")
    assert (await writer.refused("create", {**request, "idempotency_key": "twice"}))["code"] == "invalid_object"


async def test_a_batch_is_held_against_a_schema_item_by_item(writer: Writer) -> None:
    await register(writer)
    good, bad = plant(writer, {"species": "rose"}), plant(writer, {"species": 1})
    items = [{**one, "operation": "create"} for one in (good, bad, good)]
    results = (await writer.ok("batch", {"scope_id": writer.scope, "items": items}))["results"]
    assert [result.get("error", {}).get("code") for result in results] == [None, "invalid_object", None]
    error = await writer.refused("batch", {"scope_id": writer.scope, "items": items, "atomic": True})
    assert (error["code"], error["details"]["index"]) == ("invalid_object", 1)


async def test_another_process_knows_a_schema_from_its_registration_on(writers: tuple[Writer, Writer]) -> None:
    first, second = writers
    for n in range(6):
        schema_id = f"https://schemas.example.com/n/{n}"
        request = claim(first.scope, n, schema_id=schema_id)
        registering, writing = (first, second) if n % 2 else (second, first)
        await writing.ok("create", request)
        await register(registering, {"type": "string"}, schema_id)
        assert (await writing.refused("create", request))["code"] == "invalid_object"
        await writing.ok("create", claim(first.scope, "text", schema_id=schema_id))
    results = await asyncio.gather(
        *(
            w.call("register_schema", {"scope_id": first.scope, "schema_id": PLANT, "schema": {"maxLength": n}})
            for n, w in enumerate(writers * 5)
        )
    )
    assert sorted(answer.status for answer in results) == [200] + [409] * 9


@pytest.mark.parametrize("object_type", ["tool_invocation", "tool_result", "working_memory"])
async def test_standard_types_have_a_form(writer: Writer, object_type: str) -> None:
    examples = Path(__file__).parents[3] / "contracts" / "examples"
    name = f"{object_type.replace('_', '-')}-content"
    for path in sorted((examples / "valid" / name).glob("*.json")):
        made = await writer.create(json.loads(path.read_text()), object_type=object_type)
        error = await writer.refused("update", {**writer.change(made, provenance=PROVENANCE), "canonical_content": {}})
        assert error["code"] == "invalid_object"
    invalid = sorted((examples / "invalid" / name).glob("*.json"))
    assert invalid
    for path in invalid:
        error = await writer.refused(
            "create", claim(writer.scope, json.loads(path.read_text())["instance"], object_type=object_type)
        )
        assert (error["code"], error["details"]["field"]) == ("invalid_object", "canonical_content"), path
    await writer.check_scope()


def test_the_examples_of_the_draft_keep_the_forms() -> None:
    """Where PAMSPEC_SPEC names the folder that holds them; our own examples speak in any case."""
    folder = os.environ.get("PAMSPEC_SPEC")
    tried = 0
    for path in sorted(Path(folder).glob("vectors-valid/*.json")) if folder is not None else ():
        for found in _objects(json.loads(path.read_text())):
            schema = standard_schema(found["object_type"])
            if schema is not None:
                assert schema.breach(orjson.dumps(found["canonical_content"])) is None, path
                tried += 1
    assert tried >= (0 if folder is None else 3)


def _objects(value: Any) -> list[Document]:
    if isinstance(value, list):
        return [found for below in value for found in _objects(below)]
    if not isinstance(value, dict):
        return []
    own = [value] if {"object_type", "canonical_content"} <= value.keys() else []
    return own + [found for below in value.values() for found in _objects(below)]


_DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": True}
_MUTUAL = {f"q{n}": {"properties": {"a": {"anyOf": [{"$ref": f"#/$defs/q{m}"} for m in range(4)]}}} for n in range(4)}


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"$ref": "https://elsewhere.example/s"}, "schema.$ref"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "schema.properties.a.$ref"),
        ({"$ref": "#/$defs/missing"}, "schema"),
        ({"$ref": "#"}, "schema"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "schema"),
        ({"$dynamicRef": "#a"}, "schema.$dynamicRef"),
        ({"properties": {"a": {"$anchor": "x"}}}, "schema.properties.a.$anchor"),
        ({"$id": "https://schemas.example.com/other"}, "schema.$id"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "schema.$schema"),
        ({"$ref": "#/$defs/d0", "$defs": _DOUBLING}, "schema"),
        ({"$ref": "#/$defs/q0", "$defs": _MUTUAL}, "schema"),
        ({"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}, "schema"),
        ({"properties": {"a": {"$ref": "#"}}, "patternProperties": {"^a": {"$ref": "#"}}}, "schema"),
        ({"items": {"$ref": "#"}, "contains": {"$ref": "#"}}, "schema"),
        ({"enum": [{"a": n} for n in range(500)]}, "schema"),
        ({"enum": list(range(500))}, "schema"),
        ({"enum": [n + 0.5 for n in range(50)]}, "schema"),
        ({"enum": [f"t{n}" for n in range(2000)] + [None]}, "schema"),
        ({"allOf": [{"not": {"const": n + 0.5}} for n in range(50)]}, "schema"),
        ({"allOf": [{"multipleOf": 1e-300}] * 5}, "schema"),
        ({"items": {"dependentRequired": {f"a{n}": ["b"] for n in range(3000)}}}, "schema"),
        ({"allOf": [True], "$ref": "#/allOf/\u00b2"}, "schema"),
        ({"properties": {f"p{n}": {"allOf": [{"$ref": "#"}, {"required": [f"q{n}"]}]} for n in range(700)}}, "schema"),
        ({"pattern": "^(?=a)b"}, "schema/pattern"),
        ({"pattern": r"(a)\1"}, "schema/pattern"),
        ({"properties": {"a": {"pattern": "(a{1000}){1000}"}}}, "schema/properties/a/pattern"),
        ({"type": "strnig"}, "schema/type"),
        ({"properties": []}, "schema/properties"),
        ({"description": "x" * MAX_SCHEMA_BYTES}, "schema"),
    ],
)
async def test_a_schema_that_could_cost_too_much_is_refused_at_once(
    writer: Writer, schema: Document, field: str
) -> None:
    started = time.monotonic()
    with pytest.raises(InvalidRequest) as refused:
        checked_schema(PLANT, schema)
    assert time.monotonic() - started < 20
    assert refused.value.details["field"] == field
    error = await writer.refused("register_schema", {"scope_id": writer.scope, "schema_id": PLANT, "schema": schema})
    assert (error["code"], error["details"]["field"]) == ("invalid_request", field)
    assert await writer.count("core.content_schema") == 0


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "all": {"items": {"$ref": "#"}}}},
        {"oneOf": [{"$ref": f"#/$defs/v{n}"} for n in range(30)], "$defs": {f"v{n}": {"const": n} for n in range(30)}},
        {"enum": [f"city-{n}" for n in range(4000)]},
        {"enum": [*range(100), None]},
        {"multipleOf": 0.01, "minimum": 0.5},
        {"properties": {f"p{n}": {"type": "string"} for n in range(1500)}},
        {"properties": {"$ref": {"type": "string"}, "$id": {"type": "integer"}, "pattern": {"type": "string"}}},
        {"pattern": r"^[\p{L}\p{N} .-]{1,64}$"},
        {"const": {"$ref": "https://is.example/data"}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": PLANT},
        True,
        False,
    ],
)
def test_what_people_write_is_accepted(schema: Any) -> None:
    ContentSchema(PLANT, json.loads(checked_schema(PLANT, schema)))


def test_validation_takes_time_in_proportion_to_the_content() -> None:
    """The dearest schema that is accepted, on deep and on wide content of the largest size, valid and not."""
    tree = ContentSchema(PLANT, json.loads(checked_schema(PLANT, {"properties": {"a": {"$ref": "#"}, "b": False}})))
    wide = ContentSchema(PLANT, json.loads(checked_schema(PLANT, {"items": {"allOf": [{"minimum": 0}] * 100}})))
    deep: Any = {"b": 1}
    for _ in range(120):
        deep = {"a": deep}
    started = time.monotonic()
    assert tree.breach(orjson.dumps(deep)) is not None
    assert wide.breach(orjson.dumps([1] * 150_000)) is None
    assert wide.breach(orjson.dumps([1] * 150_000 + [-1])) is not None
    assert ContentSchema(PLANT, {"pattern": "^(a+)+$"}).breach(b'"' + b"a" * 900_000 + b'b"') is not None
    assert time.monotonic() - started < 30


_CHEAP = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "content", "pointer", "rule"),
    [
        ({"items": _CHEAP}, [1] * 300_000, "/0", "type"),
        ({"items": {"enum": [n + 0.5 for n in range(5)]}}, [1] * 300_000, "/0", "enum"),
        ({"propertyNames": {"pattern": "^a"}}, {f"b{n}": 1 for n in range(80_000)}, "", "propertyNames"),
        ({"anyOf": [{"items": _CHEAP}] * 50}, [1] * 300_000, "", "anyOf"),
        ({"oneOf": [{"items": _CHEAP}] * 50}, [1] * 300_000, "", "oneOf"),
        ({"properties": {"a": {"oneOf": [{"items": _CHEAP}] * 50}}}, {"a": [1] * 300_000}, "/a", "oneOf"),
        ({"anyOf": [{"items": _CHEAP}, {"$ref": "#/anyOf/0"}]}, [1] * 300_000, "", "schema"),
        ({"anyOf": [True], "unevaluatedItems": _CHEAP}, [1] * 300_000, "", "schema"),
    ],
)
def test_finding_a_breach_keeps_one_error_however_many_there_are(
    schema: Document, content: Any, pointer: str, rule: str
) -> None:
    compiled = ContentSchema(PLANT, json.loads(checked_schema(PLANT, schema)))
    data = orjson.dumps(content)
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    assert compiled.breach(data) == (pointer, rule)
    assert time.monotonic() - started < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


def test_alternatives_decide_as_they_stand() -> None:
    """What finds the place never decides: what is valid stays valid, beside unevaluated members too."""
    schema = {"anyOf": [{"properties": {"a": True}}], "unevaluatedProperties": False}
    compiled = ContentSchema(PLANT, json.loads(checked_schema(PLANT, schema)))
    assert compiled.breach(b'{"a":1}') is None
    assert compiled.breach(b'{"b":1}') == ("", "schema")
    nested = ContentSchema(PLANT, {"allOf": [{"oneOf": [{"const": {"anyOf": []}}, {"type": "integer"}]}]})
    assert nested.breach(b'{"anyOf":[]}') is None
    assert nested.breach(b"1") is None
    assert nested.breach(b'"1"') == ("", "oneOf")


def test_large_numbers_keep_their_kind() -> None:
    schema = ContentSchema(PLANT, {"type": "integer"})
    assert schema.breach(b"9" * 900) is None
    assert schema.breach(b"1.0") is None
    assert schema.breach(b"1.5") is not None
