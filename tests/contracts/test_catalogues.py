"""The catalogues keep their shape, refer to nothing that is missing, and leave nothing out."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from pamspec_common import bus, contracts
from pamspec_common.contracts import components, sources
from pamspec_common.errors import TREE, Unauthenticated
from pamspec_common.events import EVENT_TYPES, PARTY_TYPES
from pamspec_common.ids import subject_token
from pamspec_gateway import bus_door, callout

_NAMES = ("streams", "events", "operations", "errors")


@pytest.fixture(scope="module")
def documents(root: Path) -> dict[str, dict[str, Any]]:
    return {name: sources.read_yaml(root / "contracts" / f"{name}.yaml") for name in _NAMES}


@pytest.mark.parametrize("name", _NAMES)
def test_a_catalogue_keeps_its_shape(name: str, documents: dict[str, dict[str, Any]]) -> None:
    contracts.check(name, documents[name])


def _unknown_setting(document: dict[str, Any]) -> None:
    document["streams"]["ledger"]["config"]["max_age"] = 7


def _endless_window(document: dict[str, Any]) -> None:
    document["streams"]["ledger"]["config"]["duplicate_window_ms"] = 0


def _consumer_without_service(document: dict[str, Any]) -> None:
    document["streams"]["ledger"]["consumers"] = [{"name": "indexing_{partition}"}]


def _subject_without_listener(document: dict[str, Any]) -> None:
    document["subjects"]["wake"]["consumers"] = []


def _unknown_producer(document: dict[str, Any]) -> None:
    document["subjects"]["wake"]["producers"] = ["gardener"]


def _foreign_subject(document: dict[str, Any]) -> None:
    document["subjects"]["wake"]["pattern"] = "other.wake.{partition}"


def _unknown_event_type(document: dict[str, Any]) -> None:
    document["events"]["object_watered"] = document["events"]["object_created"]


def _party_without_names(document: dict[str, Any]) -> None:
    del document["events"]["subscription_opened"]["parties"]


def _names_without_party(document: dict[str, Any]) -> None:
    document["events"]["object_created"]["parties"] = ["actor"]


def _unknown_error(document: dict[str, Any]) -> None:
    document["operations"]["create"]["errors"].append("teapot")


def _wrong_method(document: dict[str, Any]) -> None:
    document["operations"]["read"]["conveniences"][0]["method"] = "FETCH"


def _odd_status(document: dict[str, Any]) -> None:
    document["errors"]["legal_hold"]["status"] = 200


def _undecided(document: dict[str, Any]) -> None:
    document["errors"]["legal_hold"]["retryable"] = "perhaps"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("streams", _unknown_setting),
        ("streams", _endless_window),
        ("streams", _consumer_without_service),
        ("streams", _subject_without_listener),
        ("streams", _unknown_producer),
        ("streams", _foreign_subject),
        ("events", _unknown_event_type),
        ("events", _party_without_names),
        ("events", _names_without_party),
        ("operations", _unknown_error),
        ("operations", _wrong_method),
        ("errors", _odd_status),
        ("errors", _undecided),
    ],
)
def test_a_broken_catalogue_is_refused(
    name: str, change: Callable[[dict[str, Any]], None], documents: dict[str, dict[str, Any]]
) -> None:
    broken = copy.deepcopy(documents[name])
    change(broken)
    with pytest.raises(contracts.ContractViolation):
        contracts.check(name, broken)


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("a: 1\nb: {c: 1, c: 2}\n")
    with pytest.raises(sources.DuplicateKey):
        sources.read_yaml(path)


def test_schemas_are_schemas_with_the_name_of_their_file(root: Path) -> None:
    named = {f"pamspec:schema:{path.stem}" for path in (root / "contracts" / "schemas").glob("*.json")}
    for path in (root / "contracts" / "operations").glob("*.json"):
        operation, _, kind = path.stem.partition(".")
        named.add(f"pamspec:operation:{operation}:{kind}")
    assert set(contracts.schemas()) == named
    for identifier, schema in contracts.schemas().items():
        Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema", identifier
        assert schema["title"], identifier


def test_every_reference_and_every_pattern_of_the_schemas_holds() -> None:
    for identifier, schema in contracts.schemas().items():
        for keyword, value in _keywords(schema):
            if keyword == "$ref":
                components.resolve(contracts.schemas(), value if value[0] != "#" else identifier + value)
            if keyword == "pattern" and isinstance(value, str):
                re.compile(value)
                assert "\\d" not in value, f"{identifier}: \\d would match digits of any script"


def test_the_event_types_are_the_same_everywhere() -> None:
    types = set(contracts.schema("common")["$defs"]["event_type"]["enum"])
    assert len(types) == 22
    assert set(contracts.events()) == types
    assert types <= set(contracts.schema("event-payload")["$defs"])
    recorded = {name for name, entry in contracts.events().items() if entry.via == "record_event"}
    assert (
        set(contracts.schema("pamspec:operation:record_event:request")["properties"]["event_type"]["enum"]) == recorded
    )


def test_a_version_event_always_requires_its_version() -> None:
    required = set(contracts.schema("memory-event")["if"]["properties"]["event_type"]["enum"])
    assert {name for name in required if contracts.events()[name].version == "required"} == required


def test_payloads_hold_no_floats_no_nulls_and_ascii_keys() -> None:
    payload = contracts.schema("event-payload")
    for keyword, value in _keywords(payload):
        if keyword == "type":
            assert value in ("string", "integer", "boolean", "array", "object"), value
        if keyword == "properties":
            assert all(key.isascii() for key in value)


def test_parties_are_fields_of_the_payload() -> None:
    payloads = contracts.schema("event-payload")["$defs"]
    named = set(payloads["delegation_facts"]["required"])
    assert set(payloads["delegation_exercised"]["required"]) & named >= {"granting_actor_id", "delegated_actor_id"}
    for name, entry in contracts.events().items():
        fields = {party.removeprefix("payload.") for party in entry.parties} - {"actor"}
        assert fields <= (named if name.startswith("delegation_") else set()), name


def test_the_error_codes_are_the_same_everywhere() -> None:
    codes = set(contracts.schema("error")["$defs"]["code"]["enum"])
    assert len(codes) == 19
    assert set(contracts.errors()) == codes == {error.code for error in TREE}
    for error in TREE:
        entry = contracts.errors()[error.code]
        assert error.status == entry.status, error.code
        assert entry.retryable in (error.retryable, "depends"), error.code
    assert Unauthenticated.status in contracts.errors()[Unauthenticated.code].statuses()


def test_every_operation_has_its_schemas_and_every_schema_its_operation() -> None:
    files = {identifier.split(":")[2] for identifier in contracts.schemas() if ":operation:" in identifier}
    assert files == set(contracts.operations())
    for name, operation in contracts.operations().items():
        assert not contracts.request_validator(name).is_valid([]), name
        assert not contracts.answer_validator(name).is_valid([]), name
        assert set(operation.headers) <= set(contracts.operation_catalogue().headers), name
        assert not set(operation.errors) & set(contracts.operation_catalogue().common_errors), name


def test_doors_do_not_collide() -> None:
    doors = [("POST", f"/v1/{name}") for name, operation in contracts.operations().items() if operation.public]
    for operation in contracts.operations().values():
        doors += [(convenience.method, convenience.path) for convenience in operation.conveniences]
    doors += [("GET", channel.path) for channel in contracts.operation_catalogue().channels.values()]
    assert len(doors) == len(set(doors))


def test_every_request_takes_the_common_fields_and_nothing_else(valid_examples: dict[tuple[str, str], Any]) -> None:
    values = valid_examples["create.request", "full"]
    common = {name: values[name] for name in contracts.schema("request")["$defs"]["common_fields"]["properties"]}
    looked_up = {"operation_id", "idempotency_key"}
    for (schema, name), example in valid_examples.items():
        operation, _, kind = schema.rpartition(".")
        if kind != "request":
            continue
        validator = contracts.request_validator(operation)
        assert not validator.is_valid(example | {"no_such_field": 1}), f"{schema}/{name}"
        for field in common.keys() - (looked_up if operation == "get_operation" else set()):
            assert validator.is_valid(example | {field: common[field]}), f"{schema}/{name} with {field}"


def test_projections_can_name_every_member_of_an_envelope() -> None:
    members: set[str] = set()
    for name in ("memory-object", "relationship", "delegation"):
        members |= _properties(f"pamspec:schema:{name}")
    assert set(contracts.schema("request")["$defs"]["envelope_field"]["enum"]) == members


def test_the_bus_refers_to_what_exists() -> None:
    streams = contracts.streams()
    for name, subject in streams.subjects.items():
        assert subject.account in streams.accounts, name
        assert set(subject.exported_to) <= set(streams.accounts), name
        assert set(subject.headers.required) | set(subject.headers.optional) <= set(streams.headers), name
        assert set(re.findall(r"\{([a-z_]+)\}", subject.pattern)) <= set(streams.placeholders), name
        payloads = [subject.payload]
        if subject.reply is not None:
            headers = subject.reply.headers
            assert subject.transport == "request", name
            assert set(headers.required) | set(headers.optional) <= set(streams.headers), name
            payloads.append(subject.reply.payload)
        for payload in payloads:
            if payload not in (None, "operation"):
                assert contracts.schema(str(payload)), name
        stored = [key for key, stream in streams.streams.items() if name in stream.subjects]
        assert (subject.transport == "jetstream") == (len(stored) == 1), name
    for name, stream in streams.streams.items():
        assert stream.account in streams.accounts, name
        assert set(stream.subjects) <= set(streams.subjects), name
        for consumer in stream.consumers:
            assert consumer.name == f"{consumer.service}_{{partition}}", name


def test_the_code_sends_on_the_subjects_of_the_contract() -> None:
    subjects = contracts.streams().subjects
    tenant, scope = subject_token("tenant:a"), subject_token("tenant:a", "workspace:a")
    assert re.fullmatch(contracts.streams().token.pattern, tenant)
    names = {"tenant_token": tenant, "scope_token": scope, "event_type": "object_created"}
    assert bus.wake_subject(3) == subjects["wake"].subject(partition="3")
    assert bus.ledger_subject(3, *names.values()) == subjects["ledger"].subject(partition="3", **names)
    assert bus.event_subject(*names.values()) == subjects["events"].subject(**names)
    assert bus.deliver_subject(tenant, scope) == subjects["deliver"].subject(
        principal_token=tenant, subscription_token=scope
    )
    assert subjects["operation"].filter() == bus_door.SUBJECT
    assert subjects["whoami"].pattern == callout.WHOAMI
    may = callout.permissions(tenant, "a client")
    assert subjects["operation"].filter(principal_token=tenant) in may.publish
    reply = subjects["operation"].reply
    assert reply is not None
    assert {*contracts.operation_catalogue().headers, bus_door.STATUS} == {
        *reply.headers.required,
        *reply.headers.optional,
    }
    assert set(subjects["ledger"].headers.required) == {bus.HEADER_EVENT_ID, bus.HEADER_EPOCH, bus.HEADER_SEQUENCE}


def test_the_event_types_in_code_are_those_of_the_catalogue() -> None:
    catalogue = contracts.events()
    assert set(EVENT_TYPES) == set(catalogue)
    assert {name for name, kind in catalogue.items() if kind.readers == "party"} == PARTY_TYPES


def test_a_subject_is_filled_with_tokens_only() -> None:
    wake = contracts.streams().subjects["wake"]
    assert wake.filter() == "pamspec.wake.*"
    with pytest.raises(ValueError, match="partition"):
        wake.subject(partition="*")
    with pytest.raises(KeyError, match="partition"):
        wake.subject()


def _keywords(part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, dict):
        for keyword, value in part.items():
            yield keyword, value
            yield from _keywords(value)
    elif isinstance(part, list):
        for item in part:
            yield from _keywords(item)


def _properties(reference: str) -> set[str]:
    part = components.resolve(contracts.schemas(), reference)
    identifier = reference.partition("#")[0]
    found = set(part.get("properties", {}))
    for member in part.get("allOf", []):
        target = member["$ref"]
        found |= _properties(target if target[0] != "#" else identifier + target)
    return found
